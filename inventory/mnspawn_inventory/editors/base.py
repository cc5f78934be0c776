"""What the editors of all formats share: which hosts an edit is about, and the check of what came out. Text to text."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mnspawn_inventory.draft import ALL, Draft, did_you_mean
from mnspawn_inventory.editors.check import Edit, check
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import own, read_decoded
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.names import Endpoint, check_group, endpoint_of, is_plain, label_of, split_port
from mnspawn_inventory.text import Text
from mnspawn_inventory.toml_text import RANGED

Settings = Mapping[str, object]  # field, "env.NAME" or "labels.NAME" -> value; None takes it away


@dataclass(frozen=True, slots=True)
class Asked:
    """Hosts that an edit is about, as they were written (a name, a range or a list), and what is said of them."""

    target: str
    names: tuple[str, ...]
    settings: Settings
    source: str

    def each(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Every host with its own settings."""
        for index, name in enumerate(self.names):
            yield name, one_of(self.settings, index, len(self.names), self.source)


def wanted_of(asked: Sequence[Asked]) -> dict[str, dict[str, object]]:
    """Every host that is asked for with its settings; later ones win."""
    wanted: dict[str, dict[str, object]] = {}
    for one in asked:
        for name, said in one.each():
            wanted.setdefault(name, {}).update(said)
    return wanted


class Document:
    """One inventory that is being edited; the class of a format says how its text is changed.

    Attributes:
        format: the format's name.
        fields: what the format can say of a host; None: everything.
        has_groups: whether the format has groups of hosts.
        inventory: what the text said before.
    """

    fields: tuple[str, ...] | None = None
    has_groups: ClassVar[bool] = True

    def __init__(self, text: str, source: str, format_name: str) -> None:
        self.source = source
        self.format = format_name
        self.inventory = self.read(text)
        self._edit = Edit()

    def read(self, text: str) -> Inventory:
        """Read a text of this format; nothing at all is an inventory without hosts."""
        draft = Draft(self.source, self.format, is_lenient=True)
        if self.has_content(text):
            read_decoded(draft, Path(self.source), Text(self.source, text))
        return draft.finish()

    def has_content(self, text: str) -> bool:
        return bool(text.strip())

    def text(self) -> str:
        """The document as it is now.

        Raises:
            InventoryError: the text can't be read, or says anything but what was asked for.
        """
        text = self._written()
        check(self._edit, self._before(text), self.read(text), self.source)
        return text

    def _before(self, text: str) -> Inventory:
        """What was read before the edit that gave this text."""
        return self.inventory

    def add(self, targets: Sequence[str], settings: Settings, groups: Collection[str] = ()) -> list[str]:
        """Add hosts, each argument a name or a range. Gives the new names."""
        self._check_held(settings, groups)
        for group in groups:
            if check_group(group, Origin("--group")) == ALL:
                raise InventoryError("every host is in the group all", place=Origin("--group"), found=group)
        known = {host.name for host in self.inventory.hosts}
        asked = [self._new(*one) for one in _named(targets, settings, self.inventory.hosts, self.source)]
        added: dict[str, dict[str, object]] = {}
        for one in asked:
            for name, said in one.each():
                if name in known or name in added:
                    raise InventoryError(
                        "the host is there already",
                        place=Origin(self.source),
                        found=name,
                        expected="a new host",
                        hint="mnspawn inventory set changes it",
                    )
                added[name] = said
        self._add(asked, list(dict.fromkeys(groups)))
        self._edit.added.update(added)
        self._edit.joined.update(groups)
        return list(added)

    def set(self, targets: Sequence[str], settings: Settings) -> list[str]:
        """Set fields of hosts, ranges and @groups; None takes a field away. Gives what was changed."""
        self._check_held(settings, ())
        known = {host.name for host in self.inventory.hosts}
        changed: list[str] = []
        for target in targets:
            if target.startswith("@"):
                self._check_group(target[1:])
                if not self.has_groups:
                    raise self.refused("values of groups")
                changed.append(target)
                continue
            asked = self._asked(target, settings)
            self._check_hosts(asked.names, known)
            changed.extend(asked.names)
        for target in targets:
            if target.startswith("@"):
                self._set_group(target[1:], settings)
                self._edit.set_groups.setdefault(target[1:], {}).update(settings)
        asked_hosts = [self._asked(target, settings) for target in targets if not target.startswith("@")]
        if asked_hosts:
            self._set_hosts(asked_hosts)
        for one in asked_hosts:
            for name, said in one.each():
                self._edit.changed.setdefault(name, {}).update(said)
        return changed

    def remove(self, targets: Sequence[str]) -> list[str]:
        """Remove hosts from everywhere, and @groups, whose hosts stay. Gives what was removed."""
        known = {host.name for host in self.inventory.hosts}
        removed: list[str] = []
        groups: list[str] = []
        for target in targets:
            if target.startswith("@"):
                self._check_group(target[1:])
                groups.append(target[1:])
                removed.append(target)
                continue
            names = self._asked(target, {}).names
            self._check_hosts(names, known)
            known.difference_update(names)
            removed.extend(names)
        gone = {name for name in removed if not name.startswith("@")}
        for group in groups:
            self._remove_group(group)
        if gone:
            self._remove_hosts(gone)
        self._edit.removed.update(gone)
        self._edit.removed_groups.update(groups)
        return removed

    # -- what a format does

    def _written(self) -> str:
        raise NotImplementedError

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        raise NotImplementedError

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        raise NotImplementedError

    def _set_group(self, name: str, settings: Settings) -> None:
        raise self.refused("values of groups")

    def _remove_hosts(self, gone: Collection[str]) -> None:
        raise NotImplementedError

    def _remove_group(self, name: str) -> None:
        raise self.refused("groups")

    # -- what they share

    def refused(self, what: str) -> InventoryError:
        """The error for what the format can't hold."""
        return InventoryError(
            f"a file in the format {self.format} can't hold {what}",
            place=Origin(self.source),
            expected=", ".join(self.fields or ()) or None,
            hint="mnspawn inventory import makes a TOML inventory of it, which can",
        )

    def _check_held(self, settings: Settings, groups: Collection[str]) -> None:
        for key in settings:
            if self.fields is not None and key.partition(".")[0] not in self.fields:
                raise self.refused(key)
        if groups and not self.has_groups:
            raise self.refused("groups")

    def _asked(self, target: str, settings: Settings) -> Asked:
        """Hosts of the inventory, by their names or by the user and port that they have."""
        names = [self._known_as(name) for name in own.expand(target, Origin(self.source))]
        return Asked(target if len(names) > 1 else names[0], tuple(names), settings, self.source)

    def _known_as(self, name: str) -> str:
        if is_plain(name) or any(host.name == name for host in self.inventory.hosts):
            return name
        asked = endpoint_of(name)
        fitting = [
            host.name
            for host in self.inventory.hosts
            if host.ssh_name == asked.host and asked.user in (None, host.user) and asked.port in (None, host.port)
        ]
        return fitting[0] if len(fitting) == 1 else name

    def _new(self, target: str, settings: Settings) -> Asked:
        self._check_held(settings, ())
        return Asked(target, tuple(own.expand(target, Origin(self.source))), settings, self.source)

    def _check_hosts(self, names: Sequence[str], known: Collection[str]) -> None:
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise InventoryError("no such host", place=Origin(self.source), found=name, hint=hint)

    def _check_group(self, name: str) -> None:
        known = [ALL, *(group.name for group in self.inventory.groups)]
        if name not in known:
            hint = did_you_mean(name, known)
            raise InventoryError("no such group", place=Origin(self.source), found=f"@{name}", hint=hint)


def _named(
    targets: Sequence[str], settings: Settings, there: Sequence[Host], source: str
) -> list[tuple[str, Settings]]:
    """New hosts with short names: `me@h:2201` is called `h` where nothing else is, and has its user and port set."""
    endpoints = [(target, _pattern_endpoint(target, source)) for target in targets]
    times = Counter(name for _, one in endpoints for name in own.expand(one.host, Origin(source)))
    taken = {host.ssh_name for host in there} | {host.name for host in there}
    known = {host.endpoint: host.name for host in there}
    found: list[tuple[str, Settings]] = []
    for target, one in endpoints:
        said = {name: value for name, value in (("user", one.user), ("port", one.port)) if value is not None}
        for name in own.expand(one.host, Origin(source)) if said else ():
            if Endpoint(name, one.user, one.port) in known:
                raise InventoryError(
                    "the host is there already",
                    place=Origin(source),
                    found=target,
                    expected="a new host",
                    hint=f"mnspawn inventory set {known[Endpoint(name, one.user, one.port)]} changes it",
                )
        others = [(other.user, other.port) for _, other in endpoints if other is not one and other.host == one.host]
        is_alone = not others and not any(
            name in taken or times[name] > 1 for name in own.expand(one.host, Origin(source))
        )
        has_port = one.port is not None and all(port != one.port for _, port in others)
        has_user = one.user is not None and all(user != one.user for user, _ in others)
        for shown in (
            Endpoint(one.host) if is_alone or not said else None,
            Endpoint(one.host, None, one.port) if has_port else None,
            Endpoint(one.host, one.user) if has_user else None,
            one,
        ):
            if shown is not None and taken.isdisjoint(own.expand(label_of(shown), Origin(source))):
                break
        found.append((label_of(shown or one), {**settings, **said}))
        taken.update(own.expand(label_of(shown or one), Origin(source)))
    return found


def _pattern_endpoint(target: str, source: str) -> Endpoint:
    """User, port and names (perhaps a range) of a target."""
    if is_plain(target) or "," in target:
        return Endpoint(target)
    own.expand(target, Origin(source))  # says what is wrong with it
    user, at, address = target.removeprefix("ssh://").rstrip("/").rpartition("@")
    host, port = split_port(address)
    bare = host[1:-1] if host.startswith("[") and ":" in host else host
    return Endpoint(bare, user if at else None, None if port is None else int(port))


def nested(settings: Settings) -> dict[str, object]:
    """`env.NAME` and `labels.NAME` as tables; what would be taken away is not there."""
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
