"""`mnspawn detach RUN`: have the terminal of a run let go of it."""

import os
import signal
import time
from pathlib import Path

from mnspawn.cli.runs import REACH, RunArgument, application, find_run, registry, say, takes_settings
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings import Settings

SUMMARY = "Let go of a run that a terminal of this machine holds; it goes on (as Ctrl-\\ there)."
LIMIT = 15.0  # seconds: every host must have heard of it
LOOK = 0.05


@takes_settings(*REACH)
def detach(settings: Settings, run: RunArgument) -> int:
    """Let go of a run."""
    known = find_run(run, settings)
    pid = registry().tender(known.run)
    if pid is None:
        raise UsageError(
            f"expected a terminal of this machine that holds run {known.run}, found none",
            place="RUN",
            hint=r"where it was started, press Ctrl-\ or use this command; a run that has nobody is detached already",
        )
    if is_keeper(pid):
        say(f"run {known.run} is detached already")
        return ExitStatus.OK
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if registry().tender(known.run) != pid:
            say(f"run {known.run} is detached")
            return ExitStatus.OK
        time.sleep(LOOK)
    say(
        f"process {pid} has not let go of run {known.run} within {LIMIT:g} s",
        "not all ranks run yet, or a host is lost",
    )
    return ExitStatus.HOST_UNUSABLE


def is_keeper(pid: int) -> bool:
    """The process looks after a run that is detached."""
    try:
        return b"mnspawn.engine.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False


app = application("detach", SUMMARY, detach)
