import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from mnspawn.bootstrap import bundle, stub
from mnspawn.engine.link import join
from mnspawn.engine.look.ask import ask_on
from mnspawn.errors import (
    BootstrapError,
    ChannelRefused,
    HostError,
    PythonMissing,
    PythonTooOld,
    ShellRefused,
    UsageError,
)
from mnspawn.transport.base import Target
from tests.support import PATIENCE, wait_until_async
from tests.support.memory_transport import MemoryConnection, MemoryHost, MemoryProcess, MemoryTransport, Stdio

SHORT = 1.0  # seconds, where time must run out
Talk = Callable[[Stdio, str], Awaitable[int]]


def nonce_in(command: str) -> str:
    found = re.search(r"' '([0-9a-f]{16})' '", command)
    assert found
    return found.group(1)


async def connect(talk: Talk) -> MemoryConnection:
    async def program(stdio: Stdio, command: str) -> int:
        return await talk(stdio, nonce_in(command))

    transport = MemoryTransport(hosts={"h1": MemoryHost(program)})
    return await transport.connect(Target("h1"))


def saying(*chunks: bytes, status: int = 0, stderr: bytes = b"", stays: bool = True) -> Talk:
    """A host that says these things; NONCE stands for the nonce."""

    async def talk(stdio: Stdio, nonce: str) -> int:
        if stderr:
            await stdio.stderr.write(stderr)
        for chunk in chunks:
            await stdio.stdout.write(chunk.replace(b"NONCE", nonce.encode()))
        if stays:
            while await stdio.stdin.read():
                pass
        return status

    return talk


async def joined(talk: Talk, python: str | None = None) -> tuple[bytes, bool]:
    """(first bytes of the link, whether the archive was cached)."""
    connection = await connect(talk)
    try:
        wire = await join.join(connection, "h1", ("serve",), python, timeout=PATIENCE)
        await wire.close()
    finally:
        await connection.close()
    return wire.rest, wire.is_cached


async def refused(talk: Talk, python: str | None = None) -> HostError:
    with pytest.raises(HostError) as caught:
        await joined(talk, python)
    assert caught.value.host == "h1"
    return caught.value


# -- an agent that comes up


async def test_a_host_that_has_the_archive_is_sent_nothing() -> None:
    first = b"what is said first"
    came = asyncio.get_running_loop().create_future()

    async def talk(stdio: Stdio, nonce: str) -> int:
        await stdio.stdout.write(b"\nMNSPAWN %s have\nlink" % nonce.encode())
        received = b""
        while not received.endswith(first):
            received += await stdio.stdin.read()
        came.set_result(received)
        return 0

    connection = await connect(talk)
    wire = await join.join(connection, "h1", ("serve",), None, timeout=PATIENCE)
    assert (wire.rest, wire.is_cached) == (b"link", True)
    await wire.process.write(first)
    assert await came == first
    await wire.close()
    await connection.close()


async def test_a_host_that_needs_the_archive_gets_it_after_it_asked_and_not_before() -> None:
    archive = bundle.build()
    came = asyncio.get_running_loop().create_future()

    async def talk(stdio: Stdio, nonce: str) -> int:
        await stdio.stdout.write(b"\nMNSPAWN %s need\n" % nonce.encode())
        received = b""
        while len(received) < len(archive.content):
            received += await stdio.stdin.read()
        came.set_result(received)
        return 0

    connection = await connect(talk)
    wire = await join.join(connection, "h1", ("serve",), None, timeout=PATIENCE)
    assert await came == archive.content
    assert not wire.is_cached
    await wire.close()
    await connection.close()


@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome!\n",
        b"no newline at the end",
        b"\n\n\n",
        b"\r\n*** 3 updates ***\r\n",
        b"MNSPAWN 0123456789abcdef have\n",
        b"\xff\xfe\0binary\x1b[31m",
        b"x" * 300_000,
    ],
)
async def test_what_a_login_shell_prints_first_is_skipped(noise: bytes) -> None:
    assert await joined(saying(noise, b"\nMNSPAWN NONCE have\nlink")) == (b"link", True)


async def test_the_answer_may_come_a_byte_at_a_time() -> None:
    answer = b"motd\nMNSPAWN NONCE have\n"

    async def talk(stdio: Stdio, nonce: str) -> int:
        for byte in answer.replace(b"NONCE", nonce.encode()):
            await stdio.stdout.write(bytes([byte]))
            await asyncio.sleep(0)  # so that the reader takes it alone
        await stdio.stdin.read()
        return 0

    assert await joined(talk) == (b"", True)


def test_the_noise_is_kept_for_whoever_wants_to_know() -> None:
    handshake = stub.Handshake("h1", "00ff")
    assert handshake.feed(b"Welcome!\nbye") is None
    assert handshake.feed(b"\nMNSPAWN 00ff ha") is None
    assert handshake.feed(b"ve\nrest") == b"rest"
    assert (handshake.answer, handshake.noise) == ("have", b"Welcome!\nbye")


# -- none that comes up


async def test_no_python() -> None:
    error = await refused(saying(b"\n\nMNSPAWN NONCE nopython\n", stays=False))
    assert isinstance(error, PythonMissing)
    assert error.message.startswith("no Python (looked for python3")
    named = await refused(saying(b"\nMNSPAWN NONCE nopython\n", stays=False), python="/opt/py/bin/python3")
    assert named.message == "no Python at /opt/py/bin/python3"


async def test_a_python_that_is_too_old() -> None:
    error = await refused(saying(b"\nMNSPAWN NONCE old 2.7.18\n", status=1, stays=False))
    assert isinstance(error, PythonTooOld)
    assert error.message == "expected Python 3.6 or newer, found 2.7.18"


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        (b"This account is currently not available.\n", b"", "This account is currently not available."),
        (b"", b"motd\nrbash: exec: restricted\n", "motd | rbash: exec: restricted"),
        (b"\x1b[1mnot here\x1b[0m\n***\n", b"at all\x07\n", "not here | at all"),
    ],
)
async def test_a_shell_that_refuses_commands_is_quoted(stdout: bytes, stderr: bytes, said: str) -> None:
    error = await refused(saying(stdout, stderr=stderr, status=1, stays=False))
    assert isinstance(error, ShellRefused)
    assert error.message == f"the login shell ran no command (status 1): {said}"


async def test_a_shell_that_ends_without_a_word() -> None:
    error = await refused(saying(status=0, stays=False))
    assert error.message == "the login shell ran no command (status 0)"


async def test_a_shell_that_never_stops_talking() -> None:
    error = await refused(saying(*[b"y\n" * 50_000] * 12))
    assert isinstance(error, BootstrapError)
    assert "printed 1 MiB before any command ran" in error.message


async def test_a_damaged_archive_is_said() -> None:
    error = await refused(saying(b"\nMNSPAWN NONCE damaged\n", status=1, stays=False))
    assert error.message == "the stub said 'damaged'"


async def test_a_python_that_takes_longer_to_start_than_connecting_may_is_waited_for() -> None:
    async def talk(stdio: Stdio, nonce: str) -> int:
        await stdio.stdout.write(b"motd\n\nMNSPAWN %s shell\n" % nonce.encode())
        await asyncio.sleep(1.5 * SHORT)  # what its Python does
        await stdio.stdout.write(b"\nMNSPAWN %s have\nhello" % nonce.encode())
        return await saying()(stdio, nonce)

    connection = await connect(talk)
    wire = await join.join(connection, "h1", ("serve",), None, SHORT, PATIENCE)
    assert wire.rest == b"hello"
    await wire.close()


@pytest.mark.parametrize(
    ("limit", "told"), [(0.0, ["its login shell took", "its Python (/opt/py) took"]), (PATIENCE, [])]
)
async def test_what_was_slow_is_told(monkeypatch: pytest.MonkeyPatch, limit: float, told: list[str]) -> None:
    monkeypatch.setattr(join, "SLOW", limit)
    connection = await connect(saying(b"\nMNSPAWN NONCE shell\n", b"\nMNSPAWN NONCE have\nhello"))
    heard: list[str] = []
    wire = await join.join(connection, "h1", ("serve",), "/opt/py", PATIENCE, PATIENCE, heard.append)
    await wire.close()
    assert [line[: len(start)] for line, start in zip(heard, told, strict=True)] == told


async def test_a_python_that_does_not_start_is_told_as_that_and_not_as_a_shell() -> None:
    connection = await connect(saying(b"\nMNSPAWN NONCE shell\n"))
    with pytest.raises(BootstrapError, match=r"connected, but its Python \(/opt/py\) did not start within 1 s"):
        await join.join(connection, "h1", ("serve",), "/opt/py", SHORT, SHORT)


async def test_a_python_that_crashes_at_its_start_is_no_refusing_shell() -> None:
    connection = await connect(
        saying(b"\nMNSPAWN NONCE shell\n", stderr=b"Fatal Python error: init\n", status=134, stays=False)
    )
    with pytest.raises(BootstrapError, match=r"its Python did not run our code \(status 134\): Fatal Python error"):
        await join.join(connection, "h1", ("serve",), None, PATIENCE)


async def test_a_login_script_that_waits_is_given_up_in_time() -> None:
    connection = await connect(saying(b"Press return to continue"))
    with pytest.raises(BootstrapError, match=r"connected, but its login shell ran no command within 1 s"):
        await join.join(connection, "h1", ("serve",), None, timeout=SHORT)
    await connection.close()


async def test_a_server_that_opens_no_session() -> None:
    connection = await connect(saying())
    connection.refuses_sessions = True
    with pytest.raises(ChannelRefused):
        await join.join(connection, "h1", ("serve",), None, timeout=PATIENCE)
    await connection.close()


async def test_an_agent_that_ends_before_it_says_hello_is_quoted() -> None:
    dying = saying(b"\nMNSPAWN NONCE have\n", stderr=b"Traceback\nMemoryError\n", status=1, stays=False)
    connection = await connect(dying)
    wire = await join.join(connection, "h1", ("serve",), None, timeout=PATIENCE)
    error = await wire.explain_silence()
    assert error.message == "the agent ended with status 1: MemoryError"
    await wire.close()
    await connection.close()


# -- the command line


@pytest.mark.parametrize("python", ["/opt/my py/python3", "python3;reboot", "$HOME/py", "a'b", "py`id`", ""])
def test_an_interpreter_that_a_shell_could_misread_is_refused(python: str) -> None:
    with pytest.raises(UsageError):
        stub.command_line(bundle.build(), "0" * 16, "1", ("serve",), python)


def test_the_command_line_is_one_short_line_that_means_the_same_in_every_shell() -> None:
    line = stub.command_line(bundle.build(), "0" * 16, "1.2.3", ("attach", "r1", "0"), "~/py/bin/python3")
    assert "\n" not in line
    assert len(line) < 1800
    assert "!" not in line
    outside = "".join(line.split("'")[::2])
    assert set(outside) <= set("abcdefghijklmnopqrstuvwxyz/- ")


def test_nonces_differ() -> None:
    assert len({stub.make_nonce() for _ in range(50)}) == 50
    assert all(re.fullmatch("[0-9a-f]{16}", stub.make_nonce()) for _ in range(5))


def test_the_archive_is_the_same_every_time_and_begins_with_stage_two() -> None:
    bundle.build.cache_clear()
    first = bundle.build()
    bundle.build.cache_clear()
    assert bundle.build() == first
    assert zlib.decompress(first.content).startswith(b"mnspawn_agent/unpack.py\n")


# -- one that is there already


async def test_a_word_tells_whether_the_agent_is_still_there() -> None:
    for word, is_there in ((b"here", True), (b"gone", False)):
        connection = await connect(saying(b"\nMNSPAWN NONCE have\n", word + b"\nframes"))
        found = await join.enter(connection, "h1", ("attach", "r1", "0"), None, PATIENCE)
        assert (found is not None) is is_there
        if found is not None:
            await found.close()
        await connection.close()


@pytest.mark.parametrize(
    ("word", "is_clean", "survivors"),
    [
        (b"left \n", True, []),
        (b'left [[12, "hangs in the kernel (state D)"]]\n', False, [(12, "hangs in the kernel (state D)")]),
        (b"left 12,13\n", False, []),
        (b'left [["x", 7]]\n', False, []),
        (b'left [[-1, "all"]]\n', False, []),
        (b"left 7\n", False, []),
    ],
)
async def test_reaping_says_what_is_left(word: bytes, is_clean: bool, survivors: list[tuple[int, str]]) -> None:
    connection = await connect(saying(b"\nMNSPAWN NONCE have\n" + word))
    reaped = await join.reap(connection, "h1", "r1", 0, None, PATIENCE)
    assert (reaped.is_clean, list(reaped.survivors)) == (is_clean, survivors)
    await connection.close()


async def test_a_host_that_comes_up_and_falls_silent_is_given_up() -> None:
    connection = await connect(saying(b"\nMNSPAWN NONCE have\n"))
    with pytest.raises(BootstrapError, match="does not answer"):
        await join.enter(connection, "h1", ("attach", "r1", "0"), None, 0.05)
    with pytest.raises(BootstrapError, match="does not answer"):
        await join.reap(connection, "h1", "r1", 0, None, 0.05)
    await connection.close()


async def test_an_agent_that_was_sent_and_says_nothing_is_given_up_in_time() -> None:
    connection = await connect(saying(b"\nMNSPAWN NONCE need\n"))
    wire = await join.join(connection, "h1", ("serve",), None, PATIENCE)
    assert (wire.rest, wire.is_cached) == (b"", False)
    with pytest.raises(BootstrapError, match="the agent says nothing in time"):
        await wire.wait_first_words(asyncio.get_running_loop().time() + 0.05)
    await wire.close()
    await connection.close()


async def test_an_agent_that_ends_before_it_says_anything_is_told_with_its_last_words() -> None:
    connection = await connect(saying(b"\nMNSPAWN NONCE have\n", stderr=b"MemoryError\n", status=1, stays=False))
    wire = await join.join(connection, "h1", ("serve",), None, PATIENCE)
    with pytest.raises(BootstrapError, match="status 1: MemoryError"):
        await wire.wait_first_words(asyncio.get_running_loop().time() + 5.0)
    await wire.close()
    await connection.close()


# -- nothing is left of a way in that came to nothing


class Counted:
    """A connection that counts the commands which were started on it, and those that were given up."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self.started = self.closed = 0

    async def run(self, command: str) -> MemoryProcess:
        process = await self._connection.run(command)
        self.started += 1
        close = process.close

        async def closing() -> None:
            self.closed += 1
            await close()

        process.close = closing  # type: ignore[method-assign]
        return process

    async def close(self) -> None:
        await self._connection.close()


SILENT = saying(b"\nMNSPAWN NONCE have\n")
WAYS_OUT = {
    "it is not there": saying(b"\nMNSPAWN NONCE have\ngone\n"),
    "it ends before a word": saying(b"\nMNSPAWN NONCE have\n", stays=False),
    "it says more than a word": saying(b"\nMNSPAWN NONCE have\n", *[b"x" * 50_000] * 3),
    "no agent": saying(b"\nMNSPAWN NONCE nopython\n", stays=False),
    "it is silent": SILENT,
}


@pytest.mark.parametrize("way", [join.enter, join.reap, ask_on])
@pytest.mark.parametrize("talk", WAYS_OUT.values(), ids=WAYS_OUT)
async def test_a_way_in_that_fails_leaves_no_process_and_no_task(way: Callable[..., Any], talk: Talk) -> None:
    connection = Counted(await connect(talk))
    with suppress(HostError):
        if way is join.enter:
            await join.enter(connection, "h1", ("attach", "r1", "0"), None, 0.2)
        elif way is join.reap:
            await join.reap(connection, "h1", "r1", 0, None, 0.2)
        else:
            await ask_on(connection, "h1", ("list",), None, 0.2)
    assert (connection.started, connection.closed) == (1, 1)
    assert readers() == []
    await connection.close()


@pytest.mark.parametrize("way", ["enter", "reap", "ask"])
async def test_a_way_in_that_is_cancelled_leaves_no_process_and_no_task(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_up: list[object] = []
    bring_up = join.join

    async def joining(*words: Any) -> Any:
        came_up.append(await bring_up(*words))
        return came_up[-1]

    monkeypatch.setattr(join, "join", joining)
    connection = Counted(await connect(SILENT))
    if way == "enter":
        task: asyncio.Task[Any] = asyncio.create_task(join.enter(connection, "h1", ("attach", "r", "0"), None, 60.0))
    elif way == "reap":
        task = asyncio.create_task(join.reap(connection, "h1", "r", 0, None, 60.0))
    else:
        task = asyncio.create_task(ask_on(connection, "h1", ("list",), None, 60.0))
    await wait_until_async(lambda: came_up)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (connection.started, connection.closed) == (1, 1)
    assert readers() == []
    await connection.close()


def readers() -> list[str]:
    """Tasks that read what processes say on stderr."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "diagnostics"]
