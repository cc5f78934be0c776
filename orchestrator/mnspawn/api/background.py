"""Runs one run in a thread of its own with a loop of its own, for callers that have no loop, or one of another kind.

So a run goes on while the caller computes, whatever it holds up, and works the same in scripts, threads and notebooks.
"""

import asyncio
import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from mnspawn.engine.request import Listener, RunRequest
from mnspawn.engine.run.control import Control
from mnspawn.errors import InternalError, MnspawnError
from mnspawn.report import RunReport
from mnspawn.transport.base import RemoteProcess

EXIT_LIMIT = 15.0  # seconds at the interpreter's end for runs to be stopped


class Agent(Protocol):
    """An agent that was started for a run beforehand."""

    def take(self) -> RemoteProcess: ...

    async def aclose(self) -> None: ...


class Background:
    """One run. `wait` for its end, then take `outcome`.

    Args:
        listeners: told in the run's thread, closed when all is said.
        ends_with_us: at the interpreter's end the run is killed instead of waited for.
        on_end: called in the run's thread, last of all; `ended` adds another.
        agent: of the one host of the run, where there is one before the run; closed after it.
    """

    def __init__(
        self,
        request: RunRequest,
        listeners: Sequence[Listener],
        *,
        ends_with_us: bool = False,
        on_end: Callable[[], None] | None = None,
        agent: Agent | None = None,
    ) -> None:
        self.control = Control()
        self.ends_with_us = ends_with_us
        self.grace = request.grace
        self.process = os.getpid()
        self._request: RunRequest | None = request if agent is None else replace(request, agent=agent.take)
        self._agent = agent
        self._kept: object = None
        self._listeners = listeners
        self._on_end: list[Callable[[], None]] | None = [] if on_end is None else [on_end]
        self._ending = threading.Lock()
        self._end = threading.Event()
        self._report: RunReport | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mnspawn run", daemon=True)

    def start(self, keep: object = None) -> None:
        """Start the run; `keep` stays alive until it has ended."""
        self._kept = keep
        _running.add(self)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run and of its thread; False when that did not come in time."""
        # not Thread.join: interrupted by Ctrl-C, Python 3.11's takes the thread for ended (bpo-45274)
        if not self._end.wait(timeout):
            return False
        self._thread.join()
        return True

    def wait_stopping(self) -> RunReport:
        """Wait for the end; Ctrl-C stops the run, a second one kills it, and is raised again when nothing is left.

        So does any other exception that comes meanwhile, such as a signal handler's.

        Raises:
            KeyboardInterrupt: after the run has ended.
            MnspawnError: as `outcome`.
        """
        interrupts = 0
        while True:
            try:
                self.wait()
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 2:
                    raise
                self.control.stop(self.grace if interrupts == 1 else 0.0, "KeyboardInterrupt")
            except BaseException:
                self.control.stop(self.grace, "the caller leaves")
                self.wait()
                raise
        if interrupts:
            raise KeyboardInterrupt
        return self.outcome()

    async def ended(self) -> RunReport:
        """`wait_stopping` for asyncio: a cancellation stops the run, a second one kills it; it is raised in the end."""
        loop, end, cancelled = asyncio.get_running_loop(), asyncio.Event(), 0

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(end.set)

        with self._ending:
            if self._on_end is None:
                end.set()
            else:
                self._on_end.append(tell)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > 2:
                    raise
                self.control.stop(self.grace if cancelled == 1 else 0.0, "cancelled")
        self.wait()
        if cancelled:
            raise asyncio.CancelledError
        return self.outcome()

    def outcome(self) -> RunReport:
        """The report of the run that has ended; raises what it ended in before its start."""
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def _run(self) -> None:
        try:
            self._report = asyncio.run(self._main())
        except BaseException as exc:  # noqa: BLE001 - it is raised where the run is waited for
            self._error = _only(exc)
        finally:
            self.control.release()
            self._request = None  # its files may be large
            _running.discard(self)
            with self._ending:
                calls, self._on_end = self._on_end, None
            try:
                for call in calls or ():
                    call()
            finally:  # whatever they raise, nobody waits for ever
                self._kept = None
                self._end.set()

    async def _main(self) -> RunReport:
        from mnspawn.engine.run.drive import Drive

        assert self._request is not None
        try:
            outcome = await Drive(self._request, self._listeners, is_dry=False, control=self.control).execute()
            assert isinstance(outcome, RunReport)
            return outcome
        finally:
            if self._agent is not None:
                await self._agent.aclose()
            for listener in self._listeners:
                await listener.aclose()


_running: set[Background] = set()


def _only(error: BaseException) -> BaseException:
    """The one error inside groups; a mishap of ours is told as such."""
    notes = list(getattr(error, "__notes__", ()))
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MnspawnError):
        return error
    found = "; ".join([f"{type(error).__name__}: {error}", *notes])
    ours = InternalError(found, hint="this is a bug in mnspawn, please report it")
    ours.__cause__ = error
    return ours


@atexit.register
def wait_for_all() -> None:
    """The interpreter ends: wait for the runs that are still there, as multiprocessing does, or stop them."""
    was_interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    ours = [run for run in tuple(_running) if run.process == os.getpid()]  # not those of whom we were forked from
    for run in ours:
        try:
            if run.ends_with_us or was_interrupted:
                run.control.stop(0.0 if run.ends_with_us else run.grace, "the caller ends")
                run.wait(EXIT_LIMIT)
            else:
                run.wait()
        except KeyboardInterrupt:
            was_interrupted = True
            run.control.stop(run.grace, "KeyboardInterrupt")
            run.wait(EXIT_LIMIT)
