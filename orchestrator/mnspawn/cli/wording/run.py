"""Events, errors and reports in words. Pure: gives lines, writes nothing.

Whatever may come from a host passes through `visible`, so that no host can steer the user's terminal.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from mnspawn.errors import ExitStatus, HostKeyChanged, HostsUnusable, MnspawnError, PlanRefused
from mnspawn.events import (
    Event,
    HostConnected,
    HostFailed,
    HostLinkBack,
    HostLinkLost,
    HostLost,
    HostStopped,
    Notice,
    OutputLost,
    RunStarting,
    RunStopping,
    WorkerExited,
    WorkerStarted,
)
from mnspawn.output.fold import rank_set
from mnspawn.report import RankOutcome, RunReport, cause_of

from .folding import HostMessage, fold

RAISED_LINES = 5  # of an exception's message after the first
TAIL_LINES = 20  # of the failed worker's stderr: a traceback with its message
LONGEST_TEXT = 300  # of a command line or a host's error among words of ours, in characters; --json has them whole
LONGEST_LINE = 1000  # of a tail, in characters: a 64 KiB line would push everything else off the screen
ASKED_FOR = frozenset(
    (ExitStatus.HANGUP, ExitStatus.INTERRUPTED, ExitStatus.TERMINATED, ExitStatus.TIMED_OUT)
)  # no lost host is the reason
BARE_JAX = (  # what it says where no launcher that it knows has set variables (jax/_src/distributed.py)
    "ValueError: coordinator_address should be defined.",
    "ValueError: Number of processes must be defined.",
    "ValueError: The process id of the current process must be defined.",
)
_FOLDABLE = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_.+-]+@)?(?:[A-Za-z0-9_.:%+-]+|\[[0-9A-Fa-f:.%]+\]:[0-9]+)")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def visible(text: str) -> str:
    """The text on one line, with everything that a terminal would obey or hide written out as an escape."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else "\t" if sign == "\t" else sign.encode("unicode_escape").decode()
        for sign in text
    )


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """As `visible`, and cut where it is longer: `train.py --lr ...`."""
    shown = visible(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: max(0, most - 3)]}..."


def fold_hosts(names: Iterable[str]) -> str:
    """gpu-[01-12]."""
    from mnspawn_inventory.nodeset import fold  # late: most runs end without a list of hosts

    plain = list(dict.fromkeys(names))
    if not all(_FOLDABLE.fullmatch(name) for name in plain):  # names that no inventory has: its notation can't say them
        return visible(",".join(plain))
    return fold(plain)


def ranks_of(ranks: Sequence[int]) -> str:
    """rank 3, or ranks 0-2,5."""
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_set(ranks)}"


def counted(count: int, noun: str) -> str:
    """1 host, 2 hosts."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """0.03 s, 12.3 s, 5 min 02 s, 3 h 05 min."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def error_lines(error: MnspawnError) -> list[str]:
    """An error for people: `mnspawn: place: message`, and the next step under it. Equal ones of many hosts once."""
    if isinstance(error, HostsUnusable):
        return _grouped(
            HostMessage(one.host or "", one.message, one.hint, is_grave=isinstance(one, HostKeyChanged))
            for one in error.errors
        )
    if isinstance(error, PlanRefused):
        return _grouped(HostMessage(host, reason) for host, reason in error.refusals) + _hint(error.hint)
    return message_lines(str(error), error.hint)


def message_lines(message: str, hint: str | None = None) -> list[str]:
    """A message of ours; further lines of it are indented under the first."""
    first, *more = message.splitlines() or [""]
    return [f"mnspawn: {visible(first)}", *(f"    {visible(line)}" for line in more), *_hint(hint)]


def _hint(hint: str | None) -> list[str]:
    return [f"  hint: {visible(line)}" for line in hint.splitlines()] if hint else []


def _grouped(problems: Iterable[HostMessage]) -> list[str]:
    lines: list[str] = []
    for _, folded, _ in fold([(None, one) for one in problems], fold_hosts):
        first, *more = folded.message.splitlines() or [""]
        hosts, shown = folded.hosts, fold_hosts(folded.hosts)
        behind = "" if shown in first else f": {shown}"  # where each is named in what is said of it, all of them are
        named = f"{hosts[0]}: {first}" if len(hosts) == 1 else f"{len(hosts)} hosts: {first}{behind}"
        lines += message_lines(
            "\n".join([named, *more, *folded.each]), folded.hint if f"  hint: {folded.hint}" not in lines else None
        )
    return lines


class EventWording:
    """What the console says of a run on its way.

    Arguments:
        host_count: how many hosts take part, for the live line.
        verbosity: 0 tells what a user must know, 1 every step, 2 every worker's steps as well.
    """

    def __init__(self, host_count: int, verbosity: int = 0) -> None:
        self._host_count = host_count
        self._verbosity = verbosity
        self._connected = 0
        self._failed = 0

    def live(self, event: Event) -> str | None:
        """The progress of connecting; nothing once workers start or the run stops."""
        match event:
            case HostConnected():
                self._connected += 1
            case HostFailed():
                self._failed += 1
            case RunStarting() | RunStopping():
                return ""
            case _:
                return None
        return self.connecting()

    def connecting(self) -> str:
        """The live line while hosts are connected and prepared."""
        if self._connected == self._host_count:
            return f"mnspawn: preparing {counted(self._host_count, 'host')}"
        failed = f", {self._failed} failed" if self._failed else ""
        return f"mnspawn: connecting: {self._connected} of {counted(self._host_count, 'host')}{failed}"

    def line(self, event: Event) -> str | None:
        """One line about an event, if it deserves one at this verbosity."""
        text = self._important(event)
        if text is None and self._verbosity >= 1:
            text = _step(event)
        if text is None and self._verbosity >= 2:
            text = _worker_step(event)
        return None if text is None else f"mnspawn: {visible(text)}"

    def _important(self, event: Event) -> str | None:
        match event:
            case RunStopping(reason=reason, kill=kill):
                return f"{'killing' if kill else 'stopping'} all ranks: {reason}"
            case HostLinkLost(host=host, reason=reason):
                return f"{host}: link lost: {reason}; trying to get it back"
            case HostLinkBack(host=host, seconds=seconds):
                return f"{host}: link is back after {duration(seconds)}"
            case HostLost(host=host, reason=reason):
                return f"{host}: lost: {reason}"
            case HostStopped(host=host, leftovers=leftovers, reasons=reasons) if leftovers:
                return f"{host}: {undead(leftovers, reasons)}"
            case OutputLost(host=host, rank=rank, stream=stream, offset=offset, count=count):
                where = f"{stream.name.lower()} from offset {offset}"
                return f"{host}: rank {rank}: {count} bytes of {where} are lost"
            case Notice(host=host, text=text):
                return f"{host}: {text}" if host else text
        return None


def _step(event: Event) -> str | None:
    match event:
        case HostConnected(host=host, facts=facts, cached=cached):
            version, devices = facts.get("python_version"), facts.get("devices")
            python = ".".join(str(part) for part in version) if isinstance(version, list) else "?"
            count = len(devices) if isinstance(devices, list) else "?"
            agent = "cached" if cached else "sent"
            return f"{host}: connected: Python {python}, {facts.get('cpus', '?')} CPUs, {count} devices, agent {agent}"
        case HostFailed(host=host, message=message):
            return f"{host}: {message}"
        case RunStarting(run=run, world_size=world_size):
            return f"run {run}: starting {counted(world_size, 'rank')}"
        case WorkerExited(host=host, rank=rank, code=code, seconds=seconds, stopped=False) if code:
            return f"{host}: rank {rank}: {cause_of(code)} after {duration(seconds)}"
        case HostStopped(host=host, swept=swept) if swept:
            return f"{host}: ended {swept} processes that had left their worker's group"
        case HostStopped(host=host):
            return f"{host}: nothing of the run is left"
    return None


def _worker_step(event: Event) -> str | None:
    match event:
        case WorkerStarted(host=host, rank=rank, pid=pid):
            return f"{host}: rank {rank}: started, pid {pid}"
        case WorkerExited(host=host, rank=rank, code=code, seconds=seconds, stopped=stopped):
            return f"{host}: rank {rank}: {'stopped: ' if stopped else ''}{cause_of(code)} after {duration(seconds)}"
    return None


def summary(report: RunReport) -> list[str]:
    """The end of a run that did not go well; no line for one that did."""
    lines = _failure(report)
    lost_hosts: dict[str, list[str]] = {}
    for host in report.hosts:
        if host.lost is not None:
            lost_hosts.setdefault(host.lost, []).append(host.host)
    for lost, hosts in lost_hosts.items():
        names = set(hosts)
        ranks = [rank.rank for rank in report.ranks if rank.host in names]
        of_them = f" ({ranks_of(ranks)})" if ranks else ""
        lines += message_lines(f"{'host' if len(hosts) == 1 else 'hosts'} lost: {fold_hosts(hosts)}{of_them}: {lost}")
    if report.first_failure is None and report.exit_status and (not lines or report.exit_status in ASKED_FOR):
        lines = message_lines(report.reason) + lines
    if lines:
        lines += _consequences(report)
    for host in report.hosts:
        if host.leftovers:
            lines += message_lines(
                f"{host.host}: {undead(host.leftovers, host.reasons)}", "end them there before you start again"
            )
    unconfirmed = [host.host for host in report.hosts if not host.is_confirmed and not host.leftovers]
    if unconfirmed:
        lines += message_lines(
            f"not confirmed stopped: {fold_hosts(unconfirmed)}",
            "where its agent lives, what is left ends when orphan_grace is over, of a detached run when mnspawn stop"
            " reaches it; elsewhere mnspawn clean ends it; look at the hosts before you start again",
        )
    return lines


def _failure(report: RunReport) -> list[str]:
    first = report.first_failure
    if first is None:
        return []
    where = [f"host {first.host}", f"local rank {first.local_rank}"]
    if first.pid is not None:
        where.append(f"pid {first.pid}")
    if first.seconds is not None:
        where.append(f"ran {duration(first.seconds)}")
    lines = [f"mnspawn: rank {first.rank} failed: {shortened(first.cause)} ({visible(', '.join(where))})"]
    if first.is_disk_full:
        lines.append(
            f"  the disk of {visible(first.host)} that takes its output was full: what it wrote last can be lost"
        )
    if first.raised:
        lines += _recorded(first.raised)
    if first.tail:
        lines.append("  its last lines on stderr:")
        lines += [f"    {_tail_line(line)}" for line in first.tail[-TAIL_LINES:]]
    if any(line.strip() in BARE_JAX for line in first.tail):
        lines.append("  hint: jax.distributed.initialize() without arguments needs --contract default,jax")
    return lines + _hint(report.hint)


def _recorded(raised: str) -> list[str]:
    """What the rank said of its exception; a message of many lines is cut."""
    head, *more = raised.splitlines() or [""]
    left = len(more) - RAISED_LINES
    lines = [f"  torch recorded its error: {_tail_line(head)}", *(f"    {_tail_line(x)}" for x in more[:RAISED_LINES])]
    return [*lines, f"    ... ({counted(left, 'more line')})"] if left > 0 else lines


def _consequences(report: RunReport) -> list[str]:
    lines: list[str] = []
    others: dict[str, list[RankOutcome]] = {}
    for rank in report.ranks:
        if rank.has_failed and rank != report.first_failure:
            others.setdefault(shortened(rank.cause), []).append(rank)
    for why, failed in others.items():
        hosts = fold_hosts(rank.host for rank in failed)
        lines.append(f"  failed as well: {ranks_of([rank.rank for rank in failed])} on {hosts}: {why}")
    stopped = [rank.rank for rank in report.ranks if rank.stopped]
    if stopped:
        lines.append(f"  stopped because of it: {ranks_of(stopped)}")
    outlived = [rank.rank for rank in report.ranks if rank.stopped and rank.outlived_term]
    if outlived:
        lines.append(f"  TERM was not enough and KILL followed for {ranks_of(outlived)}")
    done = [rank.rank for rank in report.ranks if rank.code == 0 and not rank.stopped]
    if done:
        lines.append(f"  had ended well before: {ranks_of(done)}")
    return lines


def _tail_line(line: str) -> str:
    shown = _COLOURS.sub("", line.rstrip("\r\n"))
    shown = shown.rpartition("\r")[2]  # of a progress bar, its last state
    if len(shown) > LONGEST_LINE:
        shown = f"{shown[:LONGEST_LINE]}... ({len(shown) - LONGEST_LINE} more characters)"
    return visible(shown)


def undead(pids: Sequence[int], reasons: Sequence[str]) -> str:
    """still running: process 17 may not be signalled (it runs as uid 0), 18 hangs in the kernel (state D)."""
    processes = (f"{pid} {reason}".strip() for pid, reason in zip_longest(pids, reasons[: len(pids)], fillvalue=""))
    return f"still running: {'process' if len(pids) == 1 else 'processes'} {', '.join(processes)}"
