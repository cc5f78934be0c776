"""`mnspawn ps`: the runs that are known here, or those that hosts tell of."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mnspawn import api, compose
from mnspawn.cli import render
from mnspawn.cli.runs import REACH, JsonOption, application, asked_hosts, print_errors, registry, takes_settings
from mnspawn.cli.states import began, columns
from mnspawn.cli.words import counted, fold_hosts
from mnspawn.errors import ExitStatus
from mnspawn.settings import Settings

SUMMARY = "List runs: those started from this machine, or with --hosts those that hosts tell of."
EPILOG = (
    "STATE is as far as is known without asking: `running` while somebody on this machine looks after the run, `ended`"
    " with its exit status, or `unknown`: then `mnspawn status RUN` asks its hosts."
)
SHOWN = 20  # ended runs, without --all


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


def known_rows() -> list[Row]:
    """The runs that the registry of this machine knows."""
    known_runs = registry()
    rows = []
    for known in known_runs.known():
        report = known_runs.report(known.run)
        status = report.get("exit_status") if report is not None else None
        state = "ended" if report is not None else "running" if known_runs.tender(known.run) is not None else "unknown"
        hosts = tuple(host.name for host in known.hosts)
        rows.append(Row(known.run, known.name, state, status, known.began, hosts, sum(known.world), known.command_line))
    return rows


def rows_of(pods: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Row]:
    """The runs that pods belong to, the newest first. A pod: the host it is on, and what the host says of it."""
    runs: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for host, pod in pods:
        if pod["is_here"]:
            runs.setdefault(str(pod["run"]), []).append((host, pod))
    rows = []
    for run, own in runs.items():
        plan = own[0][1]["plan"]
        program = plan.get("program") or {}
        words = [str(program.get("target", "?")), *map(str, program.get("args", ()))]
        is_alive = any(pod["is_alive"] for _, pod in own)
        hosts = tuple(host for host, _ in sorted(own, key=lambda one: int(one[1]["node_rank"])))
        state = "running" if is_alive else "ended"
        ranks = sum(int(count) for count in plan.get("world") or ())
        rows.append(
            Row(run, plan.get("name"), state, None, float(plan.get("began") or 0.0), hosts, ranks, " ".join(words))
        )
    return sorted(rows, key=lambda row: -row.began)


def table(rows: Iterable[Row]) -> str:
    """For people."""
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
        ]
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
    if hosts:
        ssh = compose.ssh_of(settings)
        words = [("list",)] * len(hosts)
        answers = asyncio.run(api.ask(hosts, words, transport=settings.transport, ssh=ssh))
        rows = rows_of((answer.host, pod) for answer in answers for pod in answer.content or ())
        errors = {answer.host: answer.error for answer in answers if answer.error is not None}
        print_errors(errors)
        status = ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK
    else:
        rows = known_rows()
    ended = [row for row in rows if row.state == "ended"]
    hidden = [] if everything or as_json else ended[SHOWN:]
    kept = [row for row in rows if row not in hidden]
    if as_json:
        render.print_out(json.dumps({"runs": [shown(row) for row in kept]}, indent=2) + "\n")
    else:
        render.print_out(table(kept))
    if hidden:
        render.print_ours([f"mnspawn: {counted(len(hidden), 'older run')} not shown; --all shows them"])
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
