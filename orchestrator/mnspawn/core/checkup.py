"""Finds what is wrong with a host, and what to do about it, from what it says of itself. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnspawn.errors import (
    AuthError,
    BootstrapError,
    ConnectTimeout,
    HostError,
    HostKeyError,
    PythonMissing,
    PythonTooOld,
    Unreachable,
)

from . import reachability, survey
from .facts import Cache, CheckupFacts, Logind, OwnName, Runs

CLOCK_LIMIT = 1.0  # seconds; more, and files, logs and certificates of hosts contradict each other
FREE_BYTES = 1 << 30  # all output of a run is kept on its hosts first
FREE_FILES = 1000
OPEN_FILES = 1024  # what Linux gives by default; data loaders and NCCL need hundreds
LOCKED_BYTES = 1 << 30  # RDMA locks the memory that it sends from
CHECKS = (
    "reach", "login", "python", "agent", "prelude", "folder", "disk", "clock", "limits", "logind", "name", "devices",
    "network",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a host.

    Attributes:
        check: one of CHECKS.
        message: what was expected and found; the same for all hosts with the same trouble.
        hint: what to do.
        detail: what differs from host to host.
        is_note: runs work there; other programs may trip over it.
    """

    host: str
    check: str
    message: str
    hint: str
    detail: str = ""
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a host's clock is ahead of ours, give or take; both in seconds."""

    offset: float
    uncertainty: float


def clock_of(samples: Sequence[tuple[float, float, float]]) -> Clock:
    """The clock of a host.

    Args:
        samples: at least one (our time when we asked, our time when the answer came, the host's time in it). The
            quickest answer says most: the host's time was somewhere between the first two.
    """
    asked, answered, theirs = min(samples, key=lambda sample: sample[1] - sample[0])
    return Clock(theirs - (asked + answered) / 2, (answered - asked) / 2)


def refusal(host: str, error: HostError) -> Finding:
    """Return the finding for a host that could not be asked."""
    kinds: tuple[tuple[type[HostError] | tuple[type[HostError], ...], str], ...] = (
        ((AuthError, HostKeyError), "login"),
        ((PythonMissing, PythonTooOld), "python"),
        (BootstrapError, "agent"),
        (Unreachable, "reach"),
    )
    check = next((name for kind, name in kinds if isinstance(error, kind)), "reach")
    silent = "is it up, and does a firewall drop packets? --connect-timeout gives it longer"
    otherwise = silent if isinstance(error, ConnectTimeout) else "see what `ssh -v` says of this host"
    return Finding(host, check, error.message, error.hint or otherwise)


def prelude_found(host: str, problem: str) -> Finding:
    """Return the finding for a prelude that fails; what it printed differs from host to host."""
    message, _, said = problem.partition("\n")
    hint = "try its lines there in bash; they are the inventory's, or those of --prelude"
    return Finding(host, "prelude", message, hint, "; ".join(said.splitlines()))


def examine(
    view: survey.HostView, more: CheckupFacts, clock: Clock | None, *, is_shared: bool = False
) -> list[Finding]:
    """Return everything that is wrong with a host by itself.

    Args:
        more: what it was only asked for a checkup.
        is_shared: all hosts share one network stack, where loopback is as good as any address.
    """
    return [
        *_folders(view.name, more.runs, more.cache),
        *_rehearsal(view.name, more),
        *_clock(view, clock),
        *_limits(view.name, more),
        *_logind(view.name, more.logind),
        *(() if is_shared else _own_name(view.name, more.own_name)),
        *_devices(view),
    ]


def _folders(host: str, runs: Runs, cache: Cache) -> Iterator[Finding]:
    if not runs.place:
        hint = "give this account a writable home, /var/tmp or /tmp"
        yield Finding(host, "folder", "no folder can hold a run", hint, runs.problem)
        return
    if runs.place != runs.preferred:
        message = f"{runs.preferred} can't be used ({runs.problem}): runs are kept in {runs.place}"
        hint = "make the home writable, or set XDG_STATE_HOME for this account to a folder that is"
        yield Finding(host, "folder", message, hint, is_note=True)
    if not cache.place:
        message = "no folder can keep the agent: it is sent anew for every run"
        yield Finding(host, "folder", message, "make ~/.cache or /var/tmp writable", is_note=True)
    elif cache.place != cache.preferred and runs.place == runs.preferred:  # else that was said above
        message = f"the agent can't be kept in {cache.preferred}: it is kept in {cache.place}"
        hint = "make that folder writable by this account, and by nobody else"
        yield Finding(host, "folder", message, hint, is_note=True)
    if runs.free < FREE_BYTES:
        message = f"less than {FREE_BYTES >> 30} GiB is free in {runs.place}, where runs are kept"
        hint = "make room: `mnspawn clean` removes what is left of old runs"
        yield Finding(host, "disk", message, hint, f"{runs.free / (1 << 20):.0f} MiB")
    if 0 <= runs.free_files < FREE_FILES:
        message = f"hardly any files can be made in {runs.place}"
        hint = "remove files: the file system has no inodes left"
        yield Finding(host, "disk", message, hint, f"{runs.free_files} left")


def _rehearsal(host: str, more: CheckupFacts) -> Iterator[Finding]:
    hints = {
        "folder": ("folder", "look at the limits, the umask and the quota of this account"),
        "processes": ("limits", "raise nproc in /etc/security/limits.conf, or TasksMax in systemd; end what is left"),
        "ports": ("network", "end what holds these ports on the host"),
    }
    for kind, problem in more.rehearsal:
        check, hint = hints[kind]
        yield Finding(host, check, problem, hint)


def _clock(view: survey.HostView, clock: Clock | None) -> Iterator[Finding]:
    if clock is not None and abs(clock.offset) - clock.uncertainty > CLOCK_LIMIT:
        message = f"its clock is more than {CLOCK_LIMIT:g} s away from this machine's"
        hint = "let chrony or another NTP client set the clock (`timedatectl` says whether one does)"
        detail = f"{abs(clock.offset):.1f} s {'ahead' if clock.offset > 0 else 'behind'}"
        yield Finding(view.name, "clock", message, hint, detail)


def _limits(host: str, more: CheckupFacts) -> Iterator[Finding]:
    soft, hard = more.nofile
    if 0 <= soft < OPEN_FILES:
        message = f"a process may open fewer than {OPEN_FILES} files (ulimit -n)"
        most = "any number is" if hard < 0 else f"{hard} are"
        hint = f"raise nofile in /etc/security/limits.conf, or in sshd's unit; {most} allowed at most now"
        yield Finding(host, "limits", message, hint, f"{soft} files")
    soft, _ = more.memlock
    if more.rdma and 0 <= soft < LOCKED_BYTES:
        message = "there is RDMA, but a process may lock little memory (ulimit -l)"
        hint = "set memlock to unlimited in /etc/security/limits.conf, or LimitMEMLOCK=infinity in sshd's unit"
        yield Finding(host, "limits", message, hint, f"{soft >> 10} KiB")


def _logind(host: str, logind: Logind) -> Iterator[Finding]:
    if logind.kills:
        user, place = logind.user, logind.place
        message = f"logind kills what {user} leaves running ({place}: KillUserProcesses): detached runs would end"
        yield Finding(host, "logind", message, f"loginctl enable-linger {user}, or KillUserProcesses=no")


def _own_name(host: str, own: OwnName) -> Iterator[Finding]:
    if own.problem:
        message = f"its own name does not resolve ({own.problem})"
        hint = "add the host's name and its address to /etc/hosts there, or to DNS"
        yield Finding(host, "name", message, hint, own.name)
    elif own.addresses and all(survey.is_loopback(address) for address in own.addresses):
        message = "its own name resolves to loopback: programs that announce their host by it are not found by others"
        hint = "name the host's real address in /etc/hosts there, in place of 127.0.1.1"
        yield Finding(host, "name", message, hint, ", ".join(own.addresses), is_note=True)


def _devices(view: survey.HostView) -> Iterator[Finding]:
    problem = view.facts.device_problem
    try:
        found = survey.view_devices(view)
    except survey.Unfit as exc:
        yield Finding(view.name, "devices", str(exc), "correct the devices in the inventory")
        found = None
    if problem:
        is_note = view.facts.is_device_doubtful
        message = f"there {'may be' if is_note else 'are'} accelerators that can't be used ({problem})"
        hint = "look with nvidia-smi on the host: the driver and its library must be of one version"
        if view.facts.lost_devices:
            hint = "look with nvidia-smi and dmesg on the host; most lost devices need a reset of the host"
        yield Finding(view.name, "devices", message, hint, is_note=is_note)
    if found is not None and found.list_problem:
        yield Finding(view.name, "devices", found.list_problem, "correct the variable where the host sets it")


def fault_found(fault: reachability.Fault, names: Sequence[str], address: str, ports: Sequence[int]) -> Finding:
    """Return the finding for a host that others don't reach, or that does not reach others.

    Args:
        names: of the hosts, by the fault's numbers.
        address: at which it was tried.
    """
    hint = (
        f"let TCP between hosts through the firewall, at {ports[0]} and above and at {ports[1]}-32767;"
        " or name a network that joins them: network or data_address in the inventory, or --network"
    )
    if fault.unreached_by:
        whom = [names[miss.prober] for miss in fault.unreached_by]
        message = "it and other hosts do not reach each other" if fault.not_reaching else "other hosts do not reach it"
        detail = f"at {address}: {fault.unreached_by[0].problem}, from {_few(whom)}"
    else:
        whom = [names[miss.target] for miss in fault.not_reaching]
        message = "it does not reach other hosts"
        detail = f"{_few(whom)}: {fault.not_reaching[0].problem}"
    return Finding(names[fault.host], "network", message, hint, detail)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} others" if len(names) > 4 else ", ".join(names)
