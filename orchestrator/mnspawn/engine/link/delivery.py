"""Delivers events to listeners, and lets agents send on only while the listeners keep up."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Protocol

from mnspawn import events as seen
from mnspawn.core import agent_events as agent
from mnspawn.engine.request import Listener

HIGH_WATER = 4 << 20  # bytes that listeners may hold before agents get no new credit
OUTPUT_STREAMS = frozenset((seen.Stream.STDOUT, seen.Stream.STDERR))


class Payee(Protocol):
    """What gets credit for output: a host's feed."""

    owed: int  # bytes that were passed on and not yet paid for

    def pay(self) -> None:
        """Give the agent credit for what was passed on."""
        ...


class Delivery:
    """The listeners of one run.

    Args:
        on_bug: called with what a listener raises where no task is; without it that is only logged.
    """

    def __init__(self, listeners: Sequence[Listener], on_bug: Callable[[Exception], None] | None = None) -> None:
        self._listeners = listeners
        self._on_bug = on_bug
        self._unpaid: list[Payee] = []
        self._loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.bind(self._wake)

    @property
    def unwanted_streams(self) -> frozenset[seen.Stream]:
        """Streams that no listener takes: `Listener.wanted_streams`, where a listener has it; else it takes all."""
        wanted = [getattr(listener, "wanted_streams", OUTPUT_STREAMS) for listener in self._listeners]
        return OUTPUT_STREAMS.difference(*wanted)

    def emit(self, event: seen.Event) -> None:
        for listener in self._listeners:
            listener.on_event(event)

    def notice(self, text: str, host: str | None = None) -> None:
        """Deliver one line for people."""
        self.emit(seen.Notice(time.time(), host, text))

    def emit_of_agent(
        self, host: str, event: agent.SessionEvent, local_rank: Callable[[int], int], payee: Payee
    ) -> None:
        """Deliver what a host's agent reports of its workers; anything else is not for listeners."""
        now = time.time()
        match event:
            case agent.Output(rank, stream, offset, chunk, at):
                self.emit(seen.WorkerOutput(at, host, rank, seen.Stream(stream), offset, chunk))
                self.owe(payee, len(chunk))
            case agent.Started(rank, pid):
                self.emit(seen.WorkerStarted(now, host, rank, local_rank(rank), pid))
            case agent.Drained(exited):
                rank, end = exited.rank, exited.end
                shown = {f.name: getattr(end, f.name) for f in fields(seen.WorkerExited) if hasattr(end, f.name)}
                self.emit(seen.WorkerExited(now, host, rank, local_rank(rank), **shown))
            case agent.Gap(rank, stream, offset, count):
                self.emit(seen.OutputLost(now, host, rank, seen.Stream(stream), offset, count))
            case agent.Done(leftovers, swept, _, reasons):
                self.emit(seen.HostStopped(now, host, leftovers, swept, reasons))
            case agent.Remark(text):
                self.notice(text, host)
            case _:
                pass

    # -- credit ----------------------------------------------------------------------------------------------------
    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._caught_up)

    def _caught_up(self) -> None:
        try:
            self.release_credit()
        except Exception as exc:  # no task is here that could raise it
            if self._on_bug is None:
                raise
            self._on_bug(exc)

    def owe(self, payee: Payee, count: int) -> None:
        """Owe a host credit for bytes that were passed on; it gets it now, or when the listeners have caught up."""
        if not payee.owed:
            self._unpaid.append(payee)
        payee.owed += count
        self.release_credit()

    def release_credit(self) -> None:
        """Pay, unless a listener is behind: a reader that stops holds the agents back, not us."""
        if self._unpaid and sum(listener.backlog for listener in self._listeners) <= HIGH_WATER:
            unpaid, self._unpaid = self._unpaid, []
            for payee in unpaid:
                payee.pay()
