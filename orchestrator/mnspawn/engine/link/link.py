"""One host's link for the length of a run: bringing its agent up, and finding it again when the wire breaks."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mnspawn.core.agent_events import Hello, LinkLost, Prepared, SessionEvent
from mnspawn.core.message_check import Speaker
from mnspawn.engine.request import RunRequest
from mnspawn.errors import BootstrapError, HostError
from mnspawn.transport.base import Connection, RemoteProcess
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel
from mnspawn_agent.protocol.checks import STREAMS

from . import join
from .feed import HOPELESS, Feed
from .sites import Reached

BLOB_PIECE = 65536
BLOB_WINDOW = 2 << 20  # bytes of files that the agent has not acknowledged
GARBLED_MOST = 3  # wires: somebody can write into one by mistake, into each new one only on purpose


@dataclass(frozen=True, slots=True)
class Verdict:
    """A host that counts as lost: why, whether nothing was seen to be left there, and what would not die."""

    reason: str
    is_clean: bool
    survivors: join.Survivors = ()


class HostLink(Feed):
    """The link to one host of a run of ours.

    Args:
        on_events: called with what the agent says.
        notice: called with a line for people, and the host that it is about.

    Attributes:
        hello, prepared: what the agent has said; None before.
        is_started: its agent was ordered to start its ranks.
        is_settled: nothing more is expected of it.
    """

    def __init__(
        self, reached: Reached, index: int, request: RunRequest, run: str,
        on_events: Callable[["HostLink", list[SessionEvent]], None], notice: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        limits = replace(request.limits, silence=math.inf) if request.ends_with_us else request.limits
        super().__init__(
            reached, index, request.python, request.ssh.connect_timeout, limits, lambda events: on_events(self, events)
        )
        self.hello: Hello | None = None
        self.prepared: Prepared | None = None
        self.is_started = False
        self.is_settled = False
        self._run = run
        self._notice = notice
        self._is_only = (reached.hosts[index].prelude or request.prelude) is None
        self._agent = request.agent
        self._blobs: list[tuple[int, bytes]] = []
        self._blob_offset = 0
        self._is_open = False
        self._garbled = 0  # wires that carried no frames of ours

    def _note(self, event: SessionEvent) -> None:
        super()._note(event)
        if isinstance(event, Hello):
            self.hello = event
        elif isinstance(event, Prepared):
            self.prepared = event

    # -- sending ---------------------------------------------------------------------------------------------------
    def send_message(self, message: dict[str, Any]) -> None:
        if self._is_open:
            super().send_message(message)

    def start(self, message: dict[str, Any]) -> None:
        """Have the agent start its ranks."""
        self.is_started = True
        self.send_message(message)

    def finish(self, *, keep: bool) -> None:
        """Let the agent go; `keep`: with the run's folder left in its place."""
        self.is_settled = True
        self.send(messages.FINISH, keep=keep)

    def send_blob(self, blob: int, content: bytes) -> None:
        """Send a file, piece by piece as the agent takes them: holding all of it twice would cost too much memory."""
        self._blobs.append((blob, content))
        self.push_blobs()

    def push_blobs(self) -> None:
        """Queue the next pieces of files while little is on its way."""
        while self._blobs and self.session.unacknowledged_bytes < BLOB_WINDOW:
            blob, content = self._blobs[0]
            self.session.send_blob(blob, self._blob_offset, content[self._blob_offset : self._blob_offset + BLOB_PIECE])
            self._blob_offset += BLOB_PIECE
            if self._blob_offset >= len(content):
                del self._blobs[0]
                self._blob_offset = 0
            self._wake.set()

    # -- the wire --------------------------------------------------------------------------------------------------
    async def bring_up(self, connection: Connection) -> join.Wire:
        """Bring the agent up. Raises HostError."""
        self.connection = connection
        if self._agent is not None:
            wire = self._wire = join.Wire(self.name, self._agent())
        else:
            wire = self._wire = await join.join(
                connection, self.name, ("serve",), self.python, self._timeout, join.START_LIMIT,
                lambda slow: self._notice(slow, self.name), is_only=self._is_only,
            )  # fmt: skip
            await wire.wait_first_words(self._loop.time() + max(self._timeout, join.START_LIMIT))
        self.begin_session(Speaker.AGENT)
        self._is_open = True
        return wire

    @property
    def is_served(self) -> bool:
        """An agent is at the other end, as far as we know."""
        return self._is_open and not self.session.is_lost

    def seize(self) -> tuple[RemoteProcess, Channel] | None:
        """The wire, for use without the session; None when there is none."""
        if self._wire is None or self.session.is_lost:
            return None
        return self._wire.process, self.session.bare_channel

    async def explain(self, lost: LinkLost) -> HostError:
        """Return the error for a link that broke before the start."""
        assert self._wire is not None
        if lost.kind == "eof":
            return await self._wire.explain_silence()
        reason = lost.detail if lost.kind in HOPELESS else f"the link was lost: {lost.detail}"
        return BootstrapError(reason, host=self.name)

    async def give_up_before_start(self, lost: LinkLost) -> None:
        """Nothing was started. An agent whose link ends goes by itself; one that makes no sense may not."""
        if lost.kind in HOPELESS:
            await self.drop_wire()
            await self.reap(self._run)

    async def find_again(self, lost: LinkLost, deadline: float) -> join.Wire | Verdict:
        """Return a new wire to the same agent, or why the host counts as lost.

        Args:
            deadline: by the loop's clock; the last attempt begins then.
        """
        await self.drop_wire()
        if lost.kind == "garbage":
            self._garbled += 1
        if lost.kind in HOPELESS or self._garbled > GARBLED_MOST:
            return await self._end_pod(lost.detail)
        if lost.kind == "silence":
            await self.drop_connection()
        found: join.Wire | Verdict | None = None

        async def attempt(outcome: Connection | HostError) -> bool:
            nonlocal found
            try:
                if isinstance(outcome, HostError):
                    raise outcome
                found = await self._take_up(outcome)
                problem = "its agent does not answer"
            except HostError as exc:
                await self.drop_wire()
                await self.drop_connection()
                problem = exc.message
            if found is None and self._loop.time() >= deadline:
                if self.connection is not None:
                    found = await self._end_pod(problem)
                else:
                    found = Verdict(f"{lost.detail}; {problem}", is_clean=False)
            return found is not None

        # a dead host answers nobody: do not wait for it longer than for its return
        await self.persist(attempt, lambda: max(self._limits.retry_longest, deadline - self._loop.time()), deadline)
        assert found is not None
        return found

    async def _take_up(self, connection: Connection) -> join.Wire | Verdict | None:
        """Go on with the session over a new wire: to the agent, else to what it has written down of its end.

        Returns:
            The wire; a verdict where there is neither; None when the agent is there and does not answer.

        Raises:
            HostError: the host does not say what is there.
        """
        words = (self._run, str(self.index))
        wire = await self.enter(connection, "attach", *words, limit=self._limits.attach)
        if wire is not None:
            self.session.resume(self._loop.time())
            self.lost = None
            if await self._is_answered(wire):
                return wire
            await self.drop_wire()
            return None
        wire = await self.enter(connection, "watch", *words, "ended", limit=self._limits.attach)
        if wire is None:
            return await self._end_pod("its agent died")
        self.session.read_again(self._loop.time())
        self.lost = None
        self.session.send(watch_message(sorted(STREAMS), self.session.offsets))
        return wire

    async def _is_answered(self, wire: join.Wire) -> bool:
        """The agent itself speaks: the kernel connects to a frozen one, too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.answer):
                await wire.process.write(self.session.data_to_send(self._loop.time()))
                wire.rest = wire.rest or await wire.process.read()
                return bool(wire.rest)
        return False

    async def _end_pod(self, reason: str) -> Verdict:
        """The host answers but the agent does not, or not with sense: end it and what it left."""
        reaped = await self.reap(self._run)
        return Verdict(reason, reaped.is_clean, reaped.survivors)

    async def close(self) -> None:
        self._is_open = False
        await super().close()


def watch_message(
    streams: list[int],
    offsets: dict[tuple[int, int], int],
    ranks: tuple[int, ...] | None = None,
    *,
    tail: int | None = None,
    since: float | None = None,
    has_times: bool = False,
    is_following: bool = True,
) -> dict[str, Any]:
    """WATCH: which output a watcher of a pod's folder reports, and from where."""
    return messages.make(
        messages.WATCH,
        streams=streams,
        ranks=None if ranks is None else list(ranks),
        offsets=[[rank, stream, offset] for (rank, stream), offset in offsets.items()],
        tail=tail,
        since=since,
        has_times=has_times,
        is_following=is_following,
    )
