"""Brings an agent up on a connected host, or finds the one that is there. Decides nothing about the run."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mnspawn._version import __version__
from mnspawn.bootstrap import bundle, stub
from mnspawn.errors import BootstrapError, HostError
from mnspawn.transport.base import Connection, RemoteProcess
from mnspawn_agent.protocol import framing
from mnspawn_agent.protocol.checks import MAX_PID

T = TypeVar("T")
Survivors = Sequence[tuple[int, str]]  # pids that outlived KILL, and why

DIAGNOSTICS_LIMIT = 65536  # the end of what a host says on stderr is enough to explain a failure
START_LIMIT = 60.0  # seconds for a host's Python to start, and for an agent to say hello; a cold one can take ten
SLOW = 8.0  # seconds that a login shell or a Python may take before it is told; hosts that share a machine take a few
LONGEST_REASON = 1000  # characters for why a process would not die
NEED_PYTHON = ("serve", "checkup")  # modes that tell whether the interpreter that was asked for is there
DYING_WORDS = 2.0  # seconds for stderr and status to arrive after stdout ended


class Diagnostics:
    """Keeps the end of a process' stderr, which must be read so that it never blocks."""

    def __init__(self, process: RemoteProcess) -> None:
        self._tail = bytearray()
        self._reader = asyncio.create_task(self._read(process), name="diagnostics")

    async def _read(self, process: RemoteProcess) -> None:
        while chunk := await process.read_diagnostics():
            self._tail += chunk
            del self._tail[:-DIAGNOSTICS_LIMIT]

    @property
    def said(self) -> bytes:
        """What was said so far."""
        return bytes(self._tail)

    async def finish(self) -> bytes:
        """What was said, once it ended; waits for it a moment."""
        await _within(DYING_WORDS, asyncio.shield(self._reader))
        return self.said

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])


async def join(
    connection: Connection, host: str, arguments: tuple[str, ...], python: str | None, timeout: float,
    patience: float | None = None, on_slow: Callable[[str], None] | None = None, *, is_only: bool = True,
) -> tuple[RemoteProcess, Diagnostics, bytes, bool]:  # fmt: skip
    """Start the agent in one of its modes.

    Args:
        timeout: seconds for the host's login shell to run our command.
        patience: seconds for the host's Python to start after that; None for what is left of `timeout`.
        on_slow: takes a line about what has held it up.
        is_only: False lets any other interpreter run the agent where there is no `python`: a prelude may lead to that.

    Returns:
        The process, its diagnostics, the first bytes of the link, and whether the archive was cached.

    Raises:
        HostError: no agent came up; the class says why.
    """
    archive = bundle.build()
    is_only = is_only and arguments[0] in NEED_PYTHON
    handshake = stub.Handshake(host, stub.make_nonce(), python if is_only else None)
    command = stub.compose(archive, handshake.nonce, __version__, arguments, python, is_only=is_only)
    now = asyncio.get_running_loop().time
    began = now()
    deadline = began + timeout
    try:
        async with asyncio.timeout_at(deadline):
            process = await connection.run(command)
    except TimeoutError:
        raise BootstrapError(f"connected, but no command was started within {timeout:g} s", host=host) from None
    diagnostics = Diagnostics(process)
    try:
        async with asyncio.timeout_at(deadline) as limit:
            rest = None
            while rest is None:
                chunk = await process.read()
                if not chunk:
                    said = await diagnostics.finish()
                    raise handshake.explain_end(await _within(DYING_WORDS, process.wait()), said)
                had_shell = handshake.has_shell
                rest = handshake.feed(chunk)
                if handshake.has_shell and not had_shell:
                    _tell_slow("its login shell", now() - began, on_slow)
                    began = now()
                    if patience is not None:
                        limit.reschedule(max(deadline, began + patience))
            _tell_slow(f"its Python ({python or 'python3'})", now() - began, on_slow)
            if handshake.answer == "need":
                await process.write(archive.content)
        return process, diagnostics, rest, handshake.answer == "have"
    except TimeoutError:
        await abandon(process, diagnostics)
        seconds = max(timeout, patience or 0.0) if handshake.has_shell else timeout
        raise handshake.explain_delay(seconds, diagnostics.said) from None
    except BaseException:
        await abandon(process, diagnostics)
        raise


def _tell_slow(what: str, seconds: float, on_slow: Callable[[str], None] | None) -> None:
    if on_slow is not None and seconds >= SLOW:
        on_slow(f"{what} took {seconds:.1f} s to start")


async def first_words(process: RemoteProcess, diagnostics: Diagnostics, host: str, deadline: float) -> bytes:
    """What an agent says first, of itself.

    Args:
        deadline: by the loop's clock.

    Raises:
        HostError: it says nothing.
    """
    try:
        async with asyncio.timeout_at(deadline):
            if chunk := await process.read():
                return chunk
    except TimeoutError:
        hint = "is the network cut, or the host overloaded?"
        raise BootstrapError(
            "connected and its Python has started, but the agent says nothing in time", host=host, hint=hint
        ) from None
    raise await explain_silence(process, diagnostics, host)


async def explain_silence(process: RemoteProcess, diagnostics: Diagnostics, host: str) -> HostError:
    """The error for an agent that came up and ended before it said hello."""
    said = (await diagnostics.finish()).decode("utf-8", "replace").strip().splitlines()
    status = await _within(DYING_WORDS, process.wait())
    reason = said[-1][:300] if said else "it said nothing"
    return BootstrapError(f"the agent ended with status {status}: {reason}", host=host)


async def enter(
    connection: Connection, host: str, words: tuple[str, ...], python: str | None, timeout: float
) -> tuple[RemoteProcess, Diagnostics, bytes] | None:
    """A wire to something that is there already; None when it is not, or not any more.

    Args:
        words: `attach RUN NODE_RANK` for the agent itself, `watch RUN NODE_RANK` for what it leaves in its folder.

    Raises:
        HostError: nothing can be said about it.
    """
    process, diagnostics, rest, _ = await join(connection, host, words, python, timeout, START_LIMIT)
    try:
        async with asyncio.timeout(timeout):
            word, rest = await _read_line(process, rest, host)
        if word == b"here":
            return process, diagnostics, rest
    except TimeoutError:
        await abandon(process, diagnostics)
        raise BootstrapError("the host does not answer", host=host) from None
    except BaseException:
        await abandon(process, diagnostics)
        raise
    await abandon(process, diagnostics)
    return None


async def reap(
    connection: Connection,
    host: str,
    run: str,
    node_rank: int,
    python: str | None,
    timeout: float,
    tell: Callable[[Survivors], None] = lambda survivors: None,
) -> bool:
    """End what an agent that died has left; True when nothing is left.

    Args:
        tell: is told what would not die.

    Raises:
        HostError: nothing can be said about it.
    """
    process, diagnostics, rest, _ = await join(
        connection, host, ("reap", run, str(node_rank)), python, timeout, START_LIMIT
    )
    try:
        async with asyncio.timeout(timeout):
            word, _ = await _read_line(process, rest, host)
    except TimeoutError:
        raise BootstrapError("the host does not answer", host=host) from None
    finally:
        await abandon(process, diagnostics)
    if word.strip() == b"left":
        return True
    tell(_survivors(word))
    return False


def _survivors(word: bytes) -> Survivors:
    """What a host says is left; nothing when it makes no sense."""
    try:
        pairs = json.loads(word.decode("ascii").removeprefix("left "))
        return tuple((int(pid), str(reason)[:LONGEST_REASON]) for pid, reason in pairs if 0 < int(pid) < MAX_PID)
    except (ValueError, TypeError):
        return ()


async def _read_line(process: RemoteProcess, rest: bytes, host: str) -> tuple[bytes, bytes]:
    while b"\n" not in rest:
        chunk = await process.read()
        if not chunk or len(rest) > framing.HEADER.size + DIAGNOSTICS_LIMIT:
            raise BootstrapError("the host does not answer", host=host)
        rest += chunk
    line, _, rest = rest.partition(b"\n")
    return line, rest


async def abandon(process: RemoteProcess, diagnostics: Diagnostics) -> None:
    await process.close()
    await diagnostics.close()


async def _within(seconds: float, waited: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(seconds):
            return await waited
    except TimeoutError:
        return None
