"""Brings an agent up on a connected host, or finds the one that is there. Decides nothing about the run."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mnspawn._version import __version__
from mnspawn.bootstrap import bundle, stub
from mnspawn.errors import BootstrapError, HostError
from mnspawn.transport.base import Connection, RemoteProcess
from mnspawn_agent.protocol.checks import MAX_PID

T = TypeVar("T")
Survivors = Sequence[tuple[int, str]]  # pids that outlived KILL, and why

DIAGNOSTICS_LIMIT = 65536  # the end of a host's stderr is enough to explain a failure
START_LIMIT = 60.0  # seconds for a host's Python to start, and for an agent to say hello; a cold one can take ten
SLOW = 8.0  # seconds that a login shell or a Python may take without a remark; hosts that share a machine take a few
LINE_LIMIT = 65536  # bytes of an answer of one line
LONGEST_REASON = 1000  # characters for why a process would not die
NEED_PYTHON = ("serve", "checkup")  # modes that say whether the interpreter that was asked for is there
DYING_WORDS = 2.0  # seconds for stderr and status to arrive after stdout ended


class Diagnostics:
    """Keeps the end of a process's stderr, which must be read so that it never blocks."""

    def __init__(self, process: RemoteProcess) -> None:
        self._tail = bytearray()
        self._reader = asyncio.create_task(self._read(process), name="diagnostics")

    async def _read(self, process: RemoteProcess) -> None:
        while chunk := await process.read_diagnostics():
            self._tail += chunk
            del self._tail[:-DIAGNOSTICS_LIMIT]

    @property
    def text(self) -> bytes:
        """What came so far."""
        return bytes(self._tail)

    async def finish(self) -> bytes:
        """Return all of it; waits a moment for its end."""
        await _within(DYING_WORDS, asyncio.shield(self._reader))
        return self.text

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])


class Wire:
    """A running agent's process, with its stderr and the bytes that were read after the handshake.

    Attributes:
        rest: bytes of the link, not yet looked at.
        is_cached: the host had the agent's archive already.
    """

    def __init__(self, host: str, process: RemoteProcess, rest: bytes = b"") -> None:
        self.host = host
        self.process = process
        self.diagnostics = Diagnostics(process)
        self.rest = rest
        self.is_cached = True

    async def wait_first_words(self, deadline: float) -> None:
        """Return when the agent has said something.

        Args:
            deadline: by the loop's clock.

        Raises:
            HostError: it says nothing.
        """
        try:
            async with asyncio.timeout_at(deadline):
                self.rest = self.rest or await self.process.read()
        except TimeoutError:
            hint = "is the network cut, or the host overloaded?"
            raise BootstrapError(
                "connected and its Python has started, but the agent says nothing in time", host=self.host, hint=hint
            ) from None
        if not self.rest:
            raise await self.explain_silence()

    async def read_line(self, most: int = LINE_LIMIT) -> bytes:
        """Return the next line, without its end.

        Raises:
            HostError: the agent ended first, or the line is longer than `most` bytes.
        """
        while b"\n" not in self.rest:
            chunk = await self.process.read()
            if not chunk or len(self.rest) > most:
                raise await self.explain_silence()
            self.rest += chunk
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    async def explain_silence(self) -> HostError:
        """Return the error for an agent that came up and ended before it answered."""
        words = (await self.diagnostics.finish()).decode("utf-8", "replace").strip().splitlines()
        status = await _within(DYING_WORDS, self.process.wait())
        reason = words[-1][:300] if words else "it said nothing"
        return BootstrapError(f"the agent ended with status {status}: {reason}", host=self.host)

    async def close(self) -> None:
        await self.process.close()
        await self.diagnostics.close()


async def join(
    connection: Connection, host: str, arguments: tuple[str, ...], python: str | None, timeout: float,
    patience: float | None = None, on_slow: Callable[[str], None] | None = None, *, is_only: bool = True,
) -> Wire:  # fmt: skip
    """Start the agent in one of its modes.

    Args:
        timeout: seconds for the host's login shell to run our command.
        patience: seconds for the host's Python to start after that; None for what is left of `timeout`.
        on_slow: called with a line about what was slow to start.
        is_only: False lets any other interpreter run the agent where there is no `python`: a prelude may lead to that.

    Raises:
        HostError: no agent came up; the class says why.
    """
    archive = bundle.build()
    is_only = is_only and arguments[0] in NEED_PYTHON
    handshake = stub.Handshake(host, stub.make_nonce(), python if is_only else None)
    command = stub.command_line(archive, handshake.nonce, __version__, arguments, python, is_only=is_only)
    now = asyncio.get_running_loop().time
    began = now()
    deadline = began + timeout
    try:
        async with asyncio.timeout_at(deadline):
            process = await connection.run(command)
    except TimeoutError:
        raise BootstrapError(f"connected, but no command was started within {timeout:g} s", host=host) from None
    wire = Wire(host, process)
    try:
        async with asyncio.timeout_at(deadline) as limit:
            rest = None
            while rest is None:
                chunk = await process.read()
                if not chunk:
                    diagnostics = await wire.diagnostics.finish()
                    raise handshake.explain_end(await _within(DYING_WORDS, process.wait()), diagnostics)
                had_shell = handshake.has_shell
                rest = handshake.feed(chunk)
                if handshake.has_shell and not had_shell:
                    _report_slow("its login shell", now() - began, on_slow)
                    began = now()
                    if patience is not None:
                        limit.reschedule(max(deadline, began + patience))
            _report_slow(f"its Python ({python or 'python3'})", now() - began, on_slow)
            wire.rest, wire.is_cached = rest, handshake.answer == "have"
            if handshake.answer == "need":
                await process.write(archive.content)
        return wire
    except TimeoutError:
        await wire.close()
        seconds = max(timeout, patience or 0.0) if handshake.has_shell else timeout
        raise handshake.explain_delay(seconds, wire.diagnostics.text) from None
    except BaseException:
        await wire.close()
        raise


def _report_slow(what: str, seconds: float, on_slow: Callable[[str], None] | None) -> None:
    if on_slow is not None and seconds >= SLOW:
        on_slow(f"{what} took {seconds:.1f} s to start")


async def enter(
    connection: Connection, host: str, words: tuple[str, ...], python: str | None, timeout: float
) -> Wire | None:
    """Open a wire to something that is there already; None when it is not, or not any more.

    Args:
        words: `attach RUN NODE_RANK` for the agent itself, `watch RUN NODE_RANK` for what it leaves in its folder.

    Raises:
        HostError: the host does not say.
    """
    wire = await join(connection, host, words, python, timeout, START_LIMIT)
    is_there = False
    try:
        is_there = await _answer(wire, timeout) == b"here"
    finally:
        if not is_there:
            await wire.close()
    return wire if is_there else None


@dataclass(frozen=True, slots=True)
class Reaped:
    """What came of ending all processes of a pod. `is_clean`: the host said that nothing is left."""

    is_clean: bool
    survivors: Survivors = ()


async def reap(
    connection: Connection, host: str, run: str, node_rank: int, python: str | None, timeout: float
) -> Reaped:
    """End what an agent that died has left.

    Raises:
        HostError: the host does not say what is left.
    """
    wire = await join(connection, host, ("reap", run, str(node_rank)), python, timeout, START_LIMIT)
    try:
        line = await _answer(wire, timeout)
    finally:
        await wire.close()
    if line.strip() == b"left":
        return Reaped(is_clean=True)
    return Reaped(False, _survivors(line))


def _survivors(line: bytes) -> Survivors:
    """Return what a host reports as left; nothing when it makes no sense."""
    try:
        pairs = json.loads(line.decode("ascii").removeprefix("left "))
        return tuple((int(pid), str(reason)[:LONGEST_REASON]) for pid, reason in pairs if 0 < int(pid) < MAX_PID)
    except (ValueError, TypeError):
        return ()


async def _answer(wire: Wire, timeout: float) -> bytes:
    try:
        async with asyncio.timeout(timeout):
            return await wire.read_line()
    except TimeoutError:
        raise BootstrapError("the host does not answer", host=wire.host) from None


async def _within(seconds: float, waited: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(seconds):
            return await waited
    except TimeoutError:
        return None
