"""One suite for every transport: what the engine relies on, whichever carries it."""

import asyncio
import gc
import os
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from mnspawn.transport import RemoteProcess
from tests.ssh.conftest import SSH
from tests.ssh.places import Place, local_place, memory_place, ssh_place
from tests.support import PATIENCE, LocalSshd, wait_until_async

MB = 1_000_000


@pytest_asyncio.fixture(params=[*SSH, "local", "memory"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        if request.param in SSH:
            server: LocalSshd = request.getfixturevalue("local_sshd")
            yield await stack.enter_async_context(ssh_place(request.param, server))
        else:
            yield await stack.enter_async_context(local_place() if request.param == "local" else memory_place())


async def read_all(process: RemoteProcess) -> bytes:
    chunks = []
    while chunk := await process.read():
        chunks.append(chunk)
    return b"".join(chunks)


async def test_what_goes_in_comes_out(place: Place) -> None:
    process = await (await place.connect()).run("cat")
    await process.write(bytes(range(256)))
    assert await process.read() == bytes(range(256))
    await process.write_eof()
    assert await read_all(process) == b""
    assert await process.wait() == 0


@pytest.mark.parametrize("place", SSH, indirect=True)  # the others are for tests, which look at what went over them
async def test_nothing_is_kept_of_a_connection_that_was_closed(place: Place) -> None:
    connection = await place.connect()
    process = await connection.run("true")
    assert await read_all(process) == b""
    await connection.close()
    kept = weakref.ref(connection), weakref.ref(process)
    del connection, process

    def is_kept() -> bool:
        gc.collect()
        return any(one() is not None for one in kept)

    await wait_until_async(lambda: not is_kept())


async def test_a_closed_stdin_leaves_stdout_open(place: Place) -> None:
    process = await (await place.connect()).run("cat; echo and more")
    await process.write(b"one\n")
    await process.write_eof()
    assert await read_all(process) == b"one\nand more\n"


async def test_stderr_comes_apart(place: Place) -> None:
    process = await (await place.connect()).run("echo out; echo err >&2")
    assert (await read_all(process), await process.read_diagnostics()) == (b"out\n", b"err\n")


@pytest.mark.parametrize("status", [0, 1, 7, 126, 255])
async def test_the_exit_status_comes_back(place: Place, status: int) -> None:
    process = await (await place.connect()).run(f"exit {status}")
    assert await process.wait() == status


async def test_death_by_signal_is_told_as_a_shell_does(place: Place) -> None:
    process = await (await place.connect()).run("kill -KILL $$")
    assert await process.wait() == (255 if place.name == "openssh" else 137)  # ssh does not tell the signal


@pytest.mark.full
async def test_many_bytes_go_both_ways_at_once(place: Place) -> None:
    process = await (await place.connect()).run("cat")
    chunk = os.urandom(MB)
    total = 100

    async def send() -> None:
        for _ in range(total):
            await process.write(chunk)
        await process.write_eof()

    received = 0
    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        while data := await process.read():
            received += len(data)
    assert (received, await process.wait()) == (total * MB, 0)


def stays_the_same(number: Callable[[], int]) -> Callable[[], bool]:
    """A condition: a number has not changed for a hundred looks."""
    seen, times = -1, 0

    def has_stayed() -> bool:
        nonlocal seen, times
        seen, times = number(), times + 1 if number() == seen else 0
        return times == 100

    return has_stayed


@pytest.mark.full
async def test_output_that_nobody_reads_stops_the_command(place: Place, tmp_path: Path) -> None:
    process = await (await place.connect()).run(f"head -c {200 * MB} /dev/zero")
    inbox = process._stdout if hasattr(process, "_stdout") else process._stdio.stdout._inbox  # type: ignore[attr-defined]
    await wait_until_async(lambda: inbox._size > MB)
    await wait_until_async(stays_the_same(lambda: inbox._size))  # the bound is reached, and no more comes
    assert inbox._size < 16 * MB
    assert len(await read_all(process)) == 200 * MB


@pytest.mark.full
async def test_input_that_nobody_reads_stops_the_writer(place: Place) -> None:
    process = await (await place.connect()).run("exec sleep 600")
    written = 0

    async def write_on() -> None:
        nonlocal written
        while written < 100 * MB:
            await process.write(bytes(MB))
            written += MB

    writing = asyncio.create_task(write_on())
    await wait_until_async(stays_the_same(lambda: written))
    writing.cancel()
    assert written < 40 * MB
    await process.close()


async def test_a_cancelled_read_loses_nothing(place: Place) -> None:
    process = await (await place.connect()).run("cat")
    reading = asyncio.ensure_future(process.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await process.write(b"later")
    assert await process.read() == b"later"


async def test_writing_to_a_command_that_ended_is_no_error(place: Place) -> None:
    process = await (await place.connect()).run("exit 3")
    await process.wait()
    await process.write(bytes(4 * MB))
    await process.write_eof()
    assert await process.wait() == 3


async def test_several_commands_share_a_connection(place: Place) -> None:
    connection = await place.connect()
    processes = [await connection.run(f"echo {number}; exit {number}") for number in range(3)]
    assert [(await read_all(p), await p.wait()) for p in processes] == [(b"0\n", 0), (b"1\n", 1), (b"2\n", 2)]


async def test_closing_wakes_who_waits(place: Place) -> None:
    process = await (await place.connect()).run("exec sleep 600")
    waiting = asyncio.ensure_future(process.wait())
    reading = asyncio.ensure_future(process.read())
    await asyncio.sleep(0)
    await process.close()
    async with asyncio.timeout(PATIENCE):
        assert await reading == b""
        assert await waiting is None


@pytest.mark.parametrize("place", [*SSH, "memory"], indirect=True)  # local has no link that could be cut
async def test_a_cut_link_ends_everything_without_a_status(place: Place) -> None:
    process = await (await place.connect()).run("exec sleep 600")
    waiting = asyncio.ensure_future(process.wait())
    place.cut()
    async with asyncio.timeout(PATIENCE):
        assert await read_all(process) == b""
        assert await waiting is None
        await process.write(b"to nobody")
