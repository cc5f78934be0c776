"""What the hosts' facts mean for a run: how many trainers, which devices, which addresses. Pure."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .facts import HostFacts

MAX_CANDIDATES = 4  # addresses tried per host; more interfaces than that are told apart with --network
PROBE_ALL_BELOW = 9  # up to eight hosts everybody probes everybody; beyond, the first host and both neighbours
VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "xpu": "XPU_VISIBLE_DEVICES"}


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the survey sees it.

    Attributes:
        control: where SSH dials it, as the user wrote it.
        data_address, network: as configured, None where nothing was said.
        slots, devices: as configured.
        facts: of HELLO.
    """

    name: str
    control: str
    data_address: str | None
    network: str | None
    slots: int | None
    devices: tuple[int, ...] | None
    facts: HostFacts


@dataclass(frozen=True, slots=True)
class Share:
    """What one host takes on: so many trainers, with these devices (positions, one each, or none)."""

    count: int
    devices: tuple[int, ...] = ()
    kind: str = "cpu"


class Unfit(Exception):
    """A host can't take part in this run; the text is the reason."""


def visible_devices(view: HostView) -> tuple[int, ...]:
    """Positions of the accelerators that trainers may use: inside the host's own *_VISIBLE_DEVICES where that is set.

    Raises:
        Unfit: a device was chosen, in the inventory or by --hosts, that the host does not have.
    """
    kind, count = view.facts.device_kind, len(view.facts.devices)
    listed = view.facts.variable(VISIBLE.get(kind, ""))
    if listed is not None and kind != "cpu":
        entries = [entry.strip() for entry in listed.split(",")]
        if "-1" in entries:  # CUDA stops reading at the first entry that is no device
            entries = entries[: entries.index("-1")]
        count = len([entry for entry in entries if entry])
    if view.devices is None:
        return tuple(range(count))
    missing = [device for device in view.devices if device >= count]
    if missing:
        seen = f"{count} can be seen, counted from 0" if count else "none can be seen"
        raise Unfit(f"expected devices of this host ({seen}), found {missing[0]}")
    return view.devices


def count_trainers(view: HostView, nproc: int | str | None) -> int:
    """How many trainers the host runs.

    Args:
        nproc: a number, "cpu", "gpu", "auto", or None for the host's slots and else "auto".

    Raises:
        Unfit: "gpu" on a host without one.
    """
    if isinstance(nproc, int):
        return nproc
    if nproc is None and view.slots is not None:
        return view.slots
    devices = visible_devices(view)
    if nproc == "gpu":
        if not devices:
            problem = view.facts.device_problem or "no accelerator found"
            raise Unfit(f"expected a GPU for --nproc-per-node gpu: {problem}")
        return len(devices)
    if nproc == "cpu" or not devices:
        return view.facts.cpus
    return len(devices)


def share_of(view: HostView, nproc: int | str | None) -> Share:
    """A host's share when nothing is asked for but a number of trainers.

    Raises:
        Unfit: as count_trainers and visible_devices.
    """
    devices = visible_devices(view)
    kind = view.facts.device_kind if devices else "cpu"
    return Share(count_trainers(view, nproc), devices, kind)


def usable_addresses(view: HostView) -> list[str]:
    """The host's addresses on the network that was asked for; all of them where none was.

    Raises:
        Unfit: --network or the inventory's network fits none.
    """
    own = _interfaces(view)
    if view.network is None:
        return [address for _, address in own]
    usable = [address for name, address in own if _is_in(name, address, view.network)]
    if not usable:
        has = ", ".join(f"{name} {address}" for name, address in own) or "none"
        raise Unfit(f"expected an address in network {view.network}, found {has}")
    return usable


def candidate_addresses(views: Sequence[HostView]) -> list[list[str]]:
    """For every host, the data addresses worth trying, best first.

    A configured address stands alone. Loopback counts only where all hosts share one network stack; an address that
    several hosts have (docker0) says nothing about either.

    Raises:
        Unfit: as usable_addresses.
    """
    share_stack = len({view.facts.netid for view in views}) == 1
    owners: dict[str, set[str]] = {}
    for view in views:
        for _, address in _interfaces(view):
            owners.setdefault(address, set()).add(view.facts.netid)
    found = []
    for view in views:
        if view.data_address is not None:
            found.append([view.data_address])
            continue
        usable = usable_addresses(view)
        first = [_plain(view.control), _plain(view.facts.ssh_address)]
        ordered = [a for a in dict.fromkeys(first) if a in usable] + [a for a in usable if a not in first]
        kept = [a for a in ordered if share_stack or (not _is_loopback(a) and len(owners[a]) == 1)]
        found.append(kept[:MAX_CANDIDATES])
    return found


def probers_of(host: int, count: int) -> list[int]:
    """Which hosts try a host's addresses."""
    if count < PROBE_ALL_BELOW:
        return [other for other in range(count) if other != host]
    return sorted({0, (host - 1) % count, (host + 1) % count} - {host})


def choose_address(
    view: HostView, candidates: Sequence[str], answers: Sequence[tuple[str, Mapping[str, str]]]
) -> tuple[str, str]:
    """(address, interface): the first candidate that every prober reached.

    Args:
        answers: (prober's name, address -> problem) of each prober.

    Raises:
        Unfit: there is none.
    """
    problems = []
    for address in candidates:
        bad = [f"{name}: {reach[address]}" for name, reach in answers if reach.get(address)]
        if not bad:
            return address, interface_of(view, address)
        problems.append(f"{address} ({bad[0]})")
    tried = "; ".join(problems) or "it has none beside loopback and ones that other hosts have too"
    raise Unfit(f"no address that the other hosts reach: {tried}")


def interface_of(view: HostView, address: str) -> str:
    """The interface that owns an address, "" where none does (a name, a translated address)."""
    plain = _plain(address)
    return next((name for name, own in _interfaces(view) if own == plain), "")


def _interfaces(view: HostView) -> list[tuple[str, str]]:
    return [(name, _plain(address)) for name, address in view.facts.interfaces]


def _plain(address: str) -> str:
    """An address in its one usual spelling; anything else as it is."""
    try:
        return str(ipaddress.ip_address(address.strip("[]")))
    except ValueError:
        return address


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_in(interface: str, address: str, network: str) -> bool:
    if "/" not in network and not network[:1].isdigit():
        return interface == network
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return interface == network
