"""How runs and their ranks stand, in words and as JSON: for ps, status and report. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mnspawn.api.runs import KnownRun
from mnspawn.report import PHASES, HostOutcome, RankOutcome, RunReport

from .run import counted, duration, ranks_of, shortened, summary, undead, visible
from .tables import columns


def began(time: float) -> str:
    """A moment for people, local time."""
    return datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S") if time else "-"


def state_of_rank(rank: RankOutcome, has_ended: bool) -> str:
    """running, exit status 1, signal 9 (SIGKILL), stopped, not started, no news."""
    if rank.error is not None:
        return shortened(rank.cause)
    if rank.code is None:
        if rank.pid is None:
            return "not started"
        return "no news" if has_ended else "running"
    return f"stopped ({rank.cause})" if rank.stopped else rank.cause


def states_of_host(ranks: Sequence[RankOutcome], has_ended: bool) -> str:
    """running; or 2 running, 1 exit status 0."""
    counts = Counter(state_of_rank(rank, has_ended) for rank in ranks)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def ranks_by_host(known: KnownRun, report: RunReport) -> list[list[RankOutcome]]:
    """What is known of the ranks of each host."""
    by_number = {rank.rank: rank for rank in report.ranks}
    return [[by_number[number] for number in numbers if number in by_number] for numbers in known.ranks]


def overview(known: KnownRun) -> str:
    """4 ranks on 2 hosts: train.py --lr 0.1."""
    size = f"{counted(sum(known.world), 'rank')} on {counted(len(known.hosts), 'host')}"
    return f"{size}: {shortened(known.command_line)}"


def label(known: KnownRun) -> str:
    """1a2b3c4d, or 1a2b3c4d (its name)."""
    return f"{known.run} ({visible(known.name)})" if known.name else known.run


def status_lines(
    known: KnownRun, report: RunReport, has_ended: bool, problems: Mapping[str, str], keeper: str
) -> list[str]:
    """How a run stands, host by host; then why, when it did not end well.

    Arguments:
        problems: hosts that could not be asked, and why.
        keeper: who looks after it.
    """
    if has_ended:
        state = f"ended after {duration(report.seconds)}, exit status {report.exit_status}"
    else:
        state = f"began {began(known.began)}; {keeper}"
    lines = [f"run {label(known)}: {state}", f"  {overview(known)}", ""]
    rows: list[Sequence[str]] = [("HOST", "RANKS", "STATE")]
    for host, numbers, own in zip(report.hosts, known.ranks, ranks_by_host(known, report), strict=True):
        state = states_of_host(own, has_ended)
        if host.lost is not None:
            state = f"lost: {host.lost}"
        elif host.host in problems:
            state = problems[host.host]
        rows.append((host.host, ranks_of(numbers).partition(" ")[2], state))
    lines += columns(rows).splitlines()
    ending = summary(report) if has_ended else _failed_so_far(report)
    return [*lines, *([""] if ending else []), *ending]


def _failed_so_far(report: RunReport) -> list[str]:
    failed = [rank for rank in report.ranks if rank.has_failed]
    return [f"rank {rank.rank} failed: {shortened(rank.cause)} (host {visible(rank.host)})" for rank in failed]


def report_lines(known: KnownRun | None, report: RunReport) -> list[str]:
    """What happened: every host and every rank, in order; the end as it was reported when it came."""
    name = label(known) if known is not None else report.run
    lines = [
        f"run {name}: exit status {report.exit_status} after {duration(report.seconds)}: {shortened(report.reason)}"
    ]
    if known is not None:
        lines += [f"  {overview(known)}", f"  began {began(known.began)}"]
    has_started = any(rank.pid is not None for rank in report.ranks)
    silent = {host.host for host in report.hosts if host.lost is not None and has_started}
    rows: list[Sequence[str]] = [("RANK", "HOST", "PID", "RAN", "ENDED AT", "END")]
    for rank in report.ranks:
        rows.append(
            (
                str(rank.rank),
                rank.host,
                "-" if rank.pid is None else str(rank.pid),
                "-" if rank.seconds is None else duration(rank.seconds),
                "-" if rank.ended_at is None else duration(rank.ended_at),
                "no news" if rank.pid is None and rank.host in silent else _end_of(rank),
            )
        )
    lines += ["", *columns(rows).splitlines(), ""]
    lines += columns(_host_rows(report)).splitlines()
    ending = summary(report)
    return [*lines, *([""] if ending else []), *ending]


def _host_rows(report: RunReport) -> list[Sequence[str]]:
    """When each host reached each phase, as far as anybody saw it, and how it ended."""
    seen = [phase for phase in PHASES if any(phase in host.phases for host in report.hosts)]
    rows: list[Sequence[str]] = [("HOST", *(phase.upper() for phase in seen), "END")]
    for host in report.hosts:
        times = (duration(host.phases[phase]) if phase in host.phases else "-" for phase in seen)
        rows.append((host.host, *times, _end_of_host(host)))
    return rows


def _end_of(rank: RankOutcome) -> str:
    words = [state_of_rank(rank, has_ended=True)]
    if rank.outlived_term:
        words.append("TERM was not enough")
    if rank.is_disk_full:
        words.append("its disk was full")
    return ", ".join(words)


def _end_of_host(host: HostOutcome) -> str:
    if host.lost is not None:
        return f"lost: {host.lost}"
    words = []
    if host.swept:
        words.append(
            f"{counted(host.swept, 'process')} outside the ranks' groups ended".replace("processs", "processes")
        )
    if host.leftovers:
        words.append(undead(host.leftovers, host.reasons))
    return ", ".join(words) or ("nothing left" if host.is_confirmed else "not confirmed")


def known_json(known: KnownRun) -> dict[str, Any]:
    """A run for machines."""
    return {
        "run": known.run,
        "name": known.name,
        "program": dict(known.program),
        "began": known.began,
        "hosts": [
            {"host": host.name, "node_rank": index, "ranks": list(ranks)}
            for index, (host, ranks) in enumerate(zip(known.hosts, known.ranks, strict=True))
        ],
        "world_size": sum(known.world),
    }
