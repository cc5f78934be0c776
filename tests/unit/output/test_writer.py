"""The writing thread: nothing lost, nobody blocked, readers that stop or go away."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mnspawn.output.writer import ThreadedWriter, reason_of, wait_written
from tests.support import PATIENCE, wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, fd = os.pipe()
    yield reader, fd
    for end in (reader, fd):
        with suppress(OSError):  # tests close one of them
            os.close(end)


def read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def test_everything_is_written_in_order(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = ThreadedWriter("test")
    blocks = [b"%d\n" % i for i in range(100_000)]
    for block in blocks:
        writer.put(fd, block)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(read_all(reader)))
    thread.start()
    asyncio.run(wait_written(writer))
    os.close(fd)
    thread.join(PATIENCE)
    assert got == [b"".join(blocks)]
    assert writer.backlog == 0


def test_a_stopped_reader_blocks_nobody_and_the_backlog_tells(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = ThreadedWriter("test")
    woken = threading.Event()
    writer.bind(woken.set)
    for _ in range(64):
        writer.put(fd, b"x" * 65536)  # returns, though nobody has read a byte
    assert writer.backlog > 3_000_000
    count = 0
    while count < 64 * 65536:
        count += len(os.read(reader, 1 << 20))
    assert woken.wait(PATIENCE)
    asyncio.run(wait_written(writer))


def test_a_reader_that_went_away_is_no_failure(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    failures: list[Exception] = []
    writer = ThreadedWriter("test", lambda fd, exc: failures.append(exc))
    writer.put(fd, b"x" * 1_000_000)
    os.close(reader)
    wait_until(lambda: writer.is_broken(fd))
    writer.put(fd, b"more")
    asyncio.run(wait_written(writer))
    assert (writer.backlog, failures) == (0, [])


def test_a_full_disk_is_told_once_and_the_other_descriptor_goes_on(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    failures: list[str] = []
    writer = ThreadedWriter("test", lambda fd, exc: failures.append(reason_of(exc)))
    full = os.open("/dev/full", os.O_WRONLY)
    for _ in range(3):
        writer.put(full, b"x")
        writer.put(fd, b"y")
    asyncio.run(wait_written(writer))
    os.close(full)
    assert failures == ["No space left on device"]
    assert os.read(reader, 10) == b"yyy"


def test_a_non_blocking_descriptor_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    os.set_blocking(fd, False)
    writer = ThreadedWriter("test")
    writer.put(fd, b"x" * 1_000_000)
    got = b""
    while len(got) < 1_000_000:
        got += os.read(reader, 1 << 20)
    asyncio.run(wait_written(writer))
    assert (len(got), writer.backlog) == (1_000_000, 0)


def test_closing_twice_and_closing_unused_return_at_once(pipe: tuple[int, int]) -> None:
    writer = ThreadedWriter("test")
    asyncio.run(wait_written(writer))
    asyncio.run(wait_written(writer))
    writer.put(pipe[1], b"too late")
    assert writer.backlog == 0


# -- whatever goes wrong in the thread


class Failing(ThreadedWriter):
    """Raises where a test wants it to."""

    error: Exception = ValueError("no such luck")
    is_broken_itself = False

    def _write_some(self, fd: int, block: memoryview) -> int:
        if fd == 77:
            raise self.error
        return len(block)

    def _take(self) -> tuple[int, bytes]:
        if self.is_broken_itself:
            raise self.error
        return super()._take()


async def written(writer: ThreadedWriter) -> None:
    async with asyncio.timeout(PATIENCE):
        await wait_written(writer)


@pytest.mark.parametrize("error", [ValueError("no such luck"), OverflowError("too large"), MemoryError()])
def test_any_exception_is_a_failed_write_and_the_others_go_on(error: Exception) -> None:
    told: list[tuple[int, str]] = []
    writer = Failing("test", lambda fd, exc: told.append((fd, reason_of(exc))))
    writer.error = error
    for fd in (77, 3, 77, 3):
        writer.put(fd, b"x")
    asyncio.run(written(writer))
    assert told == [(77, f"{type(error).__name__}: {error}")]
    assert (writer.backlog, writer.is_broken(77), writer.is_broken(3)) == (0, True, False)


def test_a_failure_that_can_not_be_told_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def on_failure(fd: int, exc: Exception) -> None:
        raise RuntimeError("nor that")

    writer = Failing("test", on_failure)
    writer.put(77, b"x")
    writer.put(3, b"y")
    asyncio.run(written(writer))
    assert writer.backlog == 0
    assert "a failed write could not be reported" in caplog.text


def test_nobody_waits_for_a_thread_that_is_dead() -> None:
    told: list[int] = []
    writer = Failing("test", lambda fd, exc: told.append(fd))
    woken = threading.Event()
    writer.bind(woken.set)
    writer.is_broken_itself = True
    writer.put(3, b"x")
    wait_until(lambda: writer.is_broken(3))
    assert woken.wait(PATIENCE)
    assert (told, writer.backlog) == ([3], 0)
    writer.put(4, b"dropped")
    assert writer.backlog == 0
    asyncio.run(written(writer))


def test_a_system_without_threads_is_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    told: list[str] = []
    writer = ThreadedWriter("test", lambda fd, exc: told.append(str(exc)))
    monkeypatch.setattr(threading.Thread, "start", start)
    writer.put(3, b"x")
    writer.put(3, b"y")
    monkeypatch.undo()
    assert (told, writer.backlog, writer.is_broken(3)) == (["can't start new thread"], 0, True)
    asyncio.run(written(writer))
