"""`mnspawn ps`: the runs that are known here, or those that hosts tell of."""

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from mnspawn.api import runs as api
from mnspawn.api.runs import KnownRun, Pod, PodStatus, ViewOptions
from mnspawn.cli import render
from mnspawn.cli.reaching import JsonOption
from mnspawn.cli.runs import REACH, application, asked_hosts, print_errors, registry, remember_end, say, takes_settings
from mnspawn.cli.wording.run import counted, fold_hosts
from mnspawn.cli.wording.states import began, columns
from mnspawn.core.pods import sources_of
from mnspawn.engine.look.watching import RunUnknown
from mnspawn.errors import ExitStatus, MnspawnError
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings
from mnspawn_agent.protocol.exits import as_shell_status

SUMMARY = "List runs: those started from this machine, or with --hosts those that hosts tell of."
EPILOG = (
    "STATE is `running`, or `ended` with its exit status. Without --hosts, hosts are asked, for three seconds at most,"
    " about runs that nobody here looks after and whose end was not seen here; `unknown` is what they don't tell of."
    " Lines are cut to the terminal's width, elsewhere where a cell is longer than 300 characters; --json has all."
    " With --hosts, an ended run has its exit status where its end was seen here, or all its hosts are asked and agree."
)
ASK_LIMIT = 3.0  # seconds for hosts to answer: a list is wanted at once
ASKED = 8  # runs at once, the newest: an SSH server takes no more newcomers at a time (MaxStartups)
HOSTS_REMEMBER = 14 * 86400  # seconds; then hosts have removed their folders
SHOWN = 20  # ended runs, without --all
NOT_STARTED = 127  # a rank's status, as a shell says it


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the list. `state` is running, ended or unknown; `exit_status` of an ended run where it is known."""

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


def known_rows(most: int | None) -> tuple[list[Row], int]:
    """The runs that this machine knows, with so many that have ended, and how many more there are, which are not read.

    Hosts are asked about those whose state nobody here knows.
    """
    known_runs = registry()
    runs = known_runs.ids()
    left_out = set() if most is None else set([run for run in runs if known_runs.has_ended(run)][most:])
    rows, unknown = [], []
    for known in known_runs.known(run for run in runs if run not in left_out):
        report = known_runs.report(known.run)
        status = report.get("exit_status") if report is not None else None
        state = "ended" if report is not None else "running" if known_runs.holder(known.run) is not None else "unknown"
        hosts = tuple(host.name for host in known.hosts)
        rows.append(Row(known.run, known.name, state, status, known.began, hosts, sum(known.world), known.command_line))
        if state == "unknown":
            unknown.append(known)
    found = asyncio.run(ask_hosts(unknown)) if unknown else {}
    return [replace(row, **found[row.run]) if row.run in found else row for row in rows], len(left_out)


async def ask_hosts(unknown: Sequence[KnownRun]) -> dict[str, dict[str, Any]]:
    """What hosts say of runs that nobody here has seen the end of, within a short while; by run, fields of its row."""
    found: dict[str, dict[str, Any]] = {}

    async def ask(known: KnownRun) -> None:
        ssh = replace(known.ssh, connect_timeout=min(known.ssh.connect_timeout, ASK_LIMIT))
        with suppress(MnspawnError):  # `status` tells what is wrong
            sight = await api.view(replace(known, ssh=ssh), (), ViewOptions(streams=(), is_following=False))
            if sight.has_ended:
                remember_end(known, sight.report)
                found[known.run] = {"state": "ended", "exit_status": sight.report.exit_status}
            elif any(rank.pid is not None and rank.code is None for rank in sight.report.ranks):
                found[known.run] = {"state": "running"}
            elif sight.errors and all(isinstance(error, RunUnknown) for error in sight.errors.values()):
                found[known.run] = {"state": "ended"}  # how is not known any more: a host has removed its folder

    young = [known for known in unknown if time.time() - known.began < HOSTS_REMEMBER]
    with suppress(TimeoutError):
        async with asyncio.timeout(ASK_LIMIT), asyncio.TaskGroup() as group:
            for known in young[:ASKED]:
                group.create_task(ask(known), name=f"ask about {known.run}")
    return found


def rows_of(pods: Iterable[tuple[str, Pod]]) -> list[Row]:
    """The runs that pods belong to, the newest first. A pod: the host it is on, and what the host says of it."""
    runs: dict[str, list[tuple[str, Pod]]] = {}
    for host, pod in pods:
        if pod.is_here:
            runs.setdefault(pod.run, []).append((host, pod))
    rows = []
    for run, told in runs.items():
        own = [told[position] for position in sources_of(told).values()]
        first = own[0][1]
        words = [str(first.program.get("target", "?")), *map(str, first.program.get("args", ()))]
        is_alive = any(pod.is_alive for _, pod in own)
        hosts = tuple(host for host, _ in own)
        state = "running" if is_alive else "ended"
        is_whole = len({pod.node_rank for _, pod in own}) == len(first.world)
        status = status_of([pod.status for _, pod in own]) if is_whole and not is_alive else None
        rows.append(Row(run, first.name, state, status, first.began, hosts, sum(first.world), " ".join(words)))
    return sorted(rows, key=lambda row: -row.began)


def status_of(pods: Sequence[PodStatus | None]) -> int | None:
    """The exit status of a run that has ended, from what its pods have written down; None where that does not say it:
    ranks that failed differently, a terminal that stopped it, a pod without a last word."""
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


def seen_here(row: Row) -> Row:
    """With the exit status that this machine has written down, if it has; it knows best."""
    report = registry().report(row.run) if row.state == "ended" else None
    return row if report is None else replace(row, exit_status=report.get("exit_status"))


def table(rows: Iterable[Row], width: int | None = None) -> str:
    """For people; cut to a width, else where a cell is very long."""
    head = ("RUN", "NAME", "STATE", "BEGAN", "RANKS", "HOSTS", "PROGRAM")
    return columns(
        [
            head,
            *(
                (
                    row.run,
                    row.name or "-",
                    row.shown_state,
                    began(row.began),
                    str(row.ranks),
                    fold_hosts(row.hosts),
                    row.command,
                )
                for row in rows
            ),
        ],
        elastic=[head.index(name) for name in ("NAME", "HOSTS", "PROGRAM")],
        width=width,
    )


@takes_settings(*REACH)
def ps(
    settings: Settings,
    everything: Annotated[
        bool, typer.Option("--all", "-a", metavar="", help=f"Not only the last {SHOWN} that ended.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """List runs."""
    hosts = asked_hosts(settings)
    status = ExitStatus.OK
    most = None if everything or as_json else SHOWN
    left_out = 0
    if hosts:
        ssh = to_request.ssh_of(settings)
        words = [("list",)] * len(hosts)
        answers = asyncio.run(api.ask(hosts, words, transport=settings.transport, ssh=ssh))
        listed = [(answer.host, answer.content) for answer in answers if answer.content is not None]
        told = rows_of((host, pod) for host, content in listed for pod in content.pods)
        for host, content in listed:
            for problem in content.problems:
                say(f"{host}: {problem}", "remove the folder there, if nothing in it is needed")
        rows = [seen_here(row) for row in told]
        errors = {answer.host: answer.error for answer in answers if answer.error is not None}
        print_errors(errors)
        status = ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK
    else:
        rows, left_out = known_rows(most)
        if unknown := [row.run for row in rows if row.state == "unknown"]:
            say(f"no answer about {counted(len(unknown), 'run')}", f"mnspawn status {unknown[0]} tells why")
    ended = [row for row in rows if row.state == "ended"]
    hidden = set() if most is None else {row.run for row in ended[most:]}
    kept = [row for row in rows if row.run not in hidden]
    if as_json:
        render.print_out(json.dumps({"runs": [shown(row) for row in kept]}, indent=2) + "\n")
    else:
        render.print_out(table(kept, render.width()))
    if left_out := left_out + len(hidden):
        render.print_ours([f"mnspawn: {counted(left_out, 'older run')} not shown; --all shows them"])
    return status


def shown(row: Row) -> dict[str, Any]:
    """For machines."""
    return {
        "run": row.run,
        "name": row.name,
        "state": row.state,
        "exit_status": row.exit_status,
        "began": row.began,
        "hosts": list(row.hosts),
        "world_size": row.ranks,
        "command": row.command,
    }


app = application("ps", SUMMARY, ps, EPILOG)
