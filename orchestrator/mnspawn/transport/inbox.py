"""Bytes that have arrived and wait to be read, with a bound that stops the sender. Knows no transport."""

import asyncio
from collections import deque
from collections.abc import Callable

# twice the channel window: a full window may still be in flight when the sender is stopped
LIMIT = 4 << 20


class Inbox:
    """One inbound stream: `put` from a callback, `get` from a task.

    Over `LIMIT` unread bytes `pause` is called, under half of it `resume`.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None], limit: int = LIMIT) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._limit = limit
        self._pause = pause
        self._resume = resume
        self._paused = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        if self._ended or not chunk:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._limit and not self._paused:
            self._paused = True
            self._pause()
        self._wake()

    def end(self) -> None:
        """No more will come; what is here can still be read."""
        self._ended = True
        self._wake()

    def discard(self) -> None:
        """End, and forget what was not read."""
        self._chunks.clear()
        self._size = 0
        self.end()

    async def get(self) -> bytes:
        """Return all that is here, waiting for at least one byte; b"" at the end. One reader at a time."""
        while not self._chunks and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunks = b"".join(self._chunks) if len(self._chunks) != 1 else self._chunks[0]
        self._chunks.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self._resume()
        return chunks

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Streams:
    """The half of a RemoteProcess that does not depend on how the command is reached.

    Subclasses put what arrives into `_stdout` and `_stderr`, clear `_writable` while input is held up, and call `_end`.
    """

    def __init__(self) -> None:
        self._stdout = Inbox(self._on_full, self._on_emptied)
        self._stderr = Inbox(self._on_full, self._on_emptied)
        self._full = 0  # inboxes over their bound
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()

    def pause_reading(self) -> None:
        """Let no more output arrive."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        raise NotImplementedError

    async def read(self) -> bytes:
        return await self._stdout.get()

    async def read_diagnostics(self) -> bytes:
        return await self._stderr.get()

    def _end(self) -> None:
        """Wake whoever waits: nothing more will happen."""
        self._stdout.end()
        self._stderr.end()
        self._writable.set()
        self._ended.set()

    def _discard(self) -> None:
        self._stdout.discard()
        self._stderr.discard()

    def _on_full(self) -> None:
        self._full += 1
        self.pause_reading()

    def _on_emptied(self) -> None:
        self._full -= 1
        if not self._full:
            self.resume_reading()
