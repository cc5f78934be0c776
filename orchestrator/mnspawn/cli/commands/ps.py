"""`mnspawn ps`: lists the runs that are known here, or those that hosts report."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from mnspawn.api import runs as api
from mnspawn.api.listing import RunSummary, seen_here, summaries, summaries_of
from mnspawn.cli import render
from mnspawn.cli.reaching import JsonOption
from mnspawn.cli.runs import REACH, application, asked_hosts, print_errors, say, takes_settings
from mnspawn.cli.wording.run import counted, fold_hosts
from mnspawn.cli.wording.states import began
from mnspawn.cli.wording.tables import columns
from mnspawn.errors import ExitStatus
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings

SUMMARY = "List runs: those started from this machine, or with --hosts those that the hosts know."
EPILOG = (
    "STATE is `running`, `ended` with the exit status, or `unknown`. Without --hosts, ps asks hosts only about runs"
    " that no process here looks after and whose end was not seen here, and waits three seconds at most; what they do"
    " not answer is `unknown`. With --hosts, the exit status of an ended run is shown if its end was seen here, or if"
    " all its hosts are asked and agree. Lines are cut to the terminal's width, elsewhere cells to 300 characters;"
    " --json shows all."
)
SHOWN = 20  # ended runs, without --all


def table(rows: Iterable[RunSummary], width: int | None = None) -> str:
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
        bool, typer.Option("--all", "-a", metavar="", help=f"List all ended runs, not only the last {SHOWN}.")
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
        found = summaries_of((host, pod) for host, content in listed for pod in content.pods)
        for host, content in listed:
            for problem in content.problems:
                say(f"{host}: {problem}", "remove the folder there, if nothing in it is needed")
        rows = [seen_here(row) for row in found]
        errors = api.errors_of(answers)
        print_errors(errors)
        status = ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK
    else:
        rows, left_out = summaries(most)
        if unknown := [row.run for row in rows if row.state == "unknown"]:
            say(f"no answer about {counted(len(unknown), 'run')}", f"mnspawn status {unknown[0]} tells why")
    ended = [row for row in rows if row.state == "ended"]
    hidden = set() if most is None else {row.run for row in ended[most:]}
    kept = [row for row in rows if row.run not in hidden]
    if as_json:
        render.print_json({"runs": [shown(row) for row in kept]})
    else:
        render.print_out(table(kept, render.width()))
    if left_out := left_out + len(hidden):
        render.print_ours([f"mnspawn: {counted(left_out, 'older run')} not shown; --all shows them"])
    return status


def shown(row: RunSummary) -> dict[str, Any]:
    """Print JSON."""
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
