"""What the editors share: which hosts an edit is about, and a check of the result. Text to text, no I/O."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn_inventory.draft import Draft
from mnspawn_inventory.editors.check import Edit, check
from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean, for_shell
from mnspawn_inventory.formats import own, read_decoded
from mnspawn_inventory.groups import ALL
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.names import Endpoint, check_group, endpoint_of, is_plain, label_of, split_port
from mnspawn_inventory.text import Text
from mnspawn_inventory.toml_text import RANGED

Settings = Mapping[str, object]  # field, "env.NAME" or "labels.NAME" -> value; None removes it


@dataclass(frozen=True, slots=True)
class Asked:
    """The hosts of an edit as written (a name, a range or a list), and their settings."""

    target: str
    names: tuple[str, ...]
    settings: Settings
    source: str

    def each(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Every host with its own settings."""
        for index, name in enumerate(self.names):
            yield name, one_of(self.settings, index, len(self.names), self.source)


class Document:
    """One inventory that is being edited. Each format has a subclass that changes its text.

    Attributes:
        holds: the fields that the format can hold, without groups; None if it can hold everything.
        inventory: the inventory before the edit.
    """

    holds: tuple[str, ...] | None = None

    def __init__(self, text: str, source: str, format_name: str) -> None:
        self.source = source
        self.format = format_name
        self.inventory = self.read(text)
        self._names = {host.name for host in self.inventory.hosts}
        self._edit = Edit()

    def read(self, text: str) -> Inventory:
        """Read a text of this format; an empty text is an inventory without hosts."""
        draft = Draft(self.source, self.format, is_lenient=True)
        read_decoded(draft, Path(self.source), Text(self.source, text))
        return draft.finish()

    def text(self) -> str:
        """The edited text.

        Raises:
            InventoryError: it can't be read, or differs from what was asked for.
        """
        text = self._written()
        check(self._edit, self._before(text), self.read(text), self.source)
        return text

    def _before(self, text: str) -> Inventory:
        """The inventory before the edit that led to this text."""
        return self.inventory

    def add(self, targets: Sequence[str], settings: Settings, groups: Collection[str] = ()) -> list[str]:
        """Add hosts, each argument a name or a range. Returns the new names."""
        for group in groups:
            if check_group(group, Origin("--group")) == ALL:
                raise InventoryError("every host is in the group all", place=Origin("--group"), found=group)
        if groups:
            self._check_holds("groups")
        asked = [
            Asked(target, tuple(own.expand(target, Origin(self.source))), its_settings, self.source)
            for target, its_settings in _named(targets, settings, self.inventory.hosts, self.source)
        ]
        added: dict[str, dict[str, object]] = {}
        for one in asked:
            self._check_holds(*one.settings)
            for name, its_settings in one.each():
                if name in self._names or name in added:
                    raise _already_there(name, name, self.source)
                added[name] = its_settings
        self._add(asked, list(dict.fromkeys(groups)))
        self._edit.hosts.update(added)
        self._edit.added.extend(added)
        self._edit.joined.update(groups)
        return list(added)

    def set(self, targets: Sequence[str], settings: Settings) -> list[str]:
        """Set fields of hosts, ranges and @groups; None removes a field. Returns what was changed."""
        self._check_holds(*settings)
        groups = self._groups(targets)
        if groups:
            self._check_holds("values of groups")
        asked = [self._asked(target, settings) for target in targets if not target.startswith("@")]
        for group in groups:
            self._set_group(group, settings)
            self._edit.groups.setdefault(group, {}).update(settings)
        if asked:
            self._set_hosts(asked)
        for one in asked:
            for name, its_settings in one.each():
                self._edit.hosts.setdefault(name, {}).update(its_settings)
        return [name for target in targets for name in self._listed(target)]

    def remove(self, targets: Sequence[str]) -> list[str]:
        """Remove hosts from everywhere, and @groups, whose hosts stay. Returns what was removed."""
        groups = self._groups(targets)
        if groups:
            self._check_holds("groups")
        removed: list[str] = []
        for target in targets:
            for name in self._listed(target):
                if name in removed and not name.startswith("@"):
                    raise InventoryError("no such host", place=Origin(self.source), found=name)
                removed.append(name)
        hosts = {name for name in removed if not name.startswith("@")}
        for group in groups:
            self._remove_group(group)
        if hosts:
            self._remove_hosts(hosts)
        self._edit.removed.update(hosts)
        self._edit.removed_groups.update(groups)
        return removed

    # -- for subclasses

    def _written(self) -> str:
        raise NotImplementedError

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        raise NotImplementedError

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        raise NotImplementedError

    def _set_group(self, name: str, settings: Settings) -> None:
        raise NotImplementedError

    def _remove_hosts(self, gone: Collection[str]) -> None:
        raise NotImplementedError

    def _remove_group(self, name: str) -> None:
        raise NotImplementedError

    # -- shared

    def _check_holds(self, *keys: str) -> None:
        """Raises InventoryError for the first key that the format can't hold."""
        for key in keys:
            if self.holds is not None and key.partition(".")[0] not in self.holds:
                command = f"mnspawn inventory import {for_shell(self.source)} --format {self.format}"
                raise InventoryError(
                    f"a file in the format {self.format} can't hold {key}",
                    place=Origin(self.source),
                    expected=", ".join(self.holds),
                    hint=f"{command} takes its hosts into your own inventory, which can",
                )

    def _asked(self, target: str, settings: Settings) -> Asked:
        """Hosts of the inventory, by their names or by the user and port that they have."""
        names = [self._known_as(name) for name in own.expand(target, Origin(self.source))]
        for name in names:
            if name not in self._names:
                hint = did_you_mean(name, self._names)
                raise InventoryError("no such host", place=Origin(self.source), found=name, hint=hint)
        return Asked(target if len(names) > 1 else names[0], tuple(names), settings, self.source)

    def _known_as(self, name: str) -> str:
        if is_plain(name) or name in self._names:
            return name
        asked = endpoint_of(name)
        fitting = [
            host.name
            for host in self.inventory.hosts
            if host.ssh_name == asked.host and asked.user in (None, host.user) and asked.port in (None, host.port)
        ]
        return fitting[0] if len(fitting) == 1 else name

    def _listed(self, target: str) -> tuple[str, ...]:
        """The names of a target's hosts; a @group is itself."""
        return (target,) if target.startswith("@") else self._asked(target, {}).names

    def _groups(self, targets: Sequence[str]) -> list[str]:
        """The groups among the targets.

        Raises:
            InventoryError: one of them is not there.
        """
        known = [ALL, *(group.name for group in self.inventory.groups)]
        groups = [target[1:] for target in targets if target.startswith("@")]
        for name in groups:
            if name not in known:
                hint = did_you_mean(name, known)
                raise InventoryError("no such group", place=Origin(self.source), found=f"@{name}", hint=hint)
        return groups


def _already_there(written: str, name: str, source: str) -> InventoryError:
    return InventoryError(
        "the host is there already",
        place=Origin(source),
        found=written,
        expected="a new host",
        hint=f"mnspawn inventory set {name} changes it",
    )


def _named(
    targets: Sequence[str], settings: Settings, there: Sequence[Host], source: str
) -> list[tuple[str, Settings]]:
    """New hosts with short names: `me@h:2201` is named `h` if no other host is, and gets its user and port set."""
    endpoints = [_pattern_endpoint(target, source) for target in targets]
    taken = {host.name for host in there}
    known = {host.endpoint: host.name for host in there}
    at: dict[str, list[Endpoint]] = {}  # host -> all its endpoints, old and new
    for one in known:
        at.setdefault(one.host, []).append(one)
    for pattern in endpoints:
        for host in own.expand(pattern.host, Origin(source)):
            at.setdefault(host, []).append(Endpoint(host, pattern.user, pattern.port))
    found: list[tuple[str, Settings]] = []
    for target, one in zip(targets, endpoints, strict=True):
        hosts = own.expand(one.host, Origin(source))
        its_own = {name: value for name, value in (("user", one.user), ("port", one.port)) if value is not None}
        for host in hosts if its_own else ():
            if (name := known.get(Endpoint(host, one.user, one.port))) is not None:
                raise _already_there(target, name, source)
        others = [other for host in hosts for other in at[host] if (other.user, other.port) != (one.user, one.port)]
        for shown in (Endpoint(one.host), Endpoint(one.host, None, one.port), Endpoint(one.host, one.user), one):
            is_like_another = any(
                shown.user in (None, other.user) and shown.port in (None, other.port) for other in others
            )
            if not is_like_another and taken.isdisjoint(own.expand(label_of(shown), Origin(source))):
                break
        found.append((label_of(shown), {**settings, **its_own}))
        taken.update(own.expand(label_of(shown), Origin(source)))
    return found


def _pattern_endpoint(target: str, source: str) -> Endpoint:
    """The user, port and names (perhaps a range) of a target."""
    if is_plain(target) or "," in target:
        return Endpoint(target)
    own.expand(target, Origin(source))  # raises if it is not valid
    user, at, address = target.removeprefix("ssh://").rstrip("/").rpartition("@")
    host, port = split_port(address)
    bare = host[1:-1] if host.startswith("[") and ":" in host else host
    return Endpoint(bare, user if at else None, None if port is None else int(port))


def nested(settings: Settings) -> dict[str, object]:
    """The settings with `env` and `labels` as tables, without those that are to be removed."""
    made: dict[str, object] = {}
    for key, value in settings.items():
        top, _, inner = key.partition(".")
        if value is None:
            continue
        if inner:
            table = made.setdefault(top, {})
            assert isinstance(table, dict)
            table[inner] = value
        else:
            made[key] = value
    return made


def one_of(settings: Settings, index: int, count: int, source: str) -> dict[str, object]:
    """The settings of one host of several: a range of addresses gives each its own."""
    chosen = dict(settings)
    for key in RANGED:
        value = chosen.get(key)
        if isinstance(value, str) and own.is_plural(value):
            addresses = own.expand(value, Origin(source))
            if len(addresses) != count:
                place = Origin(source)
                expected = f"{count}, one for each host"
                raise InventoryError("not as many addresses as hosts", place=place, found=value, expected=expected)
            chosen[key] = addresses[index]
    return chosen
