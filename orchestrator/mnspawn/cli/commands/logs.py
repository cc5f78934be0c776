"""`mnspawn logs RUN`: shows what the ranks wrote, while the run lasts and long after."""

import time
from functools import partial
from typing import Annotated

import typer

from mnspawn.api import runs as api
from mnspawn.api.runs import KnownRun, Listener, ViewOptions
from mnspawn.cli import render
from mnspawn.cli.console import console_of
from mnspawn.cli.runs import (
    REACH,
    SHOW,
    RunArgument,
    ViewWording,
    application,
    find_part,
    has_refused,
    look,
    print_errors,
    takes_settings,
)
from mnspawn.cli.wording.time import parse_when
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.events import Stream
from mnspawn.output.copies import LocalCopies
from mnspawn.settings.table import Settings

SUMMARY = "Show what a run's ranks wrote, from its hosts: while it runs and after."
EPILOG = (
    "Exit status: 0; with -f, that of the run if it ends meanwhile; 3 when hosts did not answer. The command never"
    " disturbs the run: Ctrl-C, a closed pipe, a full disk here (status 2) or a lost link end only the command."
)
FollowOption = Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Follow the output until the run ends.")]
LinesOption = Annotated[
    int | None, typer.Option("-n", "--lines", metavar="N", min=0, help="Show only the last N lines of each stream.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Show only what came since: 10m (ago), 14:30, 2026-01-31T12:00."),
]
OnlyHostsOption = Annotated[
    str | None, typer.Option("--only-hosts", metavar="HOSTS", help="Show only the ranks on these hosts of the run.")
]
OutOption = Annotated[bool, typer.Option("--stdout", metavar="", help="Show only standard output.")]
ErrOption = Annotated[bool, typer.Option("--stderr", metavar="", help="Show only standard error.")]
BOTH = (Stream.STDOUT, Stream.STDERR)


@takes_settings("ranks", *SHOW, *REACH)
def logs(
    settings: Settings,
    run: RunArgument,
    follow: FollowOption = False,
    lines: LinesOption = None,
    since: SinceOption = None,
    only_hosts: OnlyHostsOption = None,
    stdout: OutOption = False,
    stderr: ErrOption = False,
) -> int:
    """Show what a run's ranks wrote."""
    start = None if since is None else parse_when(since, "--since", time.time())
    return show_logs(settings, run, follow, lines, start, only_hosts, streams_of(stdout, stderr))


def streams_of(stdout: bool, stderr: bool) -> tuple[Stream, ...]:
    """Return the streams that --stdout and --stderr choose."""
    return BOTH if stdout == stderr else (Stream.STDOUT,) if stdout else (Stream.STDERR,)


def show_logs(
    settings: Settings,
    run: str,
    is_following: bool,
    lines: int | None,
    since: float | None,
    only_hosts: str | None,
    streams: tuple[Stream, ...],
) -> int:
    """Show what a run's ranks wrote; return the exit status."""
    known, chosen = find_part(run, settings)
    ranks = ranks_of(known, settings.ranks, only_hosts, chosen)
    options = ViewOptions(
        streams=streams,
        ranks=ranks,
        is_following=is_following,
        tail=lines,
        since=since,
        has_times=has_times(settings),
        handle_signals=True,
    )
    console = console_of(settings, ViewWording(len(known.hosts), settings.verbose))
    console.expect(sum(known.world), None if ranks is None else len(ranks))
    listeners: list[Listener] = [console, *copies_of(settings, known)]
    is_refused = partial(has_refused, console, settings.output)
    seen = look(known, options, listeners, reader=1, is_refused=is_refused)
    if is_refused():
        return ExitStatus.USAGE
    if seen is None:
        return ExitStatus.OK
    print_errors(seen.errors)
    if seen.has_left:
        return ExitStatus.INTERRUPTED
    if is_following:
        if seen.has_ended:
            render.print_summary(seen.report)
        return api.exit_status_of(seen)
    return ExitStatus.HOST_UNUSABLE if seen.errors else ExitStatus.OK


def has_times(settings: Settings) -> bool:
    """Whether the times at which hosts saw lines are shown."""
    return settings.timestamps or settings.output == "json" or settings.events is not None


def copies_of(settings: Settings, known: KnownRun) -> list[Listener]:
    """Local copies, when this command line asks for them.

    Raises:
        UsageError: they can't be written.
    """
    if settings.log_dir is None or settings.origin("log_dir").layer != "argument":
        return []
    copies = LocalCopies.open(settings.log_dir)
    copies.begin(known.run, sum(known.world))
    return [copies]


def ranks_of(
    known: KnownRun, spans: tuple[range, ...] | None, only_hosts: str | None, chosen: str | None = None
) -> tuple[int, ...] | None:
    """The ranks that are wanted; None for all.

    Arguments:
        only_hosts, chosen: of the ranks on these hosts only.

    Raises:
        UsageError: the run has none of them.
    """
    size = sum(known.world)
    wanted = set(range(size))
    if spans is not None:
        wanted = {rank for span in spans for rank in range(span.start, min(span.stop, size))}
        if not wanted:
            raise UsageError(f"expected ranks up to {size - 1}, found none of them", place="--ranks")
    for option, expression in (("--hosts", chosen), ("--only-hosts", only_hosts)):
        if expression is not None:
            wanted &= _ranks_on(known, expression, option)
            if not wanted:
                raise UsageError("expected hosts with some of the wanted ranks, found none of them", place=option)
    return tuple(sorted(wanted)) if len(wanted) < size else None


def _ranks_on(known: KnownRun, expression: str, option: str) -> set[int]:
    from mnspawn_inventory import Inventory, Origin
    from mnspawn_inventory.select import among

    chosen = among(Inventory(known.hosts), hosts=expression, places={"hosts": Origin(option)})
    names = {host.name for host in chosen}
    return {rank for host, ranks in zip(known.hosts, known.ranks, strict=True) if host.name in names for rank in ranks}


app = application("logs", SUMMARY, logs, EPILOG)
