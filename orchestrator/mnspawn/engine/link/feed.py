"""Follows one host's agent over as many wires as it takes: its session, the credit it is owed, the way to a new wire.

What an agent says, and when a host counts as lost, is decided by those who use it: runs, looks at runs, `tail`.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mnspawn.core.agent_events import LinkLost, SessionEvent
from mnspawn.core.backoff import Backoff
from mnspawn.core.message_check import Speaker
from mnspawn.core.session import HostSession
from mnspawn.engine.request import Limits
from mnspawn.errors import HostError
from mnspawn.transport.base import Connection
from mnspawn_agent.protocol import messages

from . import join
from .sites import Reached

WINDOW_TOTAL = 64 << 20  # bytes of output on its way from all hosts together
WINDOW_LEAST, WINDOW_MOST = 256 << 10, 4 << 20
HOPELESS = ("nonsense", "stuck")  # ways to lose a link whose agent is at fault: a new wire would not help


class Feed:
    """One host's agent.

    Args:
        python: the interpreter, where the inventory names none for the host.
        timeout: seconds for connecting and for short answers.
        on_events: called in order with what the session has to say; the loss of its wire is among it.

    Attributes:
        owed: bytes of output that were passed on and not yet paid for.
        lost: how the wire was lost, if it was; None while it stands.
        connection: the one that stands, as far as we know.
    """

    def __init__(
        self, reached: Reached, index: int, python: str | None, timeout: float, limits: Limits,
        on_events: Callable[[list[SessionEvent]], None],
    ) -> None:  # fmt: skip
        host = reached.hosts[index]
        self.index = index
        self.name = host.name
        self.python = host.python or python
        self.owed = 0
        self.lost: LinkLost | None = None
        self.connection: Connection | None = None
        self._reached = reached
        self._timeout = timeout
        self._limits = limits
        self._on_events = on_events
        self._loop = asyncio.get_running_loop()
        self._window = min(WINDOW_MOST, max(WINDOW_LEAST, WINDOW_TOTAL // max(1, len(reached.hosts))))
        self._backoff = Backoff(first=limits.retry_first, longest=limits.retry_longest)
        self._wake = asyncio.Event()
        self._wire: join.Wire | None = None
        self.session = HostSession(self._loop.time(), self._window, limits.silence)

    # -- what we say -----------------------------------------------------------------------------------------------
    def send(self, kind: str, **fields: Any) -> None:
        self.send_message(messages.make(kind, **fields))

    def send_message(self, message: dict[str, Any]) -> None:
        self.session.send(message)
        self._wake.set()

    def pay(self) -> None:
        """Give the agent credit for what was passed on."""
        if self.owed:
            self.session.consumed(self.owed)
            self.owed = 0
            self._wake.set()

    # -- wires -----------------------------------------------------------------------------------------------------
    async def persist(
        self,
        attempt: Callable[[Connection | HostError], Awaitable[bool]],
        limit: Callable[[], float | None] = lambda: None,
        deadline: float = math.inf,
        first: Connection | HostError | None = None,
    ) -> None:
        """Call `attempt` with a connection, or with why there is none, until it returns True; with growing pauses.

        Args:
            attempt: may leave the connection for the next attempt, or drop it.
            limit: seconds for connecting; None where the transport's own limit is enough.
            deadline: by the loop's clock: no pause goes on beyond it.
            first: what dialling has brought already.
        """
        outcome = await self._dial(limit()) if first is None else first
        if not isinstance(outcome, HostError):
            self.connection = outcome
        while not await attempt(outcome):
            now = self._loop.time()
            pause = self._backoff.next_pause(now, random.random())
            assert pause is not None  # it knows no deadline
            await asyncio.sleep(max(0.0, min(pause, deadline - now)))
            outcome = await self._dial(limit())

    async def _dial(self, limit: float | None) -> Connection | HostError:
        """Return the connection that stands, a new one, or why there is none."""
        try:
            if self.connection is None:
                async with asyncio.timeout(limit):
                    self.connection = await self._reached.connect(self.index)
            return self.connection
        except TimeoutError:
            return HostError("no answer", host=self.name)
        except HostError as exc:
            return exc

    async def enter(self, connection: Connection, *words: str, limit: float | None = None) -> join.Wire | None:
        """Join as `join.enter` does; raises HostError."""
        self._wire = await join.enter(connection, self.name, words, self.python, limit or self._timeout)
        return self._wire

    def begin_session(self, speaker: Speaker, offsets: Mapping[tuple[int, int], int] | None = None) -> None:
        """Begin anew with a wire that is served next; output goes on at `offsets`."""
        self.session = HostSession(
            self._loop.time(), self._window, self._limits.silence, offsets=offsets, speaker=speaker
        )
        self.owed = 0
        self.lost = None

    async def serve(self, wire: join.Wire) -> LinkLost:
        """Serve a wire until it is lost, which is returned."""
        self._wire = wire
        self._backoff.reset()
        # whichever ends first has seen the loss; a write to a dead peer never ends by itself
        parts = (self._receive(wire), self._send(wire), self._keep_time())
        tasks = [asyncio.create_task(part, name=f"link {self.name}") for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert self.lost is not None
        return self.lost

    async def _receive(self, wire: join.Wire) -> None:
        chunk = wire.rest or await wire.process.read()
        while chunk and not self.session.is_lost:
            self.session.receive(chunk, self._loop.time())
            self._deliver()
            self._wake.set()
            chunk = await wire.process.read()
        self.session.receive(b"", self._loop.time())
        self._deliver()

    async def _send(self, wire: join.Wire) -> None:
        while not self.session.is_lost:
            self._wake.clear()
            if chunk := self.session.data_to_send(self._loop.time()):
                await wire.process.write(chunk)
            else:
                await self._wake.wait()

    async def _keep_time(self) -> None:
        while (deadline := self.session.deadline) is not None:
            await asyncio.sleep(max(0.0, deadline - self._loop.time()))
            self.session.on_time(self._loop.time())
            self._deliver()
            self._wake.set()

    def _deliver(self) -> None:
        events = self.session.events()
        for event in events:
            self._note(event)
        self._on_events(events)

    def _note(self, event: SessionEvent) -> None:
        """Remember what is asked for later."""
        if isinstance(event, LinkLost):
            self.lost = event

    def give_up(self, reason: str) -> None:
        """Stop serving the agent: it answers, and does not do what it should."""
        now = self._loop.time()
        self.session.receive(b"", now)
        self.session.events()  # that the wire has ended is no news
        self.lost = LinkLost("stuck", reason, now)
        self._wake.set()

    async def reap(self, run: str) -> join.Reaped:
        """End what a pod's agent that can't do it has left. Where nobody can say what is left, it is not clean."""
        assert self.connection is not None
        with contextlib.suppress(HostError):
            return await join.reap(self.connection, self.name, run, self.index, self.python, self._timeout)
        return join.Reaped(is_clean=False)

    # -- the end ---------------------------------------------------------------------------------------------------
    async def drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """Give wire and connection back."""
        await self.drop_wire()
        await self.drop_connection()
