"""`mnspawn detach RUN`: detaches a run from the terminal that follows it."""

import asyncio
import os
import signal
import time
from pathlib import Path

from mnspawn.api import runs as api
from mnspawn.api.runs import KnownRun, registry
from mnspawn.cli.runs import REACH, RunArgument, application, find_run, print_errors, say, takes_settings
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings.table import Settings

SUMMARY = "Detach a run from the terminal that follows it, wherever that is (like Ctrl-\\ there); the run continues."
EPILOG = (
    "The hosts pass the request on to a terminal of another machine. Exit status: 0 when the run is detached; 2 when it"
    " has ended or no terminal follows it; 3 when the terminal did not detach it, or hosts did not answer."
)
LIMIT = 15.0  # seconds: every host must have heard of it
LOOK = 0.05
LOOK_FAR = 0.5  # on other machines


@takes_settings(*REACH)
def detach(settings: Settings, run: RunArgument) -> int:
    """Detach a run from its terminal."""
    known = find_run(run, settings)
    pid = registry().holder(known.run)
    if pid is None:
        return detach_far(known)
    if is_keeper(pid):
        return say_detached(known.run, "is detached already")
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if registry().holder(known.run) != pid:
            return say_detached(known.run, "is detached")
        time.sleep(LOOK)
    return say_held(known.run, f"process {pid}")


def detach_far(known: KnownRun) -> int:
    """Nobody on this machine holds the run: the hosts know whether somebody does, and pass the word on.

    Raises:
        UsageError: there is nobody who could let go.
    """
    deadline = time.monotonic() + LIMIT
    said = "is detached already"
    while True:
        answers = asyncio.run(api.order(known, dict.fromkeys(range(len(known.hosts)), ("detach",))))
        errors = api.errors_of(answers)
        if errors:
            print_errors(errors)
            return ExitStatus.HOST_UNUSABLE
        holders = {answer.content.holder for answer in answers if answer.content.ok}
        if not holders:
            raise UsageError(f"run {known.run} has ended", place="RUN", hint=f"mnspawn status {known.run}")
        if holders == {"detached"}:
            return say_detached(known.run, said)
        if "controller" not in holders:
            raise UsageError(
                f"the terminal that holds run {known.run} has no link to its hosts: it can't be asked",
                place="RUN",
                hint="if it does not come back, the hosts stop the run when its orphan_grace is over",
            )
        if time.monotonic() > deadline:
            return say_held(known.run, "the terminal that holds it")
        said = "is detached"
        time.sleep(LOOK_FAR)


def say_detached(run: str, how: str) -> int:
    say(f"run {run} {how}")
    return ExitStatus.OK


def say_held(run: str, who: str) -> int:
    say(f"{who} has not let go of run {run} within {LIMIT:g} s", "not all ranks run yet, or a host is lost")
    return ExitStatus.HOST_UNUSABLE


def is_keeper(pid: int) -> bool:
    """Whether the process is the keeper of a detached run."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False
    return b"mnspawn.engine.keeper" in words


app = application("detach", SUMMARY, detach, EPILOG)
