"""The sandbox: hosts as real ones in all that matters, and nothing left of them, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mnspawn import transport
from mnspawn.errors import UsageError
from mnspawn.sandbox.sandbox import PREFIX, Sandbox
from mnspawn.system import temporary
from mnspawn.transport import RemoteProcess, Transport
from tests.support import wait_until, wait_until_async


async def run(shared: Transport, sandbox: Sandbox, command: str, number: int = 0) -> RemoteProcess:
    return await (await shared.connect(sandbox.targets[number])).run(command)


async def said(process: RemoteProcess) -> str:
    await process.write_eof()
    chunks = []
    while chunk := await process.read():
        chunks.append(chunk)
    return b"".join(chunks).decode()


def roots() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(PREFIX + "*"))


async def test_each_host_has_a_home_and_state_folders_of_its_own() -> None:
    async with Sandbox(3) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        assert [target.name for target in sandbox.targets] == ["sandbox-1", "sandbox-2", "sandbox-3"]
        environments = []
        for number in range(3):
            text = await said(await run(shared, sandbox, "pwd; env", number))
            home, *lines = text.splitlines()
            environment = dict(line.split("=", 1) for line in lines if "=" in line)
            assert home == environment["HOME"]
            inside = (
                "XDG_STATE_HOME",
                "XDG_CACHE_HOME",
                "XDG_CONFIG_HOME",
                "XDG_DATA_HOME",
                "XDG_RUNTIME_DIR",
                "TMPDIR",
            )
            parent = str(Path(home).parent)
            assert [name for name in inside if not environment[name].startswith(parent)] == []
            client, _, server, port = environment["SSH_CONNECTION"].split()
            assert (client, int(port) > 0) == ("127.0.0.1", True)
            environments.append((home, server))
        assert len(set(environments)) == 3
        assert Path(environments[0][0]).parent.parent.stat().st_mode & 0o777 == 0o700
        await shared.close()
    assert roots() == []


async def test_hosts_find_the_controllers_python_and_nothing_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CONTROLLER", "x")
    async with Sandbox(1) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        text = await said(await run(shared, sandbox, 'command -v python3; echo "[$SECRET_OF_THE_CONTROLLER]"'))
        assert text.splitlines() == [str(Path(sys.executable).parent / "python3"), "[]"]
        await shared.close()


async def test_every_transport_reaches_it() -> None:
    async with Sandbox(1) as sandbox:
        for name in ("asyncssh", "paramiko", "openssh"):
            shared = transport.create(name, sandbox.options)
            process = await run(shared, sandbox, "cat; exit 7")
            await process.write(name.encode())
            assert (await said(process), await process.wait()) == (name, 7)
            await shared.close()


async def test_the_status_of_a_command_whose_output_ends_before_it_is_told() -> None:
    async with Sandbox(1) as sandbox:
        for name in ("asyncssh", "paramiko", "openssh"):
            shared = transport.create(name, sandbox.options)
            process = await run(shared, sandbox, "cat; exec >&- 2>&-; sleep 0.3; exit 7")
            assert (await said(process), await process.wait()) == ("", 7), name
            await shared.close()


async def test_death_by_signal_is_told() -> None:
    async with Sandbox(1) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        assert await (await run(shared, sandbox, "kill -SEGV $$")).wait() == 128 + signal.SIGSEGV
        await shared.close()


@pytest.mark.full
async def test_a_hundred_megabytes_go_both_ways() -> None:
    async with Sandbox(1) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        process = await run(shared, sandbox, "cat")
        received = 0

        async def send() -> None:
            for _ in range(100):
                await process.write(bytes(1_000_000))
            await process.write_eof()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            while chunk := await process.read():
                received += len(chunk)
        assert (received, await process.wait()) == (100_000_000, 0)
        await shared.close()


DAEMON = "setsid sleep 1000 & (setsid sleep 1001 & setsid nohup sleep 1002 >/dev/null 2>&1 &) ; sleep 1003"


def sleepers() -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                environment = (folder / "environ").read_bytes()
            except OSError:  # it ended while we looked
                continue
            if words[0] == b"sleep" and words[1].startswith(b"100") and b"MNSPAWN_SANDBOX_HOST=" in environment:
                found.add(int(folder.name))
    return found


async def test_what_still_runs_is_killed_at_the_end_daemons_included() -> None:
    async with Sandbox(2) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        for number in range(2):
            await run(shared, sandbox, DAEMON, number)
        await wait_until_async(lambda: len(sleepers()) == 8)
        await shared.close()
    assert (sleepers(), roots()) == (set(), [])


HOLD = """
import asyncio, sys
from mnspawn import transport
from mnspawn.sandbox.sandbox import Sandbox

async def main():
    async with Sandbox(1) as sandbox:
        shared = transport.create("asyncssh", sandbox.options)
        await (await shared.connect(sandbox.targets[0])).run(sys.argv[1])
        print(sandbox._server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_controller_dies(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, DAEMON], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        server = int(controller.stdout.readline())
        wait_until(lambda: len(sleepers()) == 4)
        controller.send_signal(number)
    wait_until(lambda: not Path(f"/proc/{server}").exists())
    assert (sleepers(), roots()) == (set(), [])


def test_a_folder_whose_server_was_killed_goes_with_the_next_sandbox() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, "cat"], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        os.kill(int(controller.stdout.readline()), signal.SIGKILL)
        controller.kill()
    assert len(roots()) == 1

    def is_removed() -> bool:
        temporary.sweep(PREFIX)
        return not roots()

    wait_until(is_removed)


async def test_two_sandboxes_live_side_by_side() -> None:
    async with Sandbox(1) as first, Sandbox(1) as second:
        for sandbox in (first, second):
            shared = transport.create("asyncssh", sandbox.options)
            assert await said(await run(shared, sandbox, "echo hello")) == "hello\n"
            await shared.close()


@pytest.mark.parametrize("count", [0, -1, 251])
def test_a_count_that_makes_no_sense_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 250"):
        Sandbox(count)
