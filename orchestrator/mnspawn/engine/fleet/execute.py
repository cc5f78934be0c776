"""Runs one command on every host, as a child of the login shell and without an agent, and can end it."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mnspawn.core import remote_command
from mnspawn.engine.link.dial import dial
from mnspawn.engine.link.sites import Reached
from mnspawn.errors import ChannelRefused, HostError, HostLost
from mnspawn.system.interrupts import handled
from mnspawn.transport.base import Connection, RemoteProcess

KEPT = 8 << 20  # bytes of each stream of a host; more is for `--stream`, which keeps nothing
LAST_WORDS = 2.0  # seconds from KILL until a silent host is left alone

OnOutput = Callable[[int, int, bytes], Awaitable[None]]  # host's index, 1 or 2, bytes


@dataclass(slots=True)
class Outcome:
    """How the command ended on one host.

    Attributes:
        status: its exit status, 128+n for signal n; None where none came.
        error: why there is no status.
        left_out: bytes of output over KEPT.
    """

    index: int
    host: str
    status: int | None = None
    error: HostError | HostLost | None = None
    is_timed_out: bool = False
    is_stopped: bool = False
    left_out: int = 0
    output: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})


class Execution:
    """One command on every host.

    Args:
        timeout: seconds that the command may take on a host.
        on_output: called with output as it comes; then none is kept.
        on_end: called for each host that is done.
    """

    def __init__(
        self,
        reached: Reached,
        command: str,
        connect_timeout: float,
        *,
        timeout: float | None = None,
        is_sequential: bool = False,
        on_output: OnOutput | None = None,
        on_end: Callable[[Outcome], Awaitable[None]] | None = None,
    ) -> None:
        self._reached = reached
        self._command = command
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._is_sequential = is_sequential
        self._on_output = on_output
        self._on_end = on_end
        self._outcomes: dict[int, Outcome] = {}
        self._stop = asyncio.Event()
        self._leave = asyncio.Event()
        self.signal: signal.Signals | None = None

    async def execute(self) -> list[Outcome]:
        """Return the outcome of every host, in order. After a signal, of those that had been reached."""
        with handled(self._on_signal, lambda number: None, lambda: self._on_signal(signal.SIGQUIT)):
            if self._is_sequential:
                for index in range(len(self._reached.hosts)):
                    if not self._stop.is_set():
                        await self._on_hosts([index])
            else:
                await self._on_hosts(range(len(self._reached.hosts)))
        return [self._outcomes[index] for index in sorted(self._outcomes)]

    def _on_signal(self, number: signal.Signals) -> None:
        """End the command everywhere; at the second signal, leave it to itself."""
        if self._stop.is_set():
            self._leave.set()
        self.signal = self.signal or number
        self._stop.set()

    async def _on_hosts(self, indices: "range | list[int]") -> None:
        async with asyncio.TaskGroup() as group:
            dialling = group.create_task(self._dial(indices, group), name="dial")
            stopped = group.create_task(self._stop.wait(), name="stop")
            await asyncio.wait([dialling, stopped], return_when=asyncio.FIRST_COMPLETED)
            dialling.cancel()
            stopped.cancel()

    async def _dial(self, indices: "range | list[int]", group: asyncio.TaskGroup) -> None:
        transports = [self._reached.transports[index] for index in indices]
        targets = [self._reached.targets[index] for index in indices]
        async for position, outcome in dial(transports, targets, connect_timeout=self._connect_timeout):
            index = indices[position]
            group.create_task(self._on_host(index, outcome), name=f"exec {self._reached.hosts[index].name}")

    async def _on_host(self, index: int, connection: Connection | HostError) -> None:
        outcome = self._outcomes[index] = Outcome(index, self._reached.hosts[index].name)
        if isinstance(connection, HostError):
            outcome.error = connection
        else:
            try:
                async with asyncio.timeout(self._connect_timeout):  # a link cut right after the login answers nothing
                    process = await connection.run(self._command)
                await self._run(outcome, process)
            except HostError as exc:
                outcome.error = exc
            except TimeoutError:
                reason = f"connected, but no session within {self._connect_timeout:g} s"
                outcome.error = ChannelRefused(reason, host=outcome.host)
            finally:
                await connection.close()
        if self._on_end is not None:
            await self._on_end(outcome)

    async def _run(self, outcome: Outcome, process: RemoteProcess) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._follow(outcome, process))
                stopped = group.create_task(self._stop.wait())
                left = group.create_task(self._leave.wait())
                await asyncio.wait([work, stopped], timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    outcome.is_stopped, outcome.is_timed_out = stopped.done(), not stopped.done()
                    await process.write_eof()  # what the command line waits for
                    patience = remote_command.GRACE + LAST_WORDS
                    await asyncio.wait([work, left], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                left.cancel()
                work.cancel()  # it may wait for a host that is silent, or for whoever reads our output
        finally:
            await process.close()
        if outcome.status is None and not outcome.is_stopped and not outcome.is_timed_out:
            outcome.error = HostLost("the connection was lost before the command ended", host=outcome.host)

    async def _follow(self, outcome: Outcome, process: RemoteProcess) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(outcome, 1, process.read))
            group.create_task(self._read(outcome, 2, process.read_diagnostics))
            outcome.status = await process.wait()

    async def _read(self, outcome: Outcome, number: int, read: Callable[[], Awaitable[bytes]]) -> None:
        kept = outcome.output[number]
        while chunk := await read():
            if self._on_output is not None:
                await self._on_output(outcome.index, number, chunk)
                continue
            room = KEPT - len(kept)
            kept += chunk[:room]
            outcome.left_out += max(0, len(chunk) - room)
