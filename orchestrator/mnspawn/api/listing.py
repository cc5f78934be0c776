"""Lists the runs that this machine started, and those that hosts have folders of. Prints nothing."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mnspawn.core.pods import Pod, PodStatus, sources_of
from mnspawn.engine.look.view import ViewOptions
from mnspawn.engine.look.watching import RunUnknown
from mnspawn.engine.registry import KnownRun
from mnspawn.errors import ExitStatus, MnspawnError
from mnspawn_agent.protocol.exits import as_shell_status

from . import runs

ASK_LIMIT = 3.0  # seconds for hosts to answer: a list is wanted at once
ASKED = 8  # runs at once, the newest: an SSH server takes no more newcomers at a time (MaxStartups)
HOSTS_REMEMBER = 14 * 86400  # seconds; then hosts have removed their folders
NOT_STARTED = 127  # a rank's status, as a shell says it


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run as `mnspawn ps` lists it.

    Attributes:
        state: running, ended or unknown.
        exit_status: of an ended run, where it is known.
    """

    run: str
    name: str | None
    state: str
    exit_status: int | None
    began: float
    hosts: tuple[str, ...]
    ranks: int
    command: str

    @property
    def shown_state(self) -> str:
        return self.state if self.exit_status is None else f"{self.state} ({self.exit_status})"


def summaries(most: int | None) -> tuple[list[RunSummary], int]:
    """List the runs that this machine knows; ask hosts about those whose state it does not know.

    Args:
        most: leave out ended runs beyond so many, without reading them; None lists all.

    Returns:
        The runs, and how many were left out.
    """
    registry = runs.registry()
    ids = registry.ids()
    left_out = set() if most is None else set([run for run in ids if registry.has_ended(run)][most:])
    rows, unknown = [], []
    for known in registry.known(run for run in ids if run not in left_out):
        report = registry.report(known.run)
        status = report.get("exit_status") if report is not None else None
        state = "ended" if report is not None else "running" if registry.holder(known.run) is not None else "unknown"
        hosts = tuple(host.name for host in known.hosts)
        size, words = sum(known.world), known.command_line
        rows.append(RunSummary(known.run, known.name, state, status, known.began, hosts, size, words))
        if state == "unknown":
            unknown.append(known)
    found = asyncio.run(ask_hosts(unknown)) if unknown else {}
    return [replace(row, **found[row.run]) if row.run in found else row for row in rows], len(left_out)


async def ask_hosts(unknown: Sequence[KnownRun]) -> dict[str, dict[str, Any]]:
    """Ask hosts about runs whose end was not seen here, within ASK_LIMIT.

    Returns:
        By run, the fields of RunSummary that are known now.
    """
    found: dict[str, dict[str, Any]] = {}

    async def ask(known: KnownRun) -> None:
        ssh = replace(known.ssh, connect_timeout=min(known.ssh.connect_timeout, ASK_LIMIT))
        with suppress(MnspawnError):  # `status` tells what is wrong
            seen = await runs.view(replace(known, ssh=ssh), (), ViewOptions(streams=(), is_following=False))
            if seen.has_ended:
                runs.remember_end(known, seen.report)
                found[known.run] = {"state": "ended", "exit_status": seen.report.exit_status}
            elif any(rank.pid is not None and rank.code is None for rank in seen.report.ranks):
                found[known.run] = {"state": "running"}
            elif seen.errors and all(isinstance(error, RunUnknown) for error in seen.errors.values()):
                found[known.run] = {"state": "ended"}  # how is not known any more: a host has removed its folder

    young = [known for known in unknown if time.time() - known.began < HOSTS_REMEMBER]
    with suppress(TimeoutError):
        async with asyncio.timeout(ASK_LIMIT), asyncio.TaskGroup() as group:
            for known in young[:ASKED]:
                group.create_task(ask(known), name=f"ask about {known.run}")
    return found


def summaries_of(pods: Iterable[tuple[str, Pod]]) -> list[RunSummary]:
    """Return the runs that pods belong to, the newest first.

    Args:
        pods: pairs of a host and a pod that it has.
    """
    by_run: dict[str, list[tuple[str, Pod]]] = {}
    for host, pod in pods:
        if pod.is_here:
            by_run.setdefault(pod.run, []).append((host, pod))
    rows = []
    for run, found in by_run.items():
        own = [found[position] for position in sources_of(found).values()]
        first = own[0][1]
        words = [str(first.program.get("target", "?")), *map(str, first.program.get("args", ()))]
        is_alive = any(pod.is_alive for _, pod in own)
        hosts = tuple(host for host, _ in own)
        state = "running" if is_alive else "ended"
        is_whole = len({pod.node_rank for _, pod in own}) == len(first.world)
        status = status_of([pod.status for _, pod in own]) if is_whole and not is_alive else None
        rows.append(RunSummary(run, first.name, state, status, first.began, hosts, sum(first.world), " ".join(words)))
    return sorted(rows, key=lambda row: -row.began)


def status_of(pods: Sequence[PodStatus | None]) -> int | None:
    """Return the exit status of an ended run by what its pods have written down.

    None if they don't say: ranks failed differently, a terminal stopped it, or a pod wrote nothing last.
    """
    done = [pod for pod in pods if pod is not None and pod.state == "done"]
    if len(done) < len(pods):
        return None
    workers = [worker for pod in done for worker in pod.workers]
    failed = [worker for worker in workers if not worker.stopped and worker.code != 0]
    if not failed and not any(worker.stopped for worker in workers):
        return ExitStatus.OK
    if not failed:
        causes = {pod.stop for pod in done}
        return ExitStatus.HOST_LOST if "orphaned" in causes else ExitStatus.TERMINATED if "asked" in causes else None
    statuses = {NOT_STARTED if one.code is None else as_shell_status(one.code) for one in failed}
    return statuses.pop() if len(statuses) == 1 else None


def seen_here(row: RunSummary) -> RunSummary:
    """Return the row with the exit status that this machine has written down, if there is one."""
    report = runs.registry().report(row.run) if row.state == "ended" else None
    return row if report is None else replace(row, exit_status=report.get("exit_status"))
