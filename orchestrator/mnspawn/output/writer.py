"""Writes bytes to file descriptors from its own thread, so that a stopped reader blocks nobody else.

Sets no bound: whoever fills it watches `backlog` (the engine takes no more output while it is high).
"""

import asyncio
import errno
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)
MERGE = 256 * 1024  # small blocks are joined up to here: one system call instead of many
WAKE_EVERY = 256 * 1024  # bytes written between two wake-ups of whoever waits for the backlog to fall
NO_DESCRIPTOR = -1  # stands for all in a failure that concerns no descriptor in particular
# the reader went away (`| head -1`, a closed terminal): normal, and not reported
READER_IS_GONE = frozenset({errno.EPIPE, errno.EIO, errno.ECONNRESET})


class ThreadedWriter:
    """One thread and one queue: blocks are written in the order in which they are put, whatever their descriptor.

    A descriptor that can't be written any more is given up: its blocks are dropped, and `on_failure` is called once,
    from the thread, with the descriptor and the error, unless its reader just went away. Any exception in the thread
    counts as such a failure, and nobody waits for a thread that has died.
    """

    def __init__(self, name: str, on_failure: Callable[[int, Exception], None] | None = None) -> None:
        self._name = name
        self._on_failure = on_failure
        self._queue: deque[tuple[int, bytes]] = deque()
        self._changed = threading.Condition()
        self._backlog = 0
        self._since_wake = 0
        self._wake: Callable[[], None] | None = None
        self._on_done: list[Callable[[], None]] = []
        self._is_closing = False
        self._broken: dict[int, Exception] = {}
        self._thread: threading.Thread | None = None
        self._has_ended = False

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet written."""
        return self._backlog

    def bind(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from the writing thread, whenever the backlog has fallen."""
        self._wake = wake

    def is_broken(self, fd: int) -> bool:
        """Whether the descriptor was given up."""
        return fd in self._broken or (self._has_ended and not self._is_closing)

    def put(self, fd: int, block: bytes) -> None:
        """Accept bytes for a descriptor. Never blocks."""
        if not block:
            return
        with self._changed:
            if self._is_closing or self._has_ended or fd in self._broken:
                return
            is_idle = not self._queue
            self._queue.append((fd, block))
            self._backlog += len(block)
            failure = None if self._thread is not None else self._start()
            if is_idle:  # else it gets here by itself: waking a thread costs more than writing most blocks
                self._changed.notify()
        if failure is not None:
            self._give_up_all(failure)

    def _start(self) -> Exception | None:
        # a daemon: a write to a stopped reader must not keep the process alive
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:  # no thread left on this system
            return exc
        self._thread = thread
        return None

    def close(self, on_done: Callable[[], None]) -> None:
        """Accept no more; call `on_done` from the thread once all that can be written is written."""
        with self._changed:
            self._is_closing = True
            if self._thread is not None and not self._has_ended:
                self._on_done.append(on_done)
                self._changed.notify()
                return
        on_done()

    def join(self) -> None:
        """Wait for the thread itself, after `on_done`."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Write until closed; then, whatever the reason, nothing waits and nobody waits for it."""
        try:
            self._write_all()
        except Exception as exc:  # noqa: BLE001 - a bug (no write raises here): what waits can't be written
            self._give_up_all(exc)
        finally:
            with self._changed:
                waiting, self._on_done = self._on_done, []
                self._has_ended = True
            for on_done in waiting:
                on_done()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closing:
                    self._changed.wait()
                if not self._queue:
                    return
                fd, block = self._take()
            self._write(fd, block)

    def _take(self) -> tuple[int, bytes]:
        fd, block = self._queue.popleft()
        if not self._queue or self._queue[0][0] != fd or len(block) >= MERGE:
            return fd, block
        blocks, size = [block], len(block)
        while self._queue and self._queue[0][0] == fd and size < MERGE:
            block = self._queue.popleft()[1]
            blocks.append(block)
            size += len(block)
        return fd, b"".join(blocks)

    def _write(self, fd: int, block: bytes) -> None:
        rest = memoryview(block)
        while rest and fd not in self._broken:
            try:
                count = self._write_some(fd, rest)
            except BlockingIOError:  # the descriptor is shared and was non-blocking before: leave it so
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
                continue
            except Exception as exc:  # noqa: BLE001 - an offset too large, a file closed elsewhere, ...
                self._give_up(fd, exc)
                break
            rest = rest[count:]
            self._settle(count)
        self._settle(len(rest))

    def _write_some(self, fd: int, block: memoryview) -> int:
        """Write some of the block's first bytes; return how many."""
        return os.write(fd, block)

    def _give_up_all(self, exc: Exception) -> None:
        with self._changed:
            self._has_ended = True  # nothing more is taken
            waiting = {fd for fd, _ in self._queue}
            self._queue.clear()
            left, self._backlog = self._backlog, 0
        for fd in waiting or {NO_DESCRIPTOR}:
            self._report(fd, exc)
        if left and self._wake is not None:
            with suppress(RuntimeError):  # as in _settle
                self._wake()

    def _give_up(self, fd: int, exc: Exception) -> None:
        with self._changed:
            self._broken[fd] = exc
            dropped = sum(len(block) for owner, block in self._queue if owner == fd)
            self._queue = deque((owner, block) for owner, block in self._queue if owner != fd)
        self._settle(dropped)
        if not isinstance(exc, OSError) or exc.errno not in READER_IS_GONE:
            self._report(fd, exc)

    def _report(self, fd: int, exc: Exception) -> None:
        if self._on_failure is not None:
            try:
                self._on_failure(fd, exc)
            except Exception:  # the thread has other descriptors to write to
                log.exception("%s: a failed write could not be reported", self._name)

    def _settle(self, count: int) -> None:
        if not count:
            return
        with self._changed:
            self._backlog -= count
            self._since_wake += count
            is_time = self._since_wake >= WAKE_EVERY or not self._backlog
            if is_time:
                self._since_wake = 0
        if is_time and self._wake is not None:
            with suppress(RuntimeError):  # the waiter's loop was closed meanwhile: nobody waits
                self._wake()


def reason_of(exc: Exception) -> str:
    """Return why a write failed, for people."""
    return (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__}: {exc}"


async def wait_written(writer: ThreadedWriter) -> None:
    """Close a writer and wait until all that can be written is written."""
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def on_done() -> None:
        with suppress(RuntimeError):  # as above
            loop.call_soon_threadsafe(is_done.set)

    writer.close(on_done)
    await is_done.wait()
    writer.join()
