"""`mnspawn signal RUN SIGNAL`: sends a signal to the ranks of a run, from anywhere."""

import asyncio
import signal as signals
from typing import Annotated

import typer

from mnspawn.api import runs as api
from mnspawn.cli.runs import REACH, RunArgument, application, find_run, print_errors, say, takes_settings
from mnspawn.cli.wording.run import counted
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings.table import Settings

from .logs import OnlyHostsOption, ranks_of

SUMMARY = "Send a signal to the ranks of a run."
EPILOG = (
    "Sends the signal to the process group of each running rank. Exit status: 0; 3 when hosts could not be asked, or no"
    " longer have the run."
)
# What agents pass on.
NAMES = ("USR1", "USR2", "HUP", "INT", "TERM", "CONT", "STOP", "KILL", "QUIT")


@takes_settings("ranks", *REACH)
def signal(
    settings: Settings,
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help=f"{', '.join(NAMES)}; SIGUSR1 or 10 also work.")],
    only_hosts: OnlyHostsOption = None,
) -> int:
    """Send a signal to the ranks of a run."""
    number = signal_of(name)
    known = find_run(run, settings)
    ranks = ranks_of(known, settings.ranks, only_hosts)
    orders = {}
    for node_rank, own in enumerate(known.ranks):
        wanted = own if ranks is None else sorted(set(own) & set(ranks))
        if wanted:
            orders[node_rank] = ("signal", number.name, *map(str, wanted))
    answers = asyncio.run(api.order(known, orders))
    errors = api.errors_of(answers)
    print_errors(errors)
    status = ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK
    for answer in answers:
        if answer.error is None and not answer.content.ok:
            say(f"{answer.host}: {answer.content.problem}")
            status = ExitStatus.HOST_UNUSABLE
    if status == ExitStatus.OK:
        count = sum(len(own) for own in known.ranks) if ranks is None else len(ranks)
        say(f"{number.name} sent to {counted(count, 'rank')} of run {known.run}")
    return status


def signal_of(word: str) -> signals.Signals:
    """USR1, SIGUSR1, usr1, 10.

    Raises:
        UsageError: it is no signal that is passed on.
    """
    upper = word.strip().upper()
    try:
        found = signals.Signals(int(upper)) if upper.isdecimal() else signals.Signals[f"SIG{upper.removeprefix('SIG')}"]
    except (ValueError, KeyError):
        found = None
    if found is None or found.name.removeprefix("SIG") not in NAMES:
        raise UsageError(f"expected one of {', '.join(NAMES)}, found {word!r}", place="SIGNAL")
    return found


app = application("signal", SUMMARY, signal, EPILOG)
