"""An inventory that is being read: collects values with their places, then applies inheritance. No I/O."""

from collections.abc import Iterable

from mnspawn_inventory import fields, groups, names
from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean
from mnspawn_inventory.groups import ALL
from mnspawn_inventory.model import Group, Host, Inventory, SecretRef

WAYS = {"jump": "proxy_command", "proxy_command": "jump"}  # one replaces the other
MAX_HOSTS = 100_000  # more are a typing error in a range


class Values:
    """The values of one host or group. A later value of a field wins."""

    __slots__ = ("_settings", "problem")

    def __init__(self) -> None:
        self.problem: InventoryError | None = None  # see Host.problem
        self._settings: dict[str, tuple[object, Origin | None]] = {}

    def set(self, field: str, raw: object, place: Origin | None) -> None:
        """Check and keep a field's value.

        Raises:
            InventoryError: there is no such field, or it does not accept this value.
        """
        check = fields.FIELDS.get(field)
        if check is None:
            raise unknown_key(field, [*fields.FIELDS, "env", "labels"], place)
        self._settings[field] = (check(raw, place), place)
        if field in WAYS:
            self._settings.pop(WAYS[field], None)

    def set_env(self, name: str, raw: object, place: Origin | None) -> None:
        """Check and keep a variable for the workers; `raw` is its text or a SecretRef."""
        if not names.VARIABLE_NAME.fullmatch(name):
            raise InventoryError(
                "not a variable's name",
                place=place,
                found=name,
                expected="letters, digits and '_', not beginning with a digit",
            )
        value = raw if isinstance(raw, SecretRef) else fields.scalar_text(raw, f"the variable {name}", place)
        self._settings[f"env.{name}"] = (value, place)

    def set_label(self, name: str, raw: object, place: Origin | None) -> None:
        """Check and keep a label."""
        if not names.GROUP_NAME.fullmatch(name):
            raise InventoryError(
                "not a label's name", place=place, found=name, expected="letters, digits, '.', '-' and '_'"
            )
        self._settings[f"labels.{name}"] = (fields.scalar_text(raw, f"the label {name}", place), place)

    def items(self) -> Iterable[tuple[str, tuple[object, Origin | None]]]:
        return self._settings.items()

    def __contains__(self, field: str) -> bool:
        return field in self._settings

    def get(self, field: str) -> object:
        return self._settings[field][0] if field in self._settings else None


class GroupDraft:
    """A group's own hosts, child groups and values."""

    __slots__ = ("children", "hosts", "name", "values")

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, None] = {}
        self.children: dict[str, Origin | None] = {}
        self.values = Values()


class Draft:
    """Collects what readers find. Several files may be read into one draft; values of later files win."""

    def __init__(self, source: str, format_name: str, *, is_lenient: bool = False) -> None:
        self.source = source
        self.is_lenient = is_lenient  # accept unknown keys with a note: edits keep them
        self.format = format_name
        self.notes: list[str] = []
        self.groups: dict[str, GroupDraft] = {}
        self._hosts: dict[str, tuple[Values, Origin | None]] = {}

    def host(self, name: str, place: Origin | None) -> Values:
        """The values of a host, which is added if it is new; the name is checked."""
        known = self._hosts.get(name)
        if known is not None:
            return known[0]
        bare = names.check_name(name, place)
        if bare != name:  # an IPv6 address in brackets
            return self.host(bare, place)
        if len(self._hosts) >= MAX_HOSTS:
            raise InventoryError(f"more than {MAX_HOSTS} hosts", place=place)
        values = Values()
        self._hosts[name] = (values, place)
        return values

    @property
    def has_hosts(self) -> bool:
        return bool(self._hosts)

    def has_host(self, name: str) -> bool:
        return _unbracketed(name) in self._hosts

    def place_of(self, name: str) -> Origin | None:
        """Where the host was first written."""
        return self._hosts[_unbracketed(name)][1]

    def group(self, name: str, place: Origin | None) -> GroupDraft:
        """The group, which is added if it is new; the name is checked."""
        known = self.groups.get(name)
        if known is None:
            names.check_group(name, place)
            known = self.groups[name] = GroupDraft(name)
        return known

    def finish(self) -> Inventory:
        """Apply inheritance and make the inventory.

        Raises:
            InventoryError: a group contains itself, or a child group is nowhere described.
        """
        children = {group.name: group.children for group in self.groups.values()}
        listed = {group.name: group.hosts.keys() & self._hosts.keys() for group in self.groups.values()}
        depths = groups.depths(children)
        everything = self.groups.get(ALL)
        ranked = [group for group in self.groups.values() if group.name != ALL]
        ranked.sort(key=lambda group: depths[group.name])  # of one depth, the later one in the file wins
        members = {group.name: groups.members(group.name, children, listed) for group in ranked}
        inherited: dict[str, list[GroupDraft]] = {name: [everything] if everything else [] for name in self._hosts}
        for group in ranked:
            for name in members[group.name]:
                inherited[name].append(group)
        hosts = []
        for name, (values, place) in self._hosts.items():
            chain = inherited[name]
            settings: dict[str, tuple[object, Origin | None]] = {}
            for layer in [*(group.values for group in chain), values]:
                for way, other in WAYS.items():
                    if way in layer:
                        settings.pop(other, None)
                settings.update(layer.items())
            own = [group.name for group in chain if group.name != ALL]
            hosts.append(_make_host(name, place, settings, own, values.problem))
        position = {name: number for number, name in enumerate(self._hosts)}
        found = [
            Group(
                group.name,
                tuple(sorted(members[group.name], key=position.__getitem__)),
                tuple(group.children),
            )
            for group in self.groups.values()
            if group.name != ALL
        ]
        return Inventory(tuple(hosts), tuple(found), self.source, self.format, tuple(self.notes))


def _make_host(
    name: str,
    place: Origin | None,
    settings: dict[str, tuple[object, Origin | None]],
    its_groups: list[str],
    problem: InventoryError | None,
) -> Host:
    plain: dict[str, object] = {}
    if not names.is_plain(name):
        settings = _with_name(name, place, settings)
    env: list[tuple[str, str]] = []
    secrets: list[tuple[str, SecretRef]] = []
    labels: list[tuple[str, str]] = []
    origins = [] if place is None else [("name", place)]
    for field, (value, origin) in settings.items():
        if origin is not None:
            origins.append((field, origin))
        if field.startswith("env."):
            if isinstance(value, SecretRef):
                secrets.append((field[4:], value))
            else:
                env.append((field[4:], str(value)))
        elif field.startswith("labels."):
            labels.append((field[7:], str(value)))
        else:
            plain[field] = value
    host = Host(
        name=name,
        env=tuple(env),
        secrets=tuple(secrets),
        labels=tuple(labels),
        groups=tuple(its_groups),
        origins=tuple(origins),
        problem=problem,
        **plain,  # type: ignore[arg-type]  # fields.FIELDS checked each value
    )
    host.check_slots()
    return host


def _with_name(
    name: str, place: Origin | None, settings: dict[str, tuple[object, Origin | None]]
) -> dict[str, tuple[object, Origin | None]]:
    """The settings with the user and port from the name itself.

    Raises:
        InventoryError: the settings have another user or port.
    """
    endpoint = names.endpoint_of(name)
    from_name = {"user": endpoint.user, "port": endpoint.port}
    completed = dict(settings)
    for field, value in from_name.items():
        if value is None:
            continue
        found, where = settings.get(field, (value, place))
        if found != value:
            expected = f"{value}, as in its name"
            raise InventoryError(
                f"the {field} contradicts the name {name}", place=where, found=str(found), expected=expected
            )
        completed[field] = (value, where)
    return completed


def _unbracketed(name: str) -> str:
    """The name; an IPv6 address without its brackets."""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def unknown_key(key: str, known: Iterable[str], place: Origin | None) -> InventoryError:
    """The error for an unknown key; the hint names the most similar known one."""
    choices = list(known)
    return InventoryError(
        "unknown key", place=place, found=key, expected="one of " + ", ".join(choices), hint=did_you_mean(key, choices)
    )
