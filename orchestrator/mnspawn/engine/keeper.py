"""The keeper of a detached run: a process on this machine that is in charge of it when nobody else is.

Hosts need no way to each other and open no port, so only a process that reaches all of them by SSH can pass on that a
rank has failed. While this machine is off the agents go on; each still stops its own pod when one of its workers fails,
and the others learn of it from whoever looks at the run next.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from mnspawn.errors import MnspawnError

from .look.view import ViewOptions, ViewResult
from .look.watching import view_run
from .registry import KnownRun, Registry

START_LIMIT = 10.0  # seconds until the keeper has taken the run over
LOOK = 0.05
RETURN_LIMIT = 86400.0  # seconds in which a lost host may come back
RETURN_LOOK = 15.0  # between two looks, each of which takes longer


def start(registry: Path, run: str) -> bool:
    """Start a keeper for a known run in the background; False when it did not take the run over in time."""
    log = os.open(Registry(registry).folder(run) / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(  # every version of `mnspawn detach` knows a keeper by this module's name
            [sys.executable, "-m", "mnspawn.engine.keeper", str(registry), run],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        if Registry(registry).holder(run) == process.pid:
            process.returncode = 0  # it outlives us on purpose: nobody waits for it here
            return True
        time.sleep(LOOK)
    return False


def keep(registry: Path, run: str) -> int:
    """Take charge of a run until it has ended, then write its report down."""
    known_runs = Registry(registry)
    with known_runs.hold(run) as is_mine:
        if not is_mine:
            return 0  # somebody else does
        known = known_runs.read(run)
        seen = asyncio.run(view_run(known, (), ViewOptions(streams=(), is_in_charge=True)))
        if seen.has_ended and known_runs.report(run) is None:  # who was attached may know more of the end
            known_runs.write_report(run, seen.report.describe())
        _stop_what_comes_back(known_runs, known, seen)
    return 0


def _stop_what_comes_back(known_runs: Registry, known: KnownRun, seen: ViewResult) -> None:
    """Stop hosts that were lost and come back: they may not know that the run is over."""
    until = time.monotonic() + RETURN_LIMIT
    while any(host.lost and not host.is_confirmed for host in seen.report.hosts) and time.monotonic() < until:
        time.sleep(RETURN_LOOK)
        seen = asyncio.run(view_run(known, (), ViewOptions(streams=(), stop=known.grace)))
        with contextlib.suppress(OSError):  # a full disk here is no reason to let go of hosts
            known_runs.add_news(known.run, seen.report)


if __name__ == "__main__":
    try:
        sys.exit(keep(Path(sys.argv[1]), sys.argv[2]))
    except MnspawnError as exc:
        sys.exit(f"{time.strftime('%F %T')} {exc}")
