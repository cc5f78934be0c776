"""Start method `fork`, the parent's side: the run's agent is a fork of this process, and ranks are forks of that agent.

Ranks thus have the caller's memory, as in torch; nothing is pickled on the way to them. Only on this machine.
"""

import contextlib
import fcntl
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

from mnspawn.api.background import wait_for_all
from mnspawn.transport.base import RemoteProcess
from mnspawn.transport.child import ChildProcess, end
from mnspawn.transport.pipes import keep_from_forks
from mnspawn_agent import worker_main

from . import child

PICKLERS = ("pickle", *worker_main.BY_VALUE)  # the caller has the ranks' classes: by reference where possible
_forking = threading.Lock()  # an agent must not get the pipes of another that is being made


def _renew_lock() -> None:
    global _forking
    _forking = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class ForkedAgent:
    """An agent that already exists and waits for its run. Make it in the thread that asks for the run.

    Args:
        workdir: folder for the ranks; None: where the caller is.
        run: what a rank does.

    Raises:
        OSError: no process, or no descriptor, can be had.
    """

    def __init__(self, workdir: str | None, run: Callable[[], None]) -> None:
        self.returncode: int | None = None
        self._process: ChildProcess | None = None
        for stream in (sys.stdout, sys.stderr):  # else every rank writes what they have buffered
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        with _forking:
            theirs, ours = _pipes()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self.pid = os.fork()
                if self.pid == 0:
                    child.become_agent(theirs, ours, mask, workdir, run)
            except BaseException:
                _close(ours)
                raise
            finally:
                _close(theirs)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self.stdin: IO[bytes] | None = io.FileIO(ours[0], "w")
            self.stdout: IO[bytes] | None = io.FileIO(ours[1])
            self.stderr: IO[bytes] | None = io.FileIO(ours[2])
            keep_from_forks(self)

    def take(self) -> RemoteProcess:
        """Return the agent as the engine sees it. Call it once, in the run's loop."""
        self._process = ChildProcess(self)
        return self._process

    async def aclose(self) -> None:
        """End the agent after its run."""
        if self._process is not None:
            await end(self._process, signal.SIGHUP)
        else:
            self.close()

    def close(self) -> None:
        """End the agent, which gets no run: it leaves when its link ends."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    # -- what PipedProcess asks of a child
    def send_signal(self, number: int, /) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:
                self.returncode = 0  # the caller reaps all children, so it can't be known
        return self.returncode


def _pipes() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Make three pipes, above the numbers of the standard streams, which may be free: the agent's ends, and ours."""
    made: list[int] = []
    try:
        for _ in range(3):
            for low in os.pipe():
                made.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3))
                os.close(low)
    except OSError:
        _close(made)
        raise
    return (made[0], made[3], made[5]), (made[1], made[2], made[4])


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def start_agent(
    func: Callable[..., Any], args: tuple[Any, ...], workdir: str | None, *, passes_rank: bool, wants_result: bool
) -> ForkedAgent:
    """Fork the agent whose ranks call a function. Raises OSError."""
    job = {"passes_rank": passes_rank, "wants_result": wants_result}
    loaded = worker_main.Loaded(job, (func, args), picklers=PICKLERS)

    def run() -> None:
        try:
            worker_main.run_rank(loaded)
        finally:
            wait_for_all()

    return ForkedAgent(workdir, run)
