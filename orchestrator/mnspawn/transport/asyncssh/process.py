"""A command over asyncssh: session callbacks on one side, a RemoteProcess on the other, back-pressure both ways."""

import asyncio
import contextlib
import signal

from mnspawn.transport.inbox import Inbox

from .library import asyncssh

_STDERR = asyncssh.EXTENDED_DATA_STDERR


class Process(asyncssh.SSHClientSession[bytes]):
    """A RemoteProcess over one session channel."""

    def __init__(self) -> None:
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._stdout = Inbox(self._pause, self._resume)
        self._stderr = Inbox(self._pause, self._resume)
        self._full = 0  # inboxes over their bound
        self._status: int | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    # -- what asyncssh calls
    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        self._chan = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        (self._stderr if datatype == _STDERR else self._stdout).put(data)

    def eof_received(self) -> bool:
        self._stdout.end()
        self._stderr.end()
        return True  # our own side stays open

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._status = status_of_signal(signal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._chan = None
        self._stdout.end()
        self._stderr.end()
        self._writable.set()
        self._closed.set()

    # -- what the engine calls
    async def read(self) -> bytes:
        return await self._stdout.get()

    async def read_diagnostics(self) -> bytes:
        return await self._stderr.get()

    async def write(self, chunk: bytes) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):  # the command is gone: wait() tells
                self._chan.write(chunk)
        await self._writable.wait()

    async def write_eof(self) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):
                self._chan.write_eof()

    async def wait(self) -> int | None:
        await self._closed.wait()
        return self._status

    async def close(self) -> None:
        chan = self._chan
        if chan is not None:
            chan.close()  # a dead peer never confirms this, so what waits here is woken at once
            self.connection_lost(None)
        self._stdout.discard()
        self._stderr.discard()

    def _pause(self) -> None:
        self._full += 1
        if self._chan is not None:
            self._chan.pause_reading()

    def _resume(self) -> None:
        self._full -= 1
        if self._full == 0 and self._chan is not None:
            self._chan.resume_reading()


def status_of_signal(name: str) -> int:
    """128+n for the signal that SSH calls `name` (without SIG); 255 for one that this system does not know."""
    number = getattr(signal, f"SIG{name.partition('@')[0]}", None)
    return 128 + int(number) if isinstance(number, signal.Signals) else 255
