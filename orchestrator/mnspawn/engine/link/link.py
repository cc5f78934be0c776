"""One host's link for the length of a run: its session, its wire, and the way back to it when the wire breaks."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mnspawn.core.session import STREAMS, Hello, HostSession, LinkLost, Prepared
from mnspawn.engine.request import RunRequest
from mnspawn.errors import BootstrapError, HostError
from mnspawn.transport.base import Connection, RemoteProcess
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import SILENCE_LIMIT, Channel

from . import join
from .pump import pump
from .sites import Reached

WINDOW_TOTAL = 64 << 20  # output on its way from all hosts together
WINDOW_LEAST, WINDOW_MOST = 256 << 10, 4 << 20
OLD_CONNECTION_LIMIT = 5.0  # seconds for a host to find its agent; over a connection that died unseen it never does
ANSWER_LIMIT = 3.0  # seconds for the agent to answer; it does nothing that takes longer
BLOB_PIECE = 65536
BLOB_WINDOW = 2 << 20  # bytes of files that the agent has not acknowledged
GARBLED_MOST = 3  # wires: somebody can write into one by mistake, into each new one only on purpose
HOPELESS = ("nonsense", "stuck")  # ways to lose a link whose agent is at fault: it gets no other one
RETRY_FIRST, RETRY_MOST = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A host that counts as lost: why, whether it was seen that nothing is left there, and what would not die."""

    reason: str
    is_clean: bool
    survivors: join.Survivors = ()


class HostLink:
    """What the drive knows of one host.

    Args:
        deliver: called when the session may have events.
        notice: takes a line for people, and the host that it is about.
    """

    def __init__(
        self, index: int, name: str, reached: Reached, request: RunRequest, run: str, deliver: Callable[[], None],
        notice: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.index = index
        self.name = name
        self.hello: Hello | None = None
        self.prepared: Prepared | None = None
        self.lost: LinkLost | None = None
        self.is_started = False  # it was told to start its ranks
        self.is_settled = False
        self.owed = 0  # output bytes passed on, for which the agent has not got new credit
        self.task: asyncio.Task[None] | None = None
        self._reached = reached
        self._run = run
        self._deliver = deliver
        self._notice = notice
        self._python = reached.hosts[index].python or request.python
        self._is_only = (reached.hosts[index].prelude or request.prelude) is None
        self._timeout = request.ssh.connect_timeout
        self._agent = request.agent
        self._silence_limit = math.inf if request.ends_with_us else SILENCE_LIMIT
        window = WINDOW_TOTAL // max(1, len(reached.hosts))
        self._loop = asyncio.get_running_loop()
        self.session = HostSession(self._loop.time(), min(WINDOW_MOST, max(WINDOW_LEAST, window)), self._silence_limit)
        self._wake = asyncio.Event()
        self._blobs: list[tuple[int, bytes]] = []
        self._blob_offset = 0
        self._connection: Connection | None = None
        self._process: RemoteProcess | None = None
        self._diagnostics: join.Diagnostics | None = None
        self._first = b""
        self._is_open = False
        self._garbled = 0  # wires that carried no frames of ours

    # -- sending ---------------------------------------------------------------------------------------------------
    def send(self, kind: str, **fields: Any) -> None:
        self.send_message(messages.make(kind, **fields))

    def send_message(self, message: dict[str, Any]) -> None:
        if self._is_open:
            self.session.send(message)
            self._wake.set()

    def send_blob(self, blob: int, content: bytes) -> None:
        """Send a file, a piece at a time as the agent takes them: all of it held twice would cost too much memory."""
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

    def pay(self) -> None:
        """Give credit for what was passed on."""
        if self.owed:
            self.session.consumed(self.owed)
            self.owed = 0
            self._wake.set()

    # -- the wire --------------------------------------------------------------------------------------------------
    async def bring_up(self, connection: Connection) -> None:
        """Bring the agent up. Raises HostError."""
        self._connection = connection
        if self._agent is not None:
            self._process = self._agent()
            self._diagnostics = join.Diagnostics(self._process)
        else:
            self._process, self._diagnostics, self._first, _ = await join.join(
                connection,
                self.name,
                ("serve",),
                self._python,
                self._timeout,
                join.START_LIMIT,
                lambda slow: self._notice(slow, self.name),
                is_only=self._is_only,
            )
            if not self._first:
                deadline = self._loop.time() + max(self._timeout, join.START_LIMIT)
                self._first = await join.first_words(self._process, self._diagnostics, self.name, deadline)
        self.session = HostSession(self._loop.time(), self.session.window, self._silence_limit)
        self._is_open = True

    async def pump(self) -> LinkLost:
        """Serve the wire until it is lost."""
        assert self._process is not None
        await pump(self._process, self.session, self._first, self._deliver, self._wake)
        assert self.lost is not None
        return self.lost

    @property
    def is_served(self) -> bool:
        """An agent is at the other end, as far as we know."""
        return self._is_open and not self.session.is_lost

    def lose_patience(self, reason: str) -> None:
        """The agent answers and does not do what it should: serve it no longer."""
        now = self._loop.time()
        self.session.receive(b"", now)
        self.lost = LinkLost("stuck", reason, now)
        self._wake.set()

    def seize(self) -> tuple[RemoteProcess, Channel] | None:
        """The wire, for one who goes on without the session; None when there is none."""
        if self._process is None or self.session.is_lost:
            return None
        return self._process, self.session.bare_channel

    async def explain(self, lost: LinkLost) -> HostError:
        """The error for a link that broke before the start."""
        assert self._process is not None
        assert self._diagnostics is not None
        if lost.kind == "eof":
            return await join.explain_silence(self._process, self._diagnostics, self.name)
        reason = lost.detail if lost.kind in HOPELESS else f"the link was lost: {lost.detail}"
        return BootstrapError(reason, host=self.name)

    async def give_up(self, lost: LinkLost) -> None:
        """Nothing was started. An agent whose link ends goes by itself; one that makes no sense may not."""
        if lost.kind in HOPELESS:
            await self._drop_wire()
            await self._bury(lost.detail)

    async def find_again(self, lost: LinkLost, deadline: float) -> Verdict | None:
        """A new wire to the same agent; None when it stands, else why the host counts as lost."""
        await self._drop_wire()
        if lost.kind in HOPELESS:
            return await self._bury(lost.detail)
        if lost.kind == "silence":
            await self._drop_connection()
        if lost.kind == "garbage":
            self._garbled += 1
            if self._garbled > GARBLED_MOST:
                return await self._bury(lost.detail)
        delay = RETRY_FIRST
        while True:
            try:
                if self._connection is None:
                    # a dead host answers nobody: do not wait for it longer than for its return
                    async with asyncio.timeout(max(RETRY_MOST, deadline - self._loop.time())):
                        self._connection = await self._reached.connect(self.index)
                if not await self._attach(self._connection):
                    if not await self._read_rest(self._connection):
                        return await self._bury("its agent died")
                    self.lost = None
                    return None
                if await self._is_answered():
                    self.lost = None
                    return None
                problem = "its agent does not answer"
                await self._drop_wire()
            except HostError as exc:
                await self._drop_connection()
                problem = exc.message
            except TimeoutError:
                problem = "nobody answers"
            if self._loop.time() >= deadline:
                if self._connection is not None:
                    return await self._bury(problem)
                return Verdict(f"{lost.detail}; {problem}", is_clean=False)
            await asyncio.sleep(min(delay, max(0.0, deadline - self._loop.time())))
            delay = min(delay * 2, RETRY_MOST)

    async def _attach(self, connection: Connection) -> bool:
        """Reach the agent's control socket; False when there is no agent any more."""
        words = ("attach", self._run, str(self.index))
        found = await join.enter(connection, self.name, words, self._python, OLD_CONNECTION_LIMIT)
        if found is None:
            return False
        self._process, self._diagnostics, self._first = found
        return True

    async def _read_rest(self, connection: Connection) -> bool:
        """An agent that waited for us in vain has written its verdict down: go on with that; False when it has not."""
        words = ("watch", self._run, str(self.index), "ended")
        found = await join.enter(connection, self.name, words, self._python, OLD_CONNECTION_LIMIT)
        if found is None:
            return False
        self._process, self._diagnostics, self._first = found
        self.session.read_again(self._loop.time())
        self.session.send(
            messages.make(
                messages.WATCH,
                streams=sorted(STREAMS),
                ranks=None,
                offsets=[[rank, stream, offset] for (rank, stream), offset in self.session.offsets.items()],
                tail=None,
                since=None,
                has_times=False,
                is_following=True,
            )
        )
        return True

    async def _is_answered(self) -> bool:
        """Take the session up; True when the agent itself speaks: the kernel connects to a frozen one, too."""
        assert self._process is not None
        self.session.resume(self._loop.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_LIMIT):
                await self._process.write(self.session.data_to_send(self._loop.time()))
                self._first = self._first or await self._process.read()
                return bool(self._first)
        return False

    async def _bury(self, reason: str) -> Verdict:
        """The host answers but the agent does not, or not with sense: end it and what it left."""
        assert self._connection is not None
        is_clean = False
        survivors: list[tuple[int, str]] = []
        with contextlib.suppress(HostError):  # then nobody can say that nothing is left, and the report says so
            where = self._connection, self.name, self._run, self.index, self._python, self._timeout
            is_clean = await join.reap(*where, survivors.extend)
        return Verdict(reason, is_clean, tuple(survivors))

    # -- the end ---------------------------------------------------------------------------------------------------
    async def _drop_wire(self) -> None:
        if self._process is not None:
            await self._process.close()
        if self._diagnostics is not None:
            await self._diagnostics.close()
        self._process = self._diagnostics = None

    async def _drop_connection(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def close(self) -> None:
        """Give wire and connection back."""
        self._is_open = False
        await self._drop_wire()
        await self._drop_connection()
