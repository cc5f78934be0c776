"""`mnspawn status RUN`: asks the hosts of a run for its state."""

from mnspawn.api.runs import KnownRun, ViewOptions, registry
from mnspawn.cli import render
from mnspawn.cli.reaching import JsonOption
from mnspawn.cli.runs import REACH, RunArgument, application, find_run, look, print_errors, takes_settings
from mnspawn.cli.wording.states import known_json, ranks_by_host, states_of_host, status_lines
from mnspawn.errors import ExitStatus
from mnspawn.report import RunReport
from mnspawn.settings.table import Settings

SUMMARY = "Show the state of a run, host by host, and why it ended."
EPILOG = "Exit status: 0 when all hosts of the run answered, however it ended; 3 when some did not."


@takes_settings(*REACH)
def status(settings: Settings, run: RunArgument, as_json: JsonOption = False) -> int:
    """Show the state of a run."""
    known = find_run(run, settings)
    seen = look(known, ViewOptions(streams=(), is_following=False))
    assert seen is not None
    report, has_ended, errors = seen.report, seen.has_ended, seen.errors
    if errors and not has_ended and (remembered := remembered_report(known.run)) is not None:
        report, has_ended, errors = remembered, True, {}  # nothing is left to ask
    keeper = keeper_of(known)
    if as_json:
        content = known_json(known) | {
            "state": "ended" if has_ended else "running" if len(errors) < len(known.hosts) else "unknown",
            "exit_status": report.exit_status if has_ended else None,
            "tender": registry().holder(known.run),
            "unreachable": {name: error.message for name, error in errors.items()},
            "report": report.describe() | ({} if has_ended else {"exit_status": None, "reason": None}),
        }
        for host, own in zip(content["hosts"], ranks_by_host(known, report), strict=True):
            host["state"] = states_of_host(own, has_ended)
        render.print_json(content)
    else:
        problems = {name: error.message for name, error in errors.items()}
        render.print_lines(status_lines(known, report, has_ended, problems, keeper))
        print_errors(errors)
    return ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK


def remembered_report(run: str) -> RunReport | None:
    """Return the report of a run that is kept here; None when there is none."""
    content = registry().report(run)
    try:
        return None if content is None else RunReport.read(content)
    except (TypeError, KeyError):  # written by another version
        return None


def keeper_of(known: KnownRun) -> str:
    """Return who looks after a run, as far as this machine knows."""
    pid = registry().holder(known.run)
    return f"looked after by process {pid} here" if pid is not None else "nobody on this machine looks after it"


app = application("status", SUMMARY, status, EPILOG)
