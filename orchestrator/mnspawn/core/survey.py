"""Derives from hosts' facts how many workers, which devices and which addresses a run uses. Pure."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import visible
from .facts import HostFacts

MAX_CANDIDATES = 4  # addresses tried per host; more interfaces than that are told apart with --network
PROBE_ALL_BELOW = 9  # up to eight hosts everybody probes everybody; beyond, the first host and both neighbours
VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "xpu": "XPU_VISIBLE_DEVICES"}
WAYS_OUT = (
    "put that right, or leave the host out (--exclude); on CPUs it runs with --nproc-per-node cpu,"
    " or with any number and -x CUDA_VISIBLE_DEVICES="
)


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the survey sees it.

    Attributes:
        control: where SSH dials it, as the user wrote it.
        data_address, network: as configured, None where they are not.
        slots, devices: as configured.
        facts: of HELLO.
        env: variables that workers get beside or instead of the host's own, each with where it comes from.
    """

    name: str
    control: str
    data_address: str | None
    network: str | None
    slots: int | None
    devices: tuple[int, ...] | None
    facts: HostFacts
    env: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)

    def variable(self, name: str) -> str | None:
        """Return a variable's value as workers find it, if agents report it."""
        return self.env[name][0] if name in self.env else self.facts.variable(name)

    def origin(self, name: str) -> str:
        """Return where its value comes from, in brackets; "" for the host's own environment."""
        return f" ({self.env[name][1]})" if name in self.env else ""


@dataclass(frozen=True, slots=True)
class Share:
    """What one host takes on: a number of workers, and their devices (positions, one each, or none).

    `is_asked`: having none was asked for.
    """

    count: int
    devices: tuple[int, ...] = ()
    kind: str = "cpu"
    is_asked: bool = field(default=False, compare=False)


class Unfit(Exception):
    """A host can't take part in this run; the text is the reason."""


class DevicesUnusable(Unfit):
    """The host has accelerators, or seems to, and they can't be used as asked."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The accelerators that a host's workers see.

    Attributes:
        usable: positions inside the host's own *_VISIBLE_DEVICES where that is set, else in the driver's numbering.
        problem: why they are fewer than the host has or was told to use, "" where nothing is wrong.
        hidden: the variable that hides all of them on purpose, with its value, "" for none.
        is_certain: False where a problem may well be that there are no accelerators.
        list_problem: the part of it that is about *_VISIBLE_DEVICES.
    """

    usable: tuple[int, ...]
    problem: str = ""
    hidden: str = ""
    is_certain: bool = True
    list_problem: str = ""


def view_devices(view: HostView) -> DeviceView:
    """Return which accelerators workers may use, and what is wrong with others.

    Raises:
        Unfit: a device was chosen, in the inventory or by --hosts, that the host does not have.
    """
    facts = view.facts
    kind, count = facts.device_kind, len(facts.devices) + len(facts.lost_devices)
    lost = dict(facts.lost_devices)
    variable, problem, hidden = VISIBLE.get(kind if count else "gpu", ""), "", ""
    seen = tuple(range(count))
    value = view.variable(variable)
    if value is not None and (count or facts.device_problem):
        uuids = dict(zip(facts.working_devices, (device.uuid for device in facts.devices), strict=True))
        reading = visible.read(value, [uuids.get(number, "") for number in range(count)])
        seen = reading.devices
        said = f"{variable}={value!r}{view.origin(variable)}"
        problem = f"{said}: {reading.problem}" if reading.problem and count else ""
        hidden = said if reading.hides_all else ""
    chosen = tuple(range(len(seen))) if view.devices is None else view.devices
    missing = [device for device in chosen if device >= len(seen)]
    broken = [seen[at] for at in chosen if at < len(seen) and seen[at] in lost]
    reasons = [f"{kind.upper()} {number} can't be used ({lost[number]})" for number in broken[:8]]
    if missing:
        found = f"{len(seen)} can be seen, counted from 0" if seen else "none can be seen"
        more = problem or (f"{hidden} hides all" if hidden else facts.device_problem)
        raise Unfit(f"expected devices of this host ({found}), found {missing[0]}{more and f': {more}'}")
    if view.devices is not None and reasons:
        raise DevicesUnusable("; ".join(reasons))
    is_certain, list_problem = True, problem
    if not count and facts.device_problem and not hidden:
        problem, is_certain = facts.device_problem, not facts.is_device_doubtful
    usable = tuple(at for at in chosen if seen[at] not in lost)
    return DeviceView(usable, "; ".join(filter(None, [*reasons, problem])), hidden, is_certain, list_problem)


def may_have_accelerators(view: HostView) -> bool:
    """Return whether a program may find accelerators, including those of vendors whose devices are not counted."""
    found = view_devices(replace(view, devices=None))
    return bool(view.facts.accelerator_nodes or found.usable or (found.problem and found.is_certain))


def count_workers(view: HostView, nproc: int | str | None) -> int:
    """Return how many workers the host runs.

    Args:
        nproc: a number, "cpu", "gpu", "auto", or None for the host's slots and else "auto".

    Raises:
        Unfit: "gpu" on a host without one.
    """
    if isinstance(nproc, int):
        return nproc
    if nproc is None and view.slots is not None:
        return view.slots
    if nproc == "cpu":
        return view.facts.cpus
    found = view_devices(view)
    if found.usable:
        return len(found.usable)
    if nproc == "gpu":
        hidden = f"{found.hidden} hides all" if found.hidden else "no accelerator found"
        raise Unfit(f"expected a GPU for --nproc-per-node gpu: {found.problem or hidden}")
    return view.facts.cpus


def share_of(view: HostView, nproc: int | str | None) -> Share:
    """Return a host's share for a number of workers; `check_share` says whether it will do.

    Raises:
        Unfit: as count_workers and view_devices.
    """
    count = count_workers(view, nproc)
    if nproc == "cpu":
        return Share(count, is_asked=True)
    devices = view_devices(view).usable
    return Share(count, devices, view.facts.device_kind if devices else "cpu")


def check_share(view: HostView, share: Share) -> None:
    """Return when the host has the accelerators that its share needs: none falls back to CPUs unasked.

    Raises:
        DevicesUnusable: there are fewer accelerators than workers, because some can't be used.
    """
    seen = view_devices(view)
    if share.is_asked or share.count <= len(share.devices) or not seen.problem or not seen.is_certain:
        return
    found = f"expected an accelerator for each of {share.count} ranks, found {len(seen.usable)}"
    raise DevicesUnusable(f"{found if seen.usable else 'no accelerator can be used'}: {seen.problem}")


def remark_on(view: HostView, share: Share) -> str | None:
    """Return what a user should know of accelerators that a host's share does without, if anything."""
    found = view_devices(view)
    if share.is_asked:
        return None
    if share.count <= len(share.devices):
        return f"{found.problem}; {len(found.usable)} can be used" if found.problem else None
    reason = found.problem or (f"{found.hidden} hides all accelerators" if found.hidden else "")
    if not reason and found.usable:
        reason = f"{share.count} ranks for {len(found.usable)} accelerators"
    return f"{reason}: ranks are given none" if reason else None


def usable_addresses(view: HostView) -> list[str]:
    """Return the host's addresses on the network that was asked for; all of them where none was.

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
    """Return the data addresses worth trying for every host, best first.

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
        kept = [a for a in ordered if share_stack or (not is_loopback(a) and len(owners[a]) == 1)]
        found.append(kept[:MAX_CANDIDATES])
    return found


def probers_of(host: int, count: int) -> list[int]:
    """Return the hosts that try a host's addresses."""
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
    """Return the interface that owns an address, "" where none does (a name, a translated address)."""
    plain = _plain(address)
    return next((name for name, own in _interfaces(view) if own == plain), "")


def _interfaces(view: HostView) -> list[tuple[str, str]]:
    return [(name, _plain(address)) for name, address in view.facts.interfaces]


def _plain(address: str) -> str:
    """Return an address in its usual spelling; anything else as it is."""
    try:
        return str(ipaddress.ip_address(address.strip("[]")))
    except ValueError:
        return address


def is_loopback(address: str) -> bool:
    """Return whether an address, perhaps with a scope (fe80::1%eth0), is one of loopback; False for a name."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_in(interface: str, address: str, network: str) -> bool:
    if "/" not in network and not network[:1].isdigit():
        return interface == network
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return interface == network
