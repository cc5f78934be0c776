"""`mnspawn report RUN`: shows what happened, rank by rank."""

from mnspawn.api.runs import ViewOptions
from mnspawn.cli import render
from mnspawn.cli.reaching import JsonOption
from mnspawn.cli.runs import (
    REACH,
    RunArgument,
    application,
    asked_hosts,
    find_run,
    look,
    print_errors,
    say,
    takes_settings,
)
from mnspawn.cli.wording.states import known_json, report_lines
from mnspawn.errors import ExitStatus
from mnspawn.settings.table import Settings

from .status import remembered_report

SUMMARY = "Show what happened in a run: every rank, every host, the first failure."
EPILOG = (
    "The report of a run whose end was seen here is kept here; for other runs, the hosts are asked. RAN is how long a"
    " rank ran; ENDED AT counts from the start of the run. Exit status: 0; 3 when hosts that are needed did not answer."
)


@takes_settings(*REACH)
def report(settings: Settings, run: RunArgument, as_json: JsonOption = False) -> int:
    """Show what happened in a run."""
    known = find_run(run, settings)
    found = None if asked_hosts(settings) else remembered_report(known.run)
    status, has_ended = ExitStatus.OK, True
    if found is None:
        seen = look(known, ViewOptions(streams=(), is_following=False))
        assert seen is not None
        found, has_ended = seen.report, seen.has_ended
        print_errors(seen.errors)
        status = ExitStatus.HOST_UNUSABLE if seen.errors else ExitStatus.OK
    if as_json:
        content = known_json(known) | {"has_ended": has_ended, "report": found.describe()}
        render.print_json(content)
    elif has_ended:
        render.print_lines(report_lines(known, found))
    elif status == ExitStatus.OK:
        say(f"run {known.run} has not ended", f"mnspawn status {known.run} shows its state")
    return status


app = application("report", SUMMARY, report, EPILOG)
