"""Each way in which a host can be out of reach is one clear error, whatever the transport; nobody is asked."""

import asyncio
import logging
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mnspawn import errors, transport
from mnspawn.engine.link.dial import dial
from mnspawn.transport import SshOptions, Target
from tests.support import LocalSshd
from tests.support.waiting import PATIENCE, wait_until

SHORT = 2.0  # the connect timeout where nothing else ends the wait; elsewhere it must not strike


async def failure(
    name: str, config: Path, target: Target, connect_timeout: float = PATIENCE, **options: object
) -> errors.HostError:
    """The error that connecting ends in."""
    shared = transport.create(name, SshOptions(config=config, connect_timeout=connect_timeout, **options))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(errors.HostError) as caught:
                await (await shared.connect(target)).run("true")
    finally:
        await shared.close()
    error = caught.value
    assert error.host == target.name
    assert "\n" not in error.message
    assert error.message[-1] != "."
    return error


def fingerprint(key: Path) -> str:
    shown = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True)
    return shown.stdout.split()[1]


def make_key(path: Path, *options: str) -> None:
    passphrase = [] if "-N" in options else ["-N", ""]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-f", path, *passphrase, *options], check=True)


@contextmanager
def silent_listener() -> Iterator[int]:
    """Takes connections and never speaks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def hanging_up(greeting: bytes = b"") -> Iterator[int]:
    """Says something, and closes."""

    program = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        f"while True:\n    c, _ = s.accept(); c.sendall({greeting!r}); c.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(f"Host *\n  UserKnownHostsFile {tmp_path}/known_hosts\n  IdentityFile none\n  IdentityAgent none\n")
    return path


def prepend(config: Path, line: str) -> None:
    config.write_text(f"{line}\n{config.read_text()}")


async def test_nothing_listens(ssh_name: str, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = await failure(ssh_name, config, Target("h", address="127.0.0.1", port=port))
    assert type(error) is errors.ConnectionRefused
    assert f"127.0.0.1 port {port}" in error.message
    assert not error.is_transient


async def test_a_name_that_nobody_knows(ssh_name: str, config: Path) -> None:
    error = await failure(ssh_name, config, Target("no-such-host.invalid"))
    assert type(error) in (errors.NameUnknown, errors.LookupFailed)
    assert "no-such-host.invalid" not in error.message  # it stands before it
    prepend(config, "HostName no-such-host.invalid")
    assert "'no-such-host.invalid'" in (await failure(ssh_name, config, Target("h"))).message


async def test_a_host_that_takes_connections_and_never_speaks(
    ssh_name: str, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with silent_listener() as port:
        error = await failure(ssh_name, config, Target("h", address="127.0.0.1", port=port), SHORT)
    assert type(error) is errors.ConnectTimeout
    assert "does not speak SSH" in error.message
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []  # no library's traceback


@pytest.mark.full
async def test_a_dialled_host_says_what_it_was_waiting_for(ssh_name: str, config: Path) -> None:
    shared = transport.create(ssh_name, SshOptions(config=config, connect_timeout=SHORT))
    with silent_listener() as port:
        targets = [Target("h", address="127.0.0.1", port=port)]
        answers = [answer async for _, answer in dial([shared], targets, connect_timeout=SHORT)]
    await shared.close()
    assert [type(answer) for answer in answers] == [errors.ConnectTimeout]
    assert "does not speak SSH" in str(answers[0])


async def test_a_server_that_hangs_up_at_once_is_worth_another_try(ssh_name: str, config: Path) -> None:
    with hanging_up() as port:
        error = await failure(ssh_name, config, Target("h", address="127.0.0.1", port=port))
    assert type(error) is errors.ConnectionClosed
    assert error.is_transient
    assert "MaxStartups" in (error.hint or "")


@pytest.mark.full
async def test_a_proxy_command_that_hangs_is_ended_with_what_it_started(
    ssh_name: str, config: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    prepend(config, f"ProxyCommand sh -c 'sleep 987 & echo $! >{pid}; wait'")
    error = await failure(ssh_name, config, Target("h"), SHORT)
    assert type(error) is errors.ConnectTimeout
    assert number_in(pid) > 1
    wait_until(lambda: not Path(f"/proc/{number_in(pid)}").exists(), what="the child of the command is gone")


async def test_what_a_proxy_command_leaves_is_ended_when_ssh_gives_up_by_itself(config: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    prepend(config, f"ProxyCommand sh -c 'sleep 987 >/dev/null 2>&1 & echo $! >{pid}; exit 1'")
    error = await failure("openssh", config, Target("h"))
    assert type(error) is not errors.ConnectTimeout
    wait_until(lambda: not Path(f"/proc/{number_in(pid)}").exists(), what="the child of the command is gone")


def number_in(pid: Path) -> int:
    return int(pid.read_text())


async def test_the_wrong_service(ssh_name: str, config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with hanging_up(b"HTTP/1.0 400 Bad Request\r\n\r\n") as port:
        error = await failure(ssh_name, config, Target("h", address="127.0.0.1", port=port))
    assert isinstance(error, errors.Unreachable)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def with_key(server: LocalSshd, tmp_path: Path, *options: str) -> Path:
    """A config with one key that the server does not know, made with these options of ssh-keygen."""
    key = tmp_path / "other key"
    make_key(key, *options)
    config = tmp_path / "config"
    config.write_text(
        f'Host *\n  IdentityFile "{key}"\n  IdentitiesOnly yes\n  UserKnownHostsFile {server.known_hosts}\n'
        f"  IdentityAgent none\n  StrictHostKeyChecking yes\n  HostName 127.0.0.1\n  Port {server.port}\n"
    )
    return config


async def test_a_refused_key_is_named_with_its_fingerprint(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path
) -> None:
    config = with_key(local_sshd, tmp_path)
    error = await failure(ssh_name, config, Target("h"))
    assert type(error) is errors.AuthRefused
    assert "other key" in error.message
    assert fingerprint(tmp_path / "other key") in error.message
    assert "ssh-copy-id" in (error.hint or "")


async def test_an_encrypted_key_without_an_agent(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    config = with_key(local_sshd, tmp_path, "-N", "secret")
    authorized = local_sshd.identity.with_suffix(".pub")
    authorized.write_text(authorized.read_text() + (tmp_path / "other key.pub").read_text())
    error = await failure(ssh_name, config, Target("h"))
    assert type(error) is errors.PassphraseNeeded
    assert str(tmp_path / "other key") in error.message
    assert f"ssh-add '{tmp_path}/other key'" in (error.hint or "")


async def test_a_key_that_others_can_read(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    config = with_key(local_sshd, tmp_path)
    authorized = local_sshd.identity.with_suffix(".pub")
    authorized.write_text(authorized.read_text() + (tmp_path / "other key.pub").read_text())
    (tmp_path / "other key").chmod(0o644)
    error = await failure(ssh_name, config, Target("h"))
    assert type(error) is errors.KeyUnusable
    assert "open to others" in error.message
    assert str(tmp_path / "other key") in error.message
    if ssh_name == "openssh":
        assert error.hint == f"chmod 600 '{tmp_path}/other key'"


async def test_a_broken_key_file(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    config = with_key(local_sshd, tmp_path)
    key = tmp_path / "other key"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnothing of the kind\n-----END OPENSSH PRIVATE KEY-----\n")
    key.with_name("other key.pub").unlink()
    error = await failure(ssh_name, config, Target("h"))
    assert type(error) is errors.KeyUnusable
    assert str(key) in error.message


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_public_key_alone_is_told_and_does_not_keep_other_keys_from_being_used(
    name: str, local_sshd: LocalSshd, tmp_path: Path, is_named: bool
) -> None:
    config = with_key(local_sshd, tmp_path)
    (tmp_path / "other key").unlink()
    if is_named:
        config.write_text(config.read_text().replace("other key", "other key.pub"))
    error = await failure(name, config, Target("h"))
    assert type(error) is errors.KeyUnusable
    assert "public key only" in error.message
    config.write_text(config.read_text() + f"  IdentityFile {local_sshd.identity}\n")
    shared = transport.create(name, SshOptions(config=config, connect_timeout=PATIENCE))
    try:
        assert await (await (await shared.connect(Target("h"))).run("true")).wait() == 0
    finally:
        await shared.close()


async def test_a_public_key_alone_that_the_server_would_take_is_told(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path
) -> None:
    config = with_key(local_sshd, tmp_path)
    authorized = local_sshd.identity.with_suffix(".pub")
    authorized.write_text((tmp_path / "other key.pub").read_text())
    (tmp_path / "other key").unlink()
    error = await failure(ssh_name, config, Target("h"))
    assert type(error) is errors.KeyUnusable
    assert "public key only" in error.message


@pytest.mark.full
async def test_an_agent_that_never_answers(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        prepend(local_sshd.ssh_config, f"IdentityAgent {tmp_path}/agent")
        error = await failure(ssh_name, local_sshd.ssh_config, Target("local"), SHORT)
    assert type(error) is errors.ConnectTimeout
    if ssh_name != "openssh":  # ssh does not say what it waits for
        assert "ssh-agent does not answer" in error.message
        assert f"{tmp_path}/agent" in (error.hint or "")


async def test_a_host_that_takes_passwords_only_is_not_asked_for_one(ssh_name: str, tmp_path: Path) -> None:
    with LocalSshd(sshd_config="PubkeyAuthentication no\nPasswordAuthentication yes") as server:
        error = await failure(ssh_name, server.ssh_config, Target("local"))
    assert type(error) is errors.AuthRefused
    assert "password" in error.message
    assert "nothing is ever asked" in error.message


async def test_an_unknown_host_key(ssh_name: str, local_sshd: LocalSshd) -> None:
    local_sshd.known_hosts.write_text("")
    error = await failure(ssh_name, local_sshd.ssh_config, Target("local"))
    assert type(error) is errors.HostKeyUnknown
    assert fingerprint(local_sshd.host_key) in error.message
    assert "mnspawn hosts trust local" in (error.hint or "")
    assert local_sshd.known_hosts.read_text() == ""


async def test_a_changed_host_key(ssh_name: str, local_sshd: LocalSshd) -> None:
    key = " ".join(local_sshd.identity.with_suffix(".pub").read_text().split()[:2])
    local_sshd.known_hosts.write_text(f"# a comment\n\n[127.0.0.1]:{local_sshd.port} {key}\n")
    error = await failure(ssh_name, local_sshd.ssh_config, Target("local"))
    assert type(error) is errors.HostKeyChanged
    assert f"{local_sshd.known_hosts}:3" in error.message
    assert fingerprint(local_sshd.host_key) in error.message
    assert fingerprint(local_sshd.identity) in error.message
    assert "--replace" in (error.hint or "")


async def test_a_changed_host_key_is_not_taken_when_ssh_config_checks_none(
    ssh_name: str, local_sshd: LocalSshd
) -> None:
    key = " ".join(local_sshd.identity.with_suffix(".pub").read_text().split()[:2])
    local_sshd.known_hosts.write_text(f"[127.0.0.1]:{local_sshd.port} {key}\n")
    prepend(local_sshd.ssh_config, "StrictHostKeyChecking no")
    assert type(await failure(ssh_name, local_sshd.ssh_config, Target("local"))) is errors.HostKeyChanged


@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_host_that_only_a_command_knows_is_told_who_asks_it(name: str, local_sshd: LocalSshd) -> None:
    prepend(local_sshd.ssh_config, f"KnownHostsCommand /bin/echo {local_sshd.known_hosts.read_text().strip()}")
    local_sshd.known_hosts.write_text("")
    error = await failure(name, local_sshd.ssh_config, Target("local"))
    assert "--transport openssh asks KnownHostsCommand" in (error.hint or "")
    shared = transport.create("openssh", SshOptions(config=local_sshd.ssh_config, connect_timeout=PATIENCE))
    try:
        assert await (await (await shared.connect(Target("local"))).run("true")).wait() == 0
    finally:
        await shared.close()


async def test_no_common_key_exchange(ssh_name: str) -> None:
    with LocalSshd(sshd_config="KexAlgorithms curve25519-sha256") as server:
        config = server.ssh_config
        config.write_text(f"{config.read_text()}  KexAlgorithms diffie-hellman-group14-sha256\n")
        error = await failure(ssh_name, config, Target("local"))
    assert type(error) is errors.NoCommonAlgorithm
    wait_until(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()), PATIENCE / 2)


async def test_a_server_that_opens_no_session(ssh_name: str) -> None:
    with LocalSshd(sshd_config="MaxSessions 0") as server:
        error = await failure(ssh_name, server.ssh_config, Target("local"))
    assert type(error) is errors.ChannelRefused
    assert "MaxSessions" in (error.hint or "")


async def test_too_many_keys(ssh_name: str, tmp_path: Path) -> None:
    with LocalSshd(sshd_config="MaxAuthTries 2") as server:
        lines = []
        for number in range(4):
            key = tmp_path / f"key{number}"
            make_key(key)
            lines.append(f"  IdentityFile {key}\n")
        config = server.ssh_config
        config.write_text(config.read_text().replace(f"  IdentityFile {server.identity}\n", "".join(lines)))
        error = await failure(ssh_name, config, Target("local"))
    assert type(error) is errors.AuthRefused
    assert "too many keys" in error.message
    assert "IdentitiesOnly" in (error.hint or "")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("not enough", "known_hosts"),
        ("@nobody host ssh-ed25519 AAAA", "known_hosts"),
        ("host ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIMh/9Itwx2HqGXpnL2UQFzVvCy7v7L0000000000000", "known_hosts"),
    ],
)
async def test_a_broken_known_hosts_is_named_with_its_line(
    ssh_name: str, local_sshd: LocalSshd, line: str, file: str
) -> None:
    local_sshd.known_hosts.write_text(f"# fine\n{line}\n")
    error = await failure(ssh_name, local_sshd.ssh_config, Target("local"))
    assert type(error) is errors.SettingsUnusable
    assert f"{local_sshd.known_hosts}:2" in error.message


@pytest.mark.parametrize("line", ["other ssh-ed25519 AAAAbroken", "other", "other 1024 35 1234567", "@nobody a b c"])
async def test_a_broken_line_of_known_hosts_does_not_matter_to_a_host_that_is_known(
    ssh_name: str, local_sshd: LocalSshd, line: str
) -> None:
    local_sshd.known_hosts.write_text(f"{line}\n{local_sshd.known_hosts.read_text()}{line}\n")
    shared = transport.create(ssh_name, SshOptions(config=local_sshd.ssh_config, connect_timeout=PATIENCE))
    try:
        assert await (await (await shared.connect(Target("local"))).run("true")).wait() == 0
    finally:
        await shared.close()


@pytest.mark.parametrize("target", [Target("a;reboot"), Target("$(id)"), Target("h", user="x`id`"), Target("-oX=y")])
async def test_names_that_a_shell_would_run_are_refused(ssh_name: str, config: Path, target: Target) -> None:
    error = await failure(ssh_name, config, target)
    assert type(error) is errors.SettingsUnusable


def test_nothing_is_asked_through_a_controlling_terminal(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    """With a terminal of its own, and an encrypted key: nothing is written there, and it ends."""
    config = with_key(local_sshd, tmp_path, "-N", "secret")
    local_sshd.known_hosts.write_text("")
    config.write_text(config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(sys.executable, [sys.executable, "-m", "tests.ssh.probe", ssh_name, str(config), str(PATIENCE), "h"])
    said = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the terminal is gone with its process
            break
        if not chunk:
            break
        said += chunk
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
    assert b"HostKeyUnknown" in said
    assert b"yes/no" not in said
    assert b"assphrase" not in said
