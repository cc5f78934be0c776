"""The child's side of a fork: this process becomes the agent of one run, and its own forks become the workers.

They have the caller's memory and run below the caller's frames, to which nothing may ever return: whatever happens, a
process here ends by os._exit. What an agent must not touch of the caller's (signal handlers, descriptors, streams) is
put away first and given back to the workers.
"""

import atexit
import contextlib
import gc
import io
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from mnspawn._version import __version__
from mnspawn_agent import main as agent
from mnspawn_agent.posix import libc
from mnspawn_agent.posix.host import facts
from mnspawn_agent.posix.link import loop
from mnspawn_agent.posix.link.agent import HEARD
from mnspawn_agent.posix.run import guardian, limits, spawner

IMPORTED = (facts, loop)  # before the fork, so that the agent need not import them after it

DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
BUG = 70


def become_agent(
    streams: tuple[int, ...], others: tuple[int, ...], mask: set[int], workdir: str | None, run: Callable[[], None]
) -> NoReturn:
    """Serve one run, then end. Call it in a child that was just forked, with all signals blocked.

    Args:
        streams: descriptors above 2: the link to read from, the link to write to, stderr.
        others: descriptors of the parent's side, to be closed.
        mask: signals that the caller blocks.
        workdir: for the workers; None keeps the caller's.
        run: what a worker does. Its environment says which rank it is; SystemExit gives its status.
    """
    status = BUG
    try:
        os.setsid()
        for descriptor in others:
            os.close(descriptor)
        link_in, link_out, diagnostics = streams
        guardian.blank([0, 1])  # the caller may have closed them
        os.dup2(diagnostics, 2)
        os.close(diagnostics)
        state = CallerState({link_in, link_out}, mask)
        unneeded = (*state.descriptors, link_in, link_out)
        status = agent.serve(link_in, link_out, __version__, True, Forks(state, workdir, run), unneeded)
    except BaseException:  # noqa: BLE001 - whatever it is, it must not get into the caller's frames
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


class CallerState:
    """Signal handlers, descriptors and streams of the caller: put away for the agent, given back to its workers.

    Args:
        own: descriptors that are not the caller's.
        mask: signals that the caller blocks.
    """

    def __init__(self, own: set[int], mask: set[int]) -> None:
        self.descriptors = frozenset(open_descriptors() - own - {0, 1, 2})
        signal.set_wakeup_fd(-1)  # else our signals wake the caller's own loop
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        ours = {*HEARD, signal.SIGPIPE}
        self._handlers = {number: each for number, each in handlers.items() if callable(each) or number in ours}
        for number in self._handlers:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
        self._mask = mask
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self._stdout = sys.stdout
        sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
        gc.freeze()  # garbage of the caller's may close descriptors whose numbers are ours by now
        self._tracing = sys.gettrace(), sys.getprofile()
        sys.settrace(None)
        sys.setprofile(None)

    def give_back(self) -> None:
        """Restore them in a worker, whose own descriptors are 0, 1 and 2 only."""
        for descriptor in open_descriptors() - self.descriptors - {0, 1, 2}:
            os.close(descriptor)
        stdout = sys.__stdout__
        encoding = (stdout and stdout.encoding) or "utf-8"
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding=encoding)
        sys.stdout = sys.__stdout__ = _unbuffered(1, encoding, (stdout and stdout.errors) or "strict")  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _unbuffered(2, encoding, "backslashreplace")  # type: ignore[misc]
        if type(self._stdout) is io.TextIOWrapper:  # not what a notebook or a test runner put in its place
            with contextlib.suppress(OSError, ValueError):
                self._stdout.reconfigure(line_buffering=True)  # some code may have kept it and write to it
        gc.unfreeze()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        sys.settrace(self._tracing[0])
        sys.setprofile(self._tracing[1])

    def unblock_signals(self) -> None:
        """Take signals again, which were blocked since the fork."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def flush(self) -> None:
        """At a worker's end, write what it has written to a stream that the caller had."""
        if type(self._stdout) is io.TextIOWrapper:
            with contextlib.suppress(OSError, ValueError):
                self._stdout.flush()


def open_descriptors() -> set[int]:
    listed = {int(name) for name in os.listdir(DESCRIPTORS)}
    return {descriptor for descriptor in listed if _is_open(descriptor)}  # without the one that listed them


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _unbuffered(descriptor: int, encoding: str, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.FileIO(descriptor, "w", closefd=False), encoding=encoding, errors=errors, write_through=True
    )


class Forks:
    """Starts workers by forking the agent, in place of the module posix/run/spawner."""

    def __init__(self, state: CallerState, workdir: str | None, run: Callable[[], None]) -> None:
        self._state = state
        self._workdir = workdir
        self._run = run
        self._context: Any = multiprocessing.get_context("fork")

    def spawn(self, argv: list[str], env: dict[str, str], workdir: str, stdout: int, stderr: int) -> int:
        """Raises spawner.SpawnError."""
        process = self._context.Process(target=self._live, name=f"rank {env['MNSPAWN_RANK']}")
        parent = os.getpid()
        ready_in, ready_out = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # our handlers would swallow them
        pid = -1
        try:
            pid = os.fork()
        except OSError as error:
            raise spawner.SpawnError(f"fork: {error.strerror}") from None
        finally:
            if pid:
                os.close(ready_out)
                os.read(ready_in, 1)  # ends once it has its own group, which signals are sent to
                os.close(ready_in)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pid:
            return pid
        status = 1
        try:
            os.setsid()
            os.close(ready_out)
            self._become(env, stdout, stderr, parent)
            status = self._call(process)
        except BaseException:  # noqa: BLE001 - as in become_agent
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(status & 0xFF)

    def settle(self) -> None:
        """Close what the caller had open, now that all workers have it, so that closing it in the caller counts."""
        guardian.blank(self._state.descriptors)

    def _become(self, env: dict[str, str], stdout: int, stderr: int, parent: int) -> None:
        if sys.platform.startswith("linux"):
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above
                os._exit(128 + signal.SIGKILL)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        limits.restore_open_files()
        for name in os.environ.keys() - env.keys():
            del os.environ[name]
        os.environ.update(env)
        if self._workdir is not None:
            os.chdir(self._workdir)
        self._state.give_back()

    def _live(self) -> None:
        self._state.unblock_signals()
        self._run()

    def _call(self, process: Any) -> int:
        """Run the worker as a process of multiprocessing, whose queues then know of the fork and are emptied."""
        atexit._clear()  # the caller's
        atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined] # by itself until Python 3.12
        try:
            return int(process._bootstrap())
        finally:
            atexit._run_exitfuncs()
            self._state.flush()
