"""Which hosts take part: the options of a command line, else the allocation that it runs in."""

import os
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path

from mnspawn_inventory import exposed, names, select
from mnspawn_inventory.allocation import find_allocation
from mnspawn_inventory.draft import WAYS, Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import OWN, read_into, read_inventory
from mnspawn_inventory.model import Host, Inventory, Selection

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
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] = ".",
) -> Selection:
    """Find the hosts of a run, in rank order.

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
        environ: the controller's environment (XDG_CONFIG_HOME, SLURM_*, PBS_*, LSB_*, PADDLE_*).
        cwd: where relative files and the project's inventory are looked for.

    Returns:
        The selection; `hosts` is empty only when no option was given and there is no allocation.

    Raises:
        InventoryError: anything that was given can't be used; never a silent fallback.
    """
    place = _listing_option(hosts, ips)
    own = None if inventory is not None else read_own(environ, cwd)
    known = _read(inventory, "--inventory", cwd) if inventory is not None else own
    listed = _read(hostfile, "--hostfile", cwd, environ) if hostfile is not None else None
    notes: tuple[str, ...] = ()
    text = hosts if hosts is not None else ips
    if text is not None and place is not None:
        within = _completed(listed, known) if listed is not None else known
        is_strict = listed is not None or inventory is not None
        if hosts is not None:
            chosen = select.choose(text, within, place, strict=is_strict)
        else:  # a name that is not there may be the address of one that is
            chosen = _by_address(select.choose(text, within, place), within, place, strict=is_strict)
        named = listed if listed is not None else known if inventory is not None else None
        notes = named.notes if named is not None else ()
        kind, source = ("hosts", "--hosts") if hosts is not None else ("ips", "--ips")
    else:
        allocated = find_allocation(environ) if listed is None and inventory is None else None
        explicit = listed if listed is not None else known if inventory is not None else allocated
        if explicit is None:
            _refuse_narrowing(include, exclude, limit)
            return Selection()
        if not explicit.hosts:
            raise InventoryError("no hosts", place=Origin(explicit.source), expected="at least one host")
        within = explicit if explicit is known else _completed(explicit, known)
        chosen, notes = within.hosts, explicit.notes
        kind = "hostfile" if listed is not None else "inventory" if inventory is not None else explicit.format
        source = explicit.source
    chosen = select.narrow(
        chosen,
        within,
        include=_option(include, "--include"),
        exclude=_option(exclude, "--exclude"),
        limit=_option(limit, "--limit"),
    )
    _check_usable(chosen)
    for host in chosen:
        host.check_slots()  # what says its slots may stand elsewhere than what says the most
    return Selection(chosen, kind, source, (*notes, *exposed.notes_of(chosen, cwd)))


def _check_usable(hosts: tuple[Host, ...]) -> None:
    """Raises InventoryError for hosts whose values could not be read, and says how to do without them."""
    unusable = [host for host in hosts if host.problem is not None]
    if unusable and len(unusable) < len(hosts):
        from mnspawn_inventory.nodeset import fold

        problem = unusable[0].problem
        assert problem is not None
        problem.hint = (
            f"write the value out, or leave hosts out that need it: --exclude '{fold(h.name for h in unusable)}'"
        )
    for host in unusable:
        host.check_usable()


def _option(value: str | None, name: str) -> tuple[str, Origin] | None:
    return None if value is None else (value, Origin(name))


def _listing_option(hosts: str | None, ips: str | None) -> Origin | None:
    if hosts is not None and ips is not None:
        raise InventoryError("--hosts and --ips both list hosts", place=Origin("--ips"), expected="one of them")
    if hosts is not None:
        return Origin("--hosts")
    return Origin("--ips") if ips is not None else None


def _refuse_narrowing(include: str | None, exclude: str | None, limit: str | None) -> None:
    for option, value in (("--include", include), ("--exclude", exclude), ("--limit", limit)):
        if value is not None:
            raise InventoryError(
                "there are no hosts to choose from",
                place=Origin(option),
                found=value,
                hint="give --hosts, --hostfile or --inventory",
            )


def _read(path: str, option: str, cwd: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Inventory:
    """Read the file that an option names; a scheduler's node file is read as the scheduler means it."""
    if not path:
        raise InventoryError("no file name", place=Origin(option), found=path, expected="a file")
    format_name = None
    for variable, name in (("PBS_NODEFILE", "pbs"), ("LSB_DJOB_HOSTFILE", "lsf")):
        if environ and environ.get(variable) == path:
            format_name = name
    return read_inventory(path, format_name, cwd=cwd)


def read_own(environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> Inventory | None:
    """The user's inventory with the project's over it; None where neither is there."""
    there = [path for path in own_files(environ, cwd) if path.is_file()]
    if not there:
        return None
    draft = Draft(str(there[-1]), OWN)
    for path in there:
        read_into(draft, path, str(path), OWN)
    return draft.finish()


def own_files(environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Where the user's and the project's inventory are, or would be; the later wins."""
    return user_file(environ), Path(cwd) / PROJECT_FILE


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's own inventory: `$XDG_CONFIG_HOME/mnspawn/inventory.toml`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # the XDG specification has relative paths ignored
    config = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return config / "mnspawn" / "inventory.toml"


def _completed(listed: Inventory, known: Inventory | None) -> Inventory:
    """The listed hosts; what the list does not say of a host comes from the inventory."""
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
    """One host of two descriptions; what `above` says wins."""
    said = {
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
        **said,
    )


def _by_address(hosts: tuple[Host, ...], known: Inventory | None, place: Origin, *, strict: bool) -> tuple[Host, ...]:
    """The hosts of --ips: addresses are looked up as such in the inventory, and are the data addresses.

    Args:
        strict: a host that is not in the inventory is an error.

    Raises:
        InventoryError: a host is named twice, by its name and its address perhaps; or it is not in the inventory.
    """
    inventory = known.hosts if known is not None else ()
    there = {host.name for host in inventory}
    by_address = {address: one for one in reversed(inventory) for address in (one.address, one.data_address) if address}
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
            raise InventoryError("a host is named twice", place=place, found=host.name, expected="each host once")
        found[one.name] = one
    return tuple(found.values())
