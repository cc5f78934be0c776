"""A command over paramiko: the channel's descriptor in the loop for reading, a thread of its own for writing.

paramiko's send blocks while the window or the socket is full, and does not notify anybody of room.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST
from paramiko.transport import Transport

from mnspawn.transport.inbox import Streams
from mnspawn.transport.ssh import internals
from mnspawn.transport.ssh.signals import status_of_signal

_CHUNK = 1 << 18
_HIGH = 1 << 18  # bytes that wait for the writer before write() waits


class _Line(str):
    """Text of any encoding that enters the exchange hash unchanged."""

    def __new__(cls, line: bytes) -> "_Line":
        return super().__new__(cls, line.decode("utf-8", "surrogateescape"))

    def encode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> bytes:
        return super().encode(encoding, "surrogateescape")


class SignallingTransport(Transport):
    """paramiko's Transport, with exit-signal, which paramiko itself drops. Logs at debug level only."""

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        read_line = self.packetizer.readline

        def readline(timeout: float) -> str:
            """A line before the protocol begins; paramiko itself takes UTF-8 only."""
            try:
                return read_line(timeout)
            except UnicodeDecodeError as exc:
                return _Line(exc.object)

        self.packetizer.readline = readline  # type: ignore[method-assign]

    def _log(self, level: int, msg: Any, *args: Any) -> None:
        # its errors come as exceptions, too; as log records they would put tracebacks on the user's terminal
        super()._log(min(level, logging.DEBUG), msg, *args)  # type: ignore[misc]


def _reading_signals(handle: Callable[..., None]) -> Callable[[paramiko.Channel, paramiko.Message], None]:
    def on_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
        position = message.packet.tell()
        if message.get_text() == "exit-signal":
            message.get_boolean()
            channel.exit_status = status_of_signal(message.get_text())
            channel.status_event.set()
            return
        message.packet.seek(position)
        handle(channel, message)

    return on_request


internals.with_requests(SignallingTransport, paramiko.Channel, _reading_signals, MSG_CHANNEL_REQUEST)


class Process(Streams):
    """A RemoteProcess over one channel on which a command was started."""

    def __init__(self, channel: paramiko.Channel) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._pending = 0
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._eof = b""  # in the outbox: the end of input
        channel.setblocking(True)
        self._fd = channel.fileno()
        self._is_watched = False
        self.resume_reading()
        self._writer = threading.Thread(target=self._write_all, name="paramiko writer", daemon=True)
        self._writer.start()

    # -- output, in the loop
    def resume_reading(self) -> None:
        if not self._is_watched and not self._ended.is_set():
            self._loop.add_reader(self._fd, self._on_readable)
            self._is_watched = True

    def pause_reading(self) -> None:
        if self._is_watched:
            self._loop.remove_reader(self._fd)
            self._is_watched = False

    def _on_readable(self) -> None:
        channel = self._channel
        if channel.recv_ready():
            self._stdout.put(channel.recv(_CHUNK))
        if channel.recv_stderr_ready():
            self._stderr.put(channel.recv_stderr(_CHUNK))
        if (channel.eof_received or channel.closed) and not channel.recv_ready() and not channel.recv_stderr_ready():
            self.pause_reading()  # the descriptor stays readable for ever
            self._stdout.end()
            self._stderr.end()
            if channel.closed:
                self._finish()
            else:  # output has ended, the command has not: the status comes with the channel's end
                self._loop.call_later(0.01, self._on_readable)

    def _finish(self) -> None:
        if not self._ended.is_set():
            self.pause_reading()
            self._outbox.put(None)
            self._end()

    # -- input
    def _write_all(self) -> None:
        while (chunk := self._outbox.get()) is not None:
            # usually the command has ended; whatever it is, nobody may wait for us for ever
            with contextlib.suppress(Exception):
                if chunk is self._eof:
                    self._channel.shutdown_write()
                else:
                    self._channel.sendall(chunk)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._written, len(chunk))

    def _written(self, size: int) -> None:
        self._pending -= size
        if self._pending <= _HIGH:
            self._writable.set()

    async def write(self, chunk: bytes) -> None:
        if not chunk or self._ended.is_set():
            return
        self._pending += len(chunk)
        self._outbox.put(bytes(chunk))
        if self._pending > _HIGH:
            self._writable.clear()
            await self._writable.wait()

    async def write_eof(self) -> None:
        self._outbox.put(self._eof)

    # -- its end
    async def wait(self) -> int | None:
        await self._ended.wait()
        has_status: Any = self._channel.status_event.is_set() and self._channel.exit_status >= 0
        return int(self._channel.exit_status) if has_status else None

    async def close(self) -> None:
        self._finish()
        self._channel.close()
        self._discard()

    @property
    def is_over(self) -> bool:
        """It was closed, and its writer has ended."""
        return self._ended.is_set() and not self._writer.is_alive()

    def join(self) -> None:
        """Wait for the writer; the transport is closed, so that nothing can hold it up."""
        self._finish()
        self._writer.join()
