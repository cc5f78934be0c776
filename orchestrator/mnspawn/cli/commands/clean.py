"""`mnspawn clean`: removes leftovers of dead runs and old run folders from hosts."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnspawn.api import runs as api
from mnspawn.api.runs import registry
from mnspawn.cli import render
from mnspawn.cli.reaching import HostsArgument, JsonOption
from mnspawn.cli.runs import REACH, application, asked_hosts, print_errors, takes_settings
from mnspawn.cli.wording.tables import columns
from mnspawn.cli.wording.time import parse_span
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings

if TYPE_CHECKING:
    from mnspawn_inventory import Host

SUMMARY = "End what dead runs left on hosts, and remove old run folders there."
EPILOG = (
    "Touches only your own runs whose agent is gone, and only processes that carry the id of such a run. Without HOSTS,"
    " cleans the hosts of all runs known here. Exit status: 0; 3 when hosts did not answer or processes would not die."
)


@takes_settings(*REACH)
def clean(
    settings: Settings,
    hosts_argument: HostsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only show what would be done.")] = False,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="SPAN", help="Remove folders of runs that ended so long ago: 12h, 7d, 0."),
    ] = "7d",
    as_json: JsonOption = False,
) -> int:
    """Clean hosts."""
    age = parse_span(older_than, "--older-than")
    hosts = hosts_to_clean(settings)
    words = [("clean", f"{age:g}", "dry" if dry_run else "do")] * len(hosts)
    ssh = to_request.ssh_of(settings)
    answers = asyncio.run(api.ask(hosts, words, transport=settings.transport, ssh=ssh))
    errors = api.errors_of(answers)
    actions = [{"host": answer.host, **action.describe()} for answer in answers for action in answer.content or ()]
    if as_json:
        content = {"is_dry": dry_run, "actions": actions, "unreachable": {n: e.message for n, e in errors.items()}}
        render.print_json(content)
    elif actions:
        render.print_out(table(actions, dry_run))
    else:
        render.print_ours(["mnspawn: nothing to clean"])
    print_errors(errors)
    undead = any(action.get("leftovers") for action in actions)
    return ExitStatus.HOST_UNUSABLE if errors or undead else ExitStatus.OK


def hosts_to_clean(settings: Settings) -> "tuple[Host, ...]":
    """The hosts that the command line names; else those of the runs known here.

    Raises:
        UsageError: there are none.
    """
    if found := asked_hosts(settings):
        return found
    known = {(host.name, host.endpoint): host for run in registry().known() for host in run.hosts}
    from mnspawn_inventory.select import with_unique_names

    if not known:
        raise UsageError("no hosts to clean", hint="mnspawn clean a,b")
    return with_unique_names(list(known.values()))


def table(actions: list[dict[str, Any]], is_dry: bool) -> str:
    """For people."""
    rows = [("HOST", "RUN", "WOULD BE DONE" if is_dry else "DONE")]
    for action in actions:
        done = []
        if action["ended"]:
            done.append(f"{'end' if is_dry else 'ended'} processes {' '.join(str(pid) for pid in action['ended'])}")
        if action.get("leftovers"):
            done.append(f"would not die: {' '.join(str(pid) for pid in action['leftovers'])}")
        if action["is_removed"]:
            done.append(f"{'remove' if is_dry else 'removed'} {action['path']}")
        rows.append((action["host"], action["run"], "; ".join(done)))
    return columns(rows)


app = application("clean", SUMMARY, clean, EPILOG)
