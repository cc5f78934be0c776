"""`mnspawn attach RUN`: returns a terminal to a run, with its output and Ctrl-C."""

from contextlib import ExitStack
from typing import Annotated

import typer

from mnspawn.api import runs as api
from mnspawn.api.runs import KnownRun, Listener, ViewOptions, ViewResult, registry
from mnspawn.cli import render
from mnspawn.cli.console import console_of, keepers_of
from mnspawn.cli.runs import (
    REACH,
    SHOW,
    RunArgument,
    ViewWording,
    application,
    find_run,
    look,
    print_errors,
    say_forgotten,
    takes_settings,
)
from mnspawn.output.copies import LocalCopies
from mnspawn.settings.table import Settings

from .logs import has_times
from .run import say_detached

SUMMARY = "Return to a run: follow its output, see its end, stop it with Ctrl-C."
EPILOG = (
    "Ctrl-C stops all ranks, a second one kills them; Ctrl-\\ detaches the run again. While you are attached, a failing"
    " rank or a lost host stops all ranks. Several people can attach. Exit status: that of the run; 0 after Ctrl-\\."
)
LINES = 20


@takes_settings("ranks", "events", *SHOW, *REACH)
def attach(
    settings: Settings,
    run: RunArgument,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", min=0, help="Begin with N lines of each stream.")
    ] = LINES,
    everything: Annotated[bool, typer.Option("--all", "-a", metavar="", help="Begin with the first line.")] = False,
) -> int:
    """Return to a run."""
    known = find_run(run, settings, misses_one=False)
    options = ViewOptions(
        tail=None if everything or settings.log_dir is not None else lines,
        has_times=has_times(settings),
        is_in_charge=True,
        handle_signals=True,
    )
    console = console_of(settings, ViewWording(len(known.hosts), settings.verbose))
    console.expect(sum(known.world))
    listeners: list[Listener] = [console, *keepers_of(settings)]
    for listener in listeners:
        if isinstance(listener, LocalCopies):
            listener.begin(known.run, sum(known.world))
    seen = in_charge(known, options, listeners)
    if seen.has_left and not seen.has_ended:
        return say_detached(known.run, is_asked=False)
    print_errors(seen.errors)
    if seen.has_ended:
        render.print_summary(seen.report)
    return api.exit_status_of(seen)


def in_charge(known: KnownRun, options: ViewOptions, listeners: list[Listener]) -> ViewResult:
    """Follow a run, and take charge of it on this machine unless another process has."""
    known_runs = registry()
    with ExitStack() as stack:
        try:
            if not known_runs.knows(known.run):
                known_runs.remember(known)
            stack.enter_context(known_runs.hold(known.run))
        except OSError as exc:
            say_forgotten(exc)
        seen = look(known, options, listeners)
        assert seen is not None
    known_runs.prune()
    return seen


app = application("attach", SUMMARY, attach, EPILOG)
