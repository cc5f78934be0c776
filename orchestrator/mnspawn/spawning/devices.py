"""Decides which devices each host gives to a spawned function, by what it has and by Paddle's or torch's rule. Pure."""

from collections.abc import Callable, Sequence
from functools import partial

from mnspawn.core.survey import VISIBLE, HostView, Share, Unfit, count_workers, view_devices
from mnspawn.errors import OptionError, PlanRefused

from .errors import DeviceError

BACKENDS = ("nccl", "gloo", "bkcl", "auto", "heter", "xccl", "flagcx")  # words that Paddle knows
KIND_OF = {"nccl": "gpu", "bkcl": "xpu"}
Rule = Callable[[Sequence[HostView]], list[Share]]  # from what all hosts have to what each of them gives


def check_backend(backend: str) -> str:
    """Return the backend. Raises OptionError: Paddle would not take it either."""
    if backend not in BACKENDS:
        raise OptionError(
            f"paddle.distributed initialize error, backend argument can only be one of "
            f"{', '.join(repr(word) for word in BACKENDS)}, but got {backend!r}"
        )
    if backend in ("heter", "flagcx"):
        raise OptionError(f"backend must be one of 'gloo, nccl, bkcl, xccl', found {backend!r}")
    return backend


def check_selected(option: str, selected: tuple[str, ...], nprocs: int) -> None:
    """Raise OptionError unless as many devices as processes are selected."""
    if nprocs != -1 and len(selected) != nprocs:
        raise OptionError(
            f"The number of selected devices({len(selected)}) is not equal to the number of spawn processes({nprocs}),"
            f" please ensure that the correct `nprocs` and `{option}` arguments are passed."
        )


def rule(nprocs: int, backend: str, selected: tuple[str, ...]) -> Rule:
    """Paddle's rule.

    Args:
        nprocs: per host; -1 for the host's slots, else one per device, else one per CPU.
        backend: checked.
        selected: absolute ids of the devices to use; () for the first that are visible.
    """
    return partial(_share_out, partial(_share, nprocs, backend, selected))


def any_devices(nprocs: int) -> Rule:
    """torch's rule: so many processes on each host, which choose devices themselves."""
    return partial(_share_out, partial(_share_all, nprocs))


def _share_out(share_of: Callable[[HostView], Share], views: Sequence[HostView]) -> list[Share]:
    """Raises DeviceError, OptionError: a host does not have what was asked for. PlanRefused: as `survey` says."""
    shares, unfit = [], []
    for view in views:
        try:
            shares.append(share_of(view))
        except Unfit as exc:
            unfit.append((view.name, str(exc)))
    if unfit:
        raise PlanRefused(unfit)
    return shares


def _share_all(nprocs: int, view: HostView) -> Share:
    devices = view_devices(view)
    return Share(nprocs, devices.usable, view.facts.device_kind if devices.usable else "cpu", not devices.problem)


def _share(nprocs: int, backend: str, selected: tuple[str, ...], view: HostView) -> Share:
    has = view.facts.device_kind
    if backend == "gloo":
        return Share(_cpu_count(view) if nprocs == -1 else nprocs, is_asked=True)
    devices = view_devices(view)
    is_lost = bool(devices.problem) and devices.is_certain
    wanted = KIND_OF.get(backend, "gpu" if backend == "auto" and has == "cpu" else has)
    if backend == "auto" and has == "cpu" and not selected and not is_lost:
        return Share(_cpu_count(view) if nprocs == -1 else nprocs)
    if backend == "xccl" and has in ("cpu", "gpu", "xpu"):
        raise DeviceError(f"{view.name}: expected a custom device for backend xccl, found {has}")
    positions = devices.usable if wanted == has else ()
    variable = VISIBLE.get(wanted, f"FLAGS_selected_{wanted}s")
    if selected:
        check_selected(f"{wanted}s", selected, nprocs)
        return Share(len(selected), _positions_of(selected, positions, wanted, variable, view), wanted)
    if nprocs == -1:
        count = (view.slots or len(positions)) if positions else 1
    else:
        count = nprocs
    if len(positions) < count:
        more = f" {devices.problem}; backend='gloo' uses none." if devices.problem else ""
        raise DeviceError(
            f"{view.name}: the number of visible devices({len(positions)}) is less than the number of spawn "
            f"processes({count}), please ensure that the correct `nprocs` argument is passed or the environment "
            f"variable `{variable}` is correctly configured.{more}"
        )
    return Share(count, positions[:count], wanted)


def _cpu_count(view: HostView) -> int:
    return count_workers(view, "cpu" if view.slots is None else None)


def _positions_of(
    selected: tuple[str, ...], positions: tuple[int, ...], kind: str, variable: str, view: HostView
) -> tuple[int, ...]:
    """The positions of devices, named by absolute ids, in the host's list of visible devices."""
    listed = view.variable(variable)
    count = len(view.facts.devices) + len(view.facts.lost_devices)
    every = [entry.strip() for entry in listed.split(",")] if listed else [str(number) for number in range(count)]
    problem = view_devices(view).problem
    usable = [every[position] for position in positions if position < len(every)]
    for card in selected:
        if card not in usable:
            raise OptionError(
                f"{view.name}: The selected {kind} card {card} cannot found in {variable} "
                f"({','.join(usable)}).{problem and f' {problem}'}"
            )
    return tuple(every.index(card) for card in selected)
