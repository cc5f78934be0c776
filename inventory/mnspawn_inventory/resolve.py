"""Which hosts take part: those that the options of a command line name, else those of the allocation it runs in."""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from functools import partial
from pathlib import Path

from mnspawn_inventory import exposed, names, select
from mnspawn_inventory.allocation import find_allocation
from mnspawn_inventory.draft import WAYS, Draft
from mnspawn_inventory.errors import InventoryError, Origin, listed_twice
from mnspawn_inventory.formats import OWN, read_into, read_inventory
from mnspawn_inventory.model import Host, Inventory, Selection
from mnspawn_inventory.select import NO_PLACES, place_of

PROJECT_FILE = "mnspawn.toml"


def resolve(
    *,
    hosts: str | None = None,
    ips: str | None = None,
    hostfile: str | None = None,
    inventory: str | None = None,
    include: str | None = None,
    exclude: str | None = None,
    limit: str | None = None,
    places: Mapping[str, Origin] = NO_PLACES,
    else_all: bool = False,
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] = ".",
) -> Selection:
    """Answer the question which hosts take part, in rank order.

        chosen = resolve(hosts="gpu[01-16]", exclude="gpu07", environ=os.environ)

    To choose among hosts that are at hand (those of a run, or of an inventory that was read) use `select.among`.

    Args:
        hosts: a host expression; names are looked up in the hostfile or inventory given, where they must be, else in
            the user's and the project's own inventory, else they are plain SSH names.
        ips: the same in Paddle's word. An address is looked up as such, too, and is the data address of its host.
        hostfile: a file whose hosts all take part, unless `hosts` or `ips` chooses among them. What it does not say of
            a host is looked up in the inventory.
        inventory: the same for an inventory of any format.
        include: keep only these hosts and devices.
        exclude: then drop these.
        limit: as `include`.
        places: where options were given, by name, if not on the command line:
            `{"hosts": Origin("MNSPAWN_HOSTS")}`. Errors name these places.
        else_all: use all hosts of the user's and the project's own inventory where nothing else says which.
        environ: the controller's environment (XDG_CONFIG_HOME, SLURM_*, PBS_*, LSB_*, PADDLE_*).
        cwd: where relative files and the project's inventory are looked for.

    Returns:
        The hosts, what they come from, and notes for the user. `hosts` is empty only when no option was given and
        there is neither an allocation nor, with `else_all`, an inventory that has hosts.

    Raises:
        InventoryError: anything that was given can't be used; never a silent fallback. Its `place` (an option, a
            variable, or file:line:column) and its `text` are apart.
    """
    at = partial(place_of, places=places)
    own = None if inventory is not None else read_own(environ, cwd)
    known = _read(inventory, at("inventory"), cwd) if inventory is not None else own
    listed = _read(hostfile, at("hostfile"), cwd, environ) if hostfile is not None else None
    given = listed if listed is not None else known if inventory is not None else None
    if hosts is not None or ips is not None:
        within = _completed(listed, known) if listed is not None else known or select.NOWHERE
        chosen = _written(hosts, ips, within, at, strict=given is not None)
        notes = given.notes if given is not None else ()
        kind = "hosts" if hosts is not None else "ips"
        source = str(at(kind))
    else:
        found = given or find_allocation(environ) or (own if else_all and own is not None and own.hosts else None)
        if found is None:
            _refuse_narrowing(at, include=include, exclude=exclude, limit=limit)
            return Selection()
        if not found.hosts:
            raise InventoryError("no hosts", place=Origin(found.source), expected="at least one host")
        within = found if found is known else _completed(found, known)
        chosen, notes, source = within.hosts, found.notes, found.source
        kind = "hostfile" if listed is not None else "inventory" if found is known else found.format
    chosen = select.narrow(chosen, within, include=include, exclude=exclude, limit=limit, places=places)
    _check_usable(chosen)
    for host in chosen:
        host.check_slots()  # slots and max_slots may come from different files
    return Selection(chosen, kind, source, (*notes, *exposed.notes_of(chosen, cwd)))


def _written(
    hosts: str | None, ips: str | None, within: Inventory, at: Callable[[str], Origin], *, strict: bool
) -> tuple[Host, ...]:
    """The hosts that --hosts or --ips lists."""
    if hosts is not None and ips is not None:
        raise InventoryError("--hosts and --ips both list hosts", place=at("ips"), expected="one of them")
    if hosts is not None:
        return select.choose(hosts, within, at("hosts"), strict=strict)
    # a name that is not there may be the address of one that is
    return _by_address(select.choose(ips or "", within, at("ips")), within, at("ips"), strict=strict)


def _check_usable(hosts: tuple[Host, ...]) -> None:
    """Raises InventoryError for hosts whose values could not be read; the hint says how to leave them out."""
    unusable = [host for host in hosts if host.problem is not None]
    if unusable and len(unusable) < len(hosts):
        from mnspawn_inventory.nodeset import fold

        problem = unusable[0].problem
        assert problem is not None
        problem.hint = (
            f"write the value itself, or leave out the hosts that need it: --exclude '{fold(h.name for h in unusable)}'"
        )
    for host in unusable:
        host.check_usable()


def _refuse_narrowing(at: Callable[[str], Origin], **options: str | None) -> None:
    for option, value in options.items():
        if value is not None:
            raise InventoryError(
                "there are no hosts to choose from",
                place=at(option),
                found=value,
                hint="give --hosts, --hostfile or --inventory",
            )


def _read(path: str, place: Origin, cwd: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Inventory:
    """Read the file that an option names; a batch system's node file in that system's format."""
    if not path:
        raise InventoryError("no file name", place=place, found=path, expected="a file")
    format_name = None
    for variable, name in (("PBS_NODEFILE", "pbs"), ("LSB_DJOB_HOSTFILE", "lsf")):
        if environ and environ.get(variable) == path:
            format_name = name
    return read_inventory(path, format_name, cwd=cwd)


def read_own(environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> Inventory | None:
    """The user's inventory, overridden by the project's; None if neither exists."""
    there = [path for path in own_files(environ, cwd) if path.is_file()]
    if not there:
        return None
    draft = Draft(str(there[-1]), OWN)
    for path in there:
        read_into(draft, path, str(path), OWN)
    return draft.finish()


def own_files(environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The paths of the user's and the project's inventory, which need not exist; the project's wins."""
    return user_file(environ), Path(cwd) / PROJECT_FILE


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's own inventory: `$XDG_CONFIG_HOME/mnspawn/inventory.toml`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # the XDG specification says to ignore relative paths
    config = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return config / "mnspawn" / "inventory.toml"


def _completed(listed: Inventory, known: Inventory | None) -> Inventory:
    """The listed hosts; values that the list does not have come from the inventory."""
    if known is None or known is listed:
        return listed
    there = {host.name: host for host in known.hosts}
    by_endpoint = {host.endpoint: host for host in known.hosts}

    def completed(host: Host) -> Host:
        below = there.get(host.name) or by_endpoint.get(host.endpoint) or there.get(host.ssh_name)
        return host if below is None else replace(_over(below, host), name=host.name)

    hosts = tuple(map(completed, listed.hosts))
    groups = tuple(listed.groups) + tuple(
        group for group in known.groups if group.name not in {one.name for one in listed.groups}
    )
    return replace(listed, hosts=hosts, groups=groups)


def _over(below: Host, above: Host) -> Host:
    """Combine two descriptions of a host; values of `above` win."""
    values = {
        field.name: value
        for field in dataclass_fields(Host)
        if field.name not in ("name", "env", "secrets", "labels", "groups", "origins", "problem")
        and (value := getattr(above, field.name)) not in (None, ())
    }
    ways = {way: None for way, other in WAYS.items() if getattr(above, other) is not None}
    below = replace(below, **ways)  # type: ignore[arg-type]  # None for fields that may be None
    return replace(
        below,
        env=tuple({**dict(below.env), **dict(above.env)}.items()),
        secrets=tuple({**dict(below.secrets), **dict(above.secrets)}.items()),
        labels=tuple({**dict(below.labels), **dict(above.labels)}.items()),
        groups=tuple(dict.fromkeys([*below.groups, *above.groups])),
        origins=tuple({**dict(below.origins), **dict(above.origins)}.items()),
        **values,
    )


def _by_address(hosts: tuple[Host, ...], known: Inventory, place: Origin, *, strict: bool) -> tuple[Host, ...]:
    """The hosts of --ips: addresses are looked up in the inventory, and become data addresses.

    Args:
        strict: a host that is not in the inventory is an error.

    Raises:
        InventoryError: a host is listed twice, perhaps once by its address, or is not in the inventory.
    """
    there = {host.name for host in known.hosts}
    by_address = {
        address: one for one in reversed(known.hosts) for address in (one.address, one.data_address) if address
    }
    found: dict[str, Host] = {}
    for host in hosts:
        one, address = host, host.ssh_name
        if host.name not in there and names.is_address(address):
            one = replace(host, data_address=address)
            if address in by_address:
                one = _over(by_address[address], one)
        elif names.is_address(address) and host.data_address is None:
            one = replace(host, data_address=address)
        if strict and one.name not in there:
            raise select.unknown(host.name, there, known, place)
        if one.name in found:
            raise listed_twice(host.name, place)
        found[one.name] = one
    return tuple(found.values())
