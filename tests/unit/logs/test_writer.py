"""The writing thread: nothing lost, nobody blocked, readers that stop or go away."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mnspawn.logs.writer import ThreadedWriter, wait_written
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
    failures: list[OSError] = []
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
    writer = ThreadedWriter("test", lambda fd, exc: failures.append(exc.strerror or ""))
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
