"""Choose hosts by expressions: --hosts makes a list; --include, --exclude and --limit narrow it down. Pure.

The order is that of the expression for --hosts, and that of the list for the others.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean, listed_twice
from mnspawn_inventory.expression import Operand, parse, slots_and_devices
from mnspawn_inventory.model import Host, Inventory

NOWHERE = Inventory(())
CHANGES: Mapping[str, Callable[[set[names.Endpoint], Iterable[names.Endpoint]], None]] = {
    ",": set.update,
    "!": set.difference_update,
    "&": set.intersection_update,
    "^": set.symmetric_difference_update,
}
NO_PLACES: Mapping[str, Origin] = {}


@dataclass(frozen=True, slots=True)
class _Pick:
    """A host that operands name, with the last operand that has a user, port, slots or devices for it."""

    host: Host
    operand: Operand


def choose(expression: str, inventory: Inventory, place: Origin, *, strict: bool = False) -> tuple[Host, ...]:
    """The hosts of a --hosts expression. Names are looked up in the inventory; others are plain SSH names.

    Args:
        place: where the expression was given, for errors.
        strict: a name that is not in the inventory is an error.

    Raises:
        InventoryError: the expression is not valid, lists a host twice, or names an unknown group.
    """
    known = Lookup(inventory.hosts)

    def found(name: str, operand: Operand) -> list[Host]:
        if there := known.find(name, operand):
            return there
        if strict:
            raise unknown(operand.label_of(name), known.names, inventory, place)
        return [Host(names.check_host(name, place), origins=(("name", place),))]

    operands = parse(expression, place, known.__contains__)
    picks = _evaluate(operands, inventory, place, found, refuse_repeats=True)
    if not picks:
        raise InventoryError("no hosts are left", place=place, found=expression, expected="at least one host")
    return with_unique_names([_decorate(pick.host, pick.operand, place) for pick in picks], place)


class Lookup:
    """Finds hosts by their names, or by their addresses with user and port."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self.names = {host.name: host for host in hosts}
        self._labelled: dict[str, list[Host]] = {}
        for host in self.names.values():
            if not names.is_plain(host.name):
                self._labelled.setdefault(host.ssh_name, []).append(host)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def find(self, name: str, operand: Operand) -> list[Host]:
        """The hosts that an operand means by a name: without user and port, all hosts of that address."""
        exact = [self.names[name]] if name in self.names else []
        labelled = self._labelled.get(name, ())
        if operand.user is None and operand.port is None:
            return exact or list(labelled)
        fitting = [host for host in (*exact, *labelled) if _fits(host, operand)]
        return fitting or exact


def _fits(host: Host, operand: Operand) -> bool:
    """Whether the host has the operand's user and port."""
    has_port = operand.port is None or host.port == operand.port
    has_user = operand.user is None or host.user == operand.user or (host.user is None and operand.port is not None)
    return has_port and has_user


def with_unique_names(hosts: Sequence[Host], place: Origin | None = None) -> tuple[Host, ...]:
    """Give hosts of the same name unique names, by user or port (see `Host.name`).

    Raises:
        InventoryError: two of them have the same user and port.
    """
    counted = Counter(host.name for host in hosts)
    if len(counted) == len(hosts):
        return tuple(hosts)
    ends = Counter(host.endpoint for host in hosts if counted[host.name] > 1)
    if repeated := next((end for end, times in ends.items() if times > 1), None):
        raise listed_twice(names.label_of(repeated), place)
    unique = names.unique_names(ends)
    return tuple(replace(host, name=unique[host.endpoint]) if counted[host.name] > 1 else host for host in hosts)


def _decorate(host: Host, operand: Operand, place: Origin) -> Host:
    """The host with the operand's user, port, slots and devices."""
    slots, devices = slots_and_devices(operand, place)
    values = {"user": operand.user, "port": operand.port, "slots": slots, "devices": devices}
    given = {field: value for field, value in values.items() if value not in (None, getattr(host, field))}
    if not given:
        return host
    if host.devices is not None and devices is not None:
        _check_devices(host, devices, place)
    kept = tuple(pair for pair in host.origins if pair[0] not in given)
    places = tuple((field, place) for field in given)
    return replace(host, origins=kept + places, **given)  # type: ignore[arg-type]


def among(
    known: Inventory,
    *,
    hosts: str | None = None,
    include: str | None = None,
    exclude: str | None = None,
    limit: str | None = None,
    places: Mapping[str, Origin] = NO_PLACES,
) -> tuple[Host, ...]:
    """Choose among the hosts of an inventory (or of a run: `Inventory(run.hosts)`).

    Args:
        known: the hosts and groups to choose among; nothing else is looked up.
        hosts: the expression that lists the hosts to keep, in its order; None keeps all.
        include, exclude, limit: as in `narrow`.
        places: where the options were given, by name, if not on the command line. Errors name these places.

    Returns:
        The hosts in the order of `hosts`, else in that of the inventory. They may have a `problem`.

    Raises:
        InventoryError: an option names what is not there, or no host is left.
    """
    kept = known.hosts if hosts is None else choose(hosts, known, place_of("hosts", places), strict=True)
    return narrow(kept, known, include=include, exclude=exclude, limit=limit, places=places)


def place_of(option: str, places: Mapping[str, Origin]) -> Origin:
    """Where an option was given; by default its flag."""
    return places.get(option, Origin(f"--{option}"))


def narrow(
    hosts: Sequence[Host],
    inventory: Inventory,
    *,
    include: str | None = None,
    exclude: str | None = None,
    limit: str | None = None,
    places: Mapping[str, Origin] = NO_PLACES,
) -> tuple[Host, ...]:
    """Keep the hosts (and devices) that --include and --limit name, then drop those that --exclude names.

    `a` stands for the whole host, `a:0,2` and `a:0` for devices of it, as in DeepSpeed.

    Raises:
        InventoryError: a name is not among the hosts, a device is not on its host, or nothing is left.
    """
    kept = tuple(hosts)
    steps = (("include", include, _keep), ("limit", limit, _keep), ("exclude", exclude, _drop))
    for option, expression, apply in steps:
        if expression is None:
            continue
        place = place_of(option, places)
        picked = _picked(expression, hosts, inventory, place)
        kept = tuple(host for one in kept if (host := apply(one, picked.get(one.name), place)) is not None)
        if not kept:
            raise InventoryError("no hosts are left", place=place, found=expression, expected="at least one host")
    return kept


def _picked(expression: str, hosts: Sequence[Host], inventory: Inventory, place: Origin) -> dict[str, list[Operand]]:
    """The operands that name each host, by host."""
    known = Lookup(hosts)
    elsewhere = {host.name for host in inventory.hosts}

    def found(name: str, operand: Operand) -> list[Host]:
        there = known.find(name, operand)
        if there and ((operand.user is None and operand.port is None) or any(_fits(host, operand) for host in there)):
            return there
        if name in elsewhere and not operand.is_literal:
            return []  # a group may have other hosts
        if there:
            has = " and ".join(names.label_of(host.endpoint) for host in there)
            raise InventoryError("no host has such a user or port", place=place, found=operand.text, expected=has)
        raise unknown(operand.label_of(name), known.names, here, place)

    here = Inventory(tuple(hosts), inventory.groups)
    operands = parse(expression, place, known.__contains__)
    picks = _evaluate(operands, here, place, found, refuse_repeats=False)
    speaking: dict[str, list[Operand]] = {pick.host.name: [] for pick in picks}
    for operand in operands:
        for name in _names(operand, here, place):
            for host in found(name, operand):
                if host.name in speaking:
                    speaking[host.name].append(operand)
    return speaking


def _devices_of(host: Host, operands: Iterable[Operand], place: Origin) -> tuple[int, ...] | None:
    """The devices of the host that the operands name; None for the whole host."""
    chosen: list[int] = []
    for operand in operands:
        if operand.numbers is None:
            return None
        positions = fields.devices(operand.numbers, place)
        _check_devices(host, positions, place)
        chosen.extend(position for position in positions if position not in chosen)
    return tuple(chosen)


def _check_devices(host: Host, positions: Iterable[int], place: Origin) -> None:
    present = _present(host)
    if present is None:
        return
    for position in positions:
        if position not in present:
            raise InventoryError(
                f"{host.name} has no device {position}",
                place=place,
                found=str(position),
                expected="one of " + ",".join(map(str, present)),
            )


def _present(host: Host) -> tuple[int, ...] | None:
    """The host's devices: those listed, or one per slot; None if the inventory has neither."""
    if host.devices is not None:
        return host.devices
    return tuple(range(host.slots)) if host.slots is not None else None


def _keep(host: Host, operands: list[Operand] | None, place: Origin) -> Host | None:
    if operands is None:
        return None
    devices = _devices_of(host, operands, place)
    return host if devices is None else _with_devices(host, tuple(sorted(devices)), place)


def _drop(host: Host, operands: list[Operand] | None, place: Origin) -> Host | None:
    if operands is None:
        return host
    devices = _devices_of(host, operands, place)
    if devices is None:
        return None
    present = _present(host)
    if present is None:
        raise InventoryError(
            f"the devices of {host.name} are not known",
            place=place,
            expected="slots or devices of this host in the inventory",
            hint="choose devices with --include",
        )
    left = tuple(position for position in present if position not in devices)
    return _with_devices(host, left, place) if left else None


def _with_devices(host: Host, devices: tuple[int, ...], place: Origin) -> Host:
    kept = tuple(pair for pair in host.origins if pair[0] not in ("slots", "devices"))
    return replace(host, devices=devices, slots=len(devices), origins=(*kept, ("slots", place), ("devices", place)))


def _evaluate(
    operands: Sequence[Operand],
    inventory: Inventory,
    place: Origin,
    found: Callable[[str, Operand], list[Host]],
    *,
    refuse_repeats: bool,
) -> list[_Pick]:
    """Apply the operators from left to right. Hosts are in the order in which they are first named."""
    picks: dict[names.Endpoint, _Pick] = {}
    written: set[names.Endpoint] = set()
    members: set[names.Endpoint] = set()
    for operand in operands:
        here = [host for name in _names(operand, inventory, place) for host in found(name, operand)]
        if operand.operator != "," and operand.numbers:
            raise InventoryError(f"slots can't follow {operand.operator!r}", place=place, found=operand.text)
        keys = [_key(host, operand, picks, written) for host in here]
        if refuse_repeats and operand.operator == "," and operand.is_literal:
            for key in keys:
                if key in written:
                    raise listed_twice(names.label_of(key), place)
                written.add(key)
        if operand.operator in ",^":
            for key, host in zip(keys, here, strict=True):
                if key not in picks or operand.text != operand.pattern:
                    picks[key] = _Pick(host, operand)
        CHANGES[operand.operator](members, keys if operand.operator == "," else _meant(keys, picks))
    return [pick for key, pick in picks.items() if key in members]


def _key(
    host: Host, operand: Operand, picks: Mapping[names.Endpoint, _Pick], written: Container[names.Endpoint]
) -> names.Endpoint:
    """The pick that an operand means: one that came with a group takes the user and port of a later operand."""
    key = names.Endpoint(host.ssh_name, operand.user or host.user, operand.port or host.port)
    own = host.endpoint
    return own if key not in picks and own in picks and own not in written else key


def _meant(keys: Sequence[names.Endpoint], picks: Iterable[names.Endpoint]) -> list[names.Endpoint]:
    """The picks that keys mean; a key without user or port means those with any."""
    there: dict[str, list[names.Endpoint]] = {}
    for pick in picks:
        there.setdefault(pick.host, []).append(pick)
    return [
        found
        for key in keys
        for found in [
            pick for pick in there.get(key.host, ()) if key.user in (None, pick.user) and key.port in (None, pick.port)
        ]
        or [key]
    ]


def _names(operand: Operand, inventory: Inventory, place: Origin) -> list[str]:
    """The names that an operand stands for."""
    if operand.pattern.startswith("@"):
        return _group(operand.pattern[1:], inventory, place)
    if not names.is_plain(operand.pattern) or ":" in operand.pattern:
        return [operand.pattern]
    if not operand.is_glob:
        return nodeset.expand(operand.pattern, place)
    matches = nodeset.glob_pattern(operand.pattern, place).fullmatch
    matched = [host.name for host in inventory.hosts if matches(host.name)]
    if not matched:
        raise InventoryError("no host matches", place=place, found=operand.pattern)
    return matched


def _group(name: str, inventory: Inventory, place: Origin) -> list[str]:
    if name in ("*", "all"):
        return [host.name for host in inventory.hosts]
    for group in inventory.groups:
        if group.name == name:
            return list(group.hosts)
    known = [group.name for group in inventory.groups]
    raise InventoryError(
        "no such group",
        place=place,
        found=f"@{name}",
        expected=f"one of {', '.join('@' + one for one in known)}" if known else "an inventory with groups",
        hint=did_you_mean(name, known),
    )


def unknown(name: str, known: Iterable[str], inventory: Inventory, place: Origin) -> InventoryError:
    """The error for a host name that does not exist."""
    where = f"in {inventory.source}" if inventory.source else "among the hosts"
    return InventoryError(f"no such host {where}", place=place, found=name, hint=did_you_mean(name, known))
