"""A command over asyncssh: turns its session callbacks into a RemoteProcess, with back-pressure both ways."""

import contextlib

from mnspawn.transport.inbox import Streams
from mnspawn.transport.ssh.signals import status_of_signal

from .library import asyncssh

_STDERR = asyncssh.EXTENDED_DATA_STDERR


class Process(Streams, asyncssh.SSHClientSession[bytes]):
    """A RemoteProcess over one session channel."""

    def __init__(self) -> None:
        super().__init__()
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._status: int | None = None

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
        self._end()

    # -- what the engine calls
    async def write(self, chunk: bytes) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):  # the command has ended
                self._chan.write(chunk)
        await self._writable.wait()

    async def write_eof(self) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):
                self._chan.write_eof()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self._status

    async def close(self) -> None:
        chan = self._chan
        if chan is not None:
            chan.close()  # a dead peer never confirms this, so wake whoever waits at once
            self.connection_lost(None)
        self._discard()

    def pause_reading(self) -> None:
        if self._chan is not None:
            self._chan.pause_reading()

    def resume_reading(self) -> None:
        if self._chan is not None:
            self._chan.resume_reading()
