"""Tells listeners what hosts say, and lets agents send on only while the listeners keep up."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mnspawn import events as seen
from mnspawn.core import session as said
from mnspawn.engine.request import Listener

HIGH_WATER = 4 << 20  # bytes that listeners may hold before agents get no new credit
OUTPUT_STREAMS = frozenset((seen.Stream.STDOUT, seen.Stream.STDERR))


class Payer(Protocol):
    """A host's link, as far as credit goes."""

    owed: int  # bytes that were passed on and not yet paid for

    def pay(self) -> None:
        """Give the agent credit for what was passed on."""
        ...


class Audience:
    """The listeners of one run.

    Args:
        on_bug: takes what a listener raises where no task is; without it that is only logged.
    """

    def __init__(self, listeners: Sequence[Listener], on_bug: Callable[[Exception], None] | None = None) -> None:
        self._listeners = listeners
        self._on_bug = on_bug
        self._debtors: list[Payer] = []
        self._loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.bind(self._wake)

    @property
    def unwanted(self) -> frozenset[seen.Stream]:
        """Streams that no listener takes: `Listener.wanted_streams`, where a listener has it; else it takes all."""
        wanted = [getattr(listener, "wanted_streams", OUTPUT_STREAMS) for listener in self._listeners]
        return OUTPUT_STREAMS.difference(*wanted)

    def tell(self, event: seen.Event) -> None:
        for listener in self._listeners:
            listener.on_event(event)

    def notice(self, text: str, host: str | None = None) -> None:
        """One line for people."""
        self.tell(seen.Notice(time.time(), host, text))

    def pass_on(self, host: str, event: said.SessionEvent, local_rank: Callable[[int], int], payer: Payer) -> None:
        """What a host says of its workers, in the listeners' words; anything else is none of their business."""
        now = time.time()
        match event:
            case said.Output(rank, stream, offset, chunk, at):
                self.tell(seen.WorkerOutput(at, host, rank, seen.Stream(stream), offset, chunk))
                self.owe(payer, len(chunk))
            case said.Started(rank, pid):
                self.tell(seen.WorkerStarted(now, host, rank, local_rank(rank), pid))
            case said.Drained(e):
                self.tell(
                    seen.WorkerExited(
                        now, host, e.rank, local_rank(e.rank), e.pid, e.code, e.seconds, e.stopped, e.killed, e.raised
                    )
                )
            case said.Gap(rank, stream, offset, count):
                self.tell(seen.OutputLost(now, host, rank, seen.Stream(stream), offset, count))
            case said.Done(leftovers, swept, _, reasons):
                self.tell(seen.HostStopped(now, host, leftovers, swept, reasons))
            case said.Remark(text):
                self.notice(text, host)
            case _:
                pass

    # -- credit ----------------------------------------------------------------------------------------------------
    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        try:
            self.release_credit()
        except Exception as exc:  # no task is here that could raise it
            if self._on_bug is None:
                raise
            self._on_bug(exc)

    def owe(self, payer: Payer, count: int) -> None:
        """So many bytes of a host were passed on: it gets credit for them, now or when the listeners have caught up."""
        if not payer.owed:
            self._debtors.append(payer)
        payer.owed += count
        self.release_credit()

    def release_credit(self) -> None:
        """A stopped reader holds the agents back, not us."""
        if self._debtors and sum(listener.backlog for listener in self._listeners) <= HIGH_WATER:
            debtors, self._debtors = self._debtors, []
            for payer in debtors:
                payer.pay()
