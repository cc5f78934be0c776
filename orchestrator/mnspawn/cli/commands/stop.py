"""`mnspawn stop RUN`: ends a run, from anywhere."""

from dataclasses import replace
from typing import Annotated

import typer

from mnspawn.api.runs import KnownRun, ViewOptions, ViewResult
from mnspawn.cli import render
from mnspawn.cli.console import console_of
from mnspawn.cli.runs import (
    REACH,
    RunArgument,
    ViewWording,
    application,
    find_run,
    look,
    print_errors,
    say,
    takes_settings,
)
from mnspawn.cli.wording.run import counted
from mnspawn.errors import ExitStatus
from mnspawn.settings.table import Settings
from mnspawn_agent.protocol.checks import MAX_SECONDS

from .status import remembered_report

SUMMARY = "Stop a run on all its hosts: TERM, after a grace KILL; wait until nothing is left."
EPILOG = (
    "Without --grace, the run's own applies. Exit status: 0 when nothing of the run is left, even if it had ended"
    " before; 3 when hosts could not be reached or could not confirm it. Ctrl-C ends the wait, not the stop."
)
LOOK_LIMIT = 3.0  # seconds to connect within, where other hosts are to be stopped


@takes_settings(*REACH)
def stop(
    settings: Settings,
    run: RunArgument,
    kill: Annotated[bool, typer.Option("--kill", metavar="", help="Kill at once.")] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="SECONDS", min=0.0, max=MAX_SECONDS, help="Wait so long after TERM before KILL."
        ),
    ] = None,
) -> int:
    """Stop a run."""
    known = find_run(run, settings)
    before = look_before(known)
    ended = before.report if before.has_ended else remembered_report(known.run) if before.errors else None
    if ended is not None and all(host.is_confirmed for host in ended.hosts):
        say(f"run {known.run} had ended before: exit status {ended.exit_status}")
        return ExitStatus.OK
    if len(before.errors) == len(known.hosts):
        print_errors(before.errors)
        return ExitStatus.HOST_UNUSABLE
    patience = 0.0 if kill else known.grace if grace is None else grace
    console = console_of(settings, ViewWording(len(known.hosts), settings.verbose), takes_logs=False)
    seen = look(known, ViewOptions(streams=(), stop=patience, handle_signals=True), [console])
    assert seen is not None
    if seen.has_left and not seen.has_ended:
        say(f"run {known.run} is still being stopped", f"mnspawn status {known.run} shows its state")
        return ExitStatus.INTERRUPTED
    print_errors(seen.errors)
    unconfirmed = [host for host in seen.report.hosts if not host.is_confirmed or host.leftovers]
    if unconfirmed or seen.errors:
        render.print_summary(seen.report)
        return ExitStatus.HOST_UNUSABLE
    say(f"run {known.run} is stopped; nothing of it is left on {counted(len(known.hosts), 'host')}")
    return ExitStatus.OK


def look_before(known: KnownRun) -> ViewResult:
    """Return the state of the run. A host that is slow to connect to does not delay stopping the others."""
    hurried = replace(known, ssh=replace(known.ssh, connect_timeout=min(known.ssh.connect_timeout, LOOK_LIMIT)))
    seen = look(hurried, ViewOptions(streams=(), is_following=False))
    if seen is not None and len(seen.errors) == len(known.hosts):  # there are no others
        seen = look(known, ViewOptions(streams=(), is_following=False))
    assert seen is not None
    return seen


app = application("stop", SUMMARY, stop, EPILOG)
