"""Outlives the agent, and ends its workers if it dies hard."""

import os
import signal
import time
from typing import Iterable, List, Tuple

from ...protocol.exits import KILL_LIMIT, as_shell_status, from_wait_status
from ..files import rundir
from ..streams import read_all
from . import reaper


def split(unneeded: Iterable[int] = ()) -> Tuple[int, int]:
    """Fork: the agent goes on in the child, this process becomes its guardian and never returns.

    The kernel ends workers when the agent dies (PR_SET_PDEATHSIG), but not what workers started: those are adopted
    by the guardian, their nearest subreaper, and ended by it.

    Args:
        unneeded: descriptors that the guardian does not keep open.

    Returns:
        In the agent: (descriptor to write the run to, the guardian's pid).
    """
    run_in, run_out = os.pipe()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(run_in)
        return run_out, guardian
    os.close(run_out)
    os._exit(_guard(pid, run_in, unneeded))


def _guard(agent: int, run_in: int, unneeded: Iterable[int]) -> int:
    from .. import libc

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    blank([0, 1, 2, *unneeded])  # the link is the agent's alone: its end must be seen at the other side
    written = read_all(run_in)
    _, status = os.waitpid(agent, 0)
    code = from_wait_status(status)
    run, _, node_rank = written.decode("ascii").strip().partition(" ")
    if code != 0:
        end_all(run, int(node_rank or 0))
    return as_shell_status(code)


def blank(fds: Iterable[int]) -> None:
    """Point descriptors at /dev/null; others who know their numbers may still close them."""
    numbers = set(fds)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in numbers - {null}:
        os.dup2(null, fd)
    if null not in numbers:  # else that one was free
        os.close(null)


def end_agent(run: str, node_rank: int) -> None:
    """Kill an agent that lives but does not answer; its guardian then ends the rest."""
    path = rundir.find_pod(run, str(node_rank))
    if path is None:
        return
    deadline = time.monotonic() + KILL_LIMIT
    while rundir.is_held(path) and time.monotonic() < deadline:
        reaper.send(rundir.openers_of(os.path.join(path, rundir.LOCK)), "SIGKILL")
        time.sleep(0.02)


def end_all(run: str, node_rank: int) -> List[int]:
    """Kill what is left of a pod; returns the pids that outlived it."""
    deadline = time.monotonic() + KILL_LIMIT
    while True:
        left, _ = reaper.kill_all(run, node_rank, set())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)
