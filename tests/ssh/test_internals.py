"""Versions of asyncssh and paramiko that lack what we use of their own: hosts are reached all the same."""

import signal
import subprocess
import sys
from pathlib import Path

import asyncssh
import paramiko
import pytest

from mnspawn import errors, transport
from mnspawn.transport import SshOptions, Target
from mnspawn.transport.paramiko.keyring import Agent
from mnspawn.transport.ssh import internals
from tests.ssh.test_errors import failure, make_key, prepend
from tests.support import PATIENCE, LocalSshd

GONE = "_no_such_name"


async def status(name: str, config: Path, command: str = "exit 7") -> int | None:
    shared = transport.create(name, SshOptions(config=config, connect_timeout=PATIENCE))
    try:
        process = await (await shared.connect(Target("local"))).run(command)
        return await process.wait()
    finally:
        await shared.close()


@pytest.mark.parametrize("gone", ["AUTH_METHODS", "AUTH", "CHOOSE_SIGNATURE"])
async def test_asyncssh_without_one_of_its_names(
    local_sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(internals, gone, GONE)
    assert await status("asyncssh", local_sshd.ssh_config) == 7


async def test_asyncssh_that_asks_in_another_way(local_sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own request keeps what it says; ours stands back from one that it does not know."""
    ask = asyncssh.auth.ClientAuth.send_request

    async def renamed(self: object, *fields: bytes, **given: object) -> None:
        await ask(self, *fields, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncssh.auth.ClientAuth, "send_request", renamed)
    assert await status("asyncssh", local_sshd.ssh_config) == 7


async def test_a_key_that_is_not_taken_is_followed_by_the_next_without_shortcuts(
    local_sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for gone in ("AUTH_METHODS", "AUTH", "CHOOSE_SIGNATURE"):
        monkeypatch.setattr(internals, gone, GONE)
    make_key(tmp_path / "other")
    prepend(local_sshd.ssh_config, f"IdentityFile {tmp_path}/other")
    assert await status("asyncssh", local_sshd.ssh_config) == 7


@pytest.mark.parametrize("what", list(internals.TABLES))
async def test_paramiko_without_one_of_its_tables(
    local_sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setitem(internals.TABLES, what, GONE)
    assert await status("paramiko", local_sshd.ssh_config) == 7


@pytest.mark.parametrize("gone", ["CHANNEL_HANDLERS", "HANDLE_REQUEST"])
def test_paramiko_without_handlers_of_channels_tells_no_signals(local_sshd: LocalSshd, gone: str) -> None:
    """In a process of its own: what is missing is missed when our module is imported."""
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from mnspawn.transport.ssh import internals\n"
        f"internals.{gone} = {GONE!r}\n"
        "from tests.ssh.test_internals import status\n"
        "for command in ('exit 7', 'kill -TERM $$'):\n"
        "    print(asyncio.run(status('paramiko', Path(sys.argv[1]), command)))\n"
    )
    command = [sys.executable, "-c", program, str(local_sshd.ssh_config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.stdout.split() == ["7", "None"], done


async def test_paramiko_tells_signals(local_sshd: LocalSshd) -> None:
    assert await status("paramiko", local_sshd.ssh_config, "kill -TERM $$") == 128 + signal.SIGTERM


@pytest.mark.parametrize("gone", ["AGENT_CONNECT", "AGENT_CLOSE"])
async def test_paramiko_that_asks_no_agent_of_our_choice_says_so(
    local_sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gone: str
) -> None:
    monkeypatch.setattr(internals, gone, GONE)
    assert await status("paramiko", local_sshd.ssh_config) == 7
    prepend(local_sshd.ssh_config, f"IdentityAgent {tmp_path}/agent")
    assert Agent.open(None, "local", lambda sock: None) is None
    error = await failure("paramiko", local_sshd.ssh_config, Target("local"))
    assert type(error) is errors.TransportUnavailable
    assert f"paramiko ({paramiko.__version__}) can't ask the agent at {tmp_path}/agent" in error.message
    assert "--transport asyncssh" in (error.hint or "")
