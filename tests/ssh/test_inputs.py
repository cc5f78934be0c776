"""Broken known_hosts and key files: passed over where ssh does so, else told before any host is touched."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnspawn import errors, transport
from mnspawn.engine.link.sites import reach_hosts
from mnspawn.transport import SshOptions
from mnspawn.transport.trust.keys import inspect
from mnspawn_inventory import Host
from tests.ssh.test_errors import fingerprint, make_key
from tests.ssh.test_fidelity import add_key, agent, run
from tests.support import PATIENCE, LocalSshd

__all__ = ["agent"]


class Counting:
    """A port that says how often somebody connected to it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]

    @property
    def has_been_touched(self) -> bool:
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def quiet() -> Iterator[Counting]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Counting(listener)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


async def told(name: str, config: Path, *hosts: Host) -> errors.UsageError:
    """What keeps hosts from being dialled at all."""
    with pytest.raises(errors.UsageError) as caught:
        async with reach_hosts(hosts or (Host("h"),), name, SshOptions(config=config, connect_timeout=PATIENCE)):
            pass
    return caught.value


async def works(name: str, config: Path) -> bool:
    async with reach_hosts((Host("local"),), name, SshOptions(config=config, connect_timeout=PATIENCE)) as reached:
        answers = [answer async for _, answer in reached.dial(5.0)]
        connection = answers[0]
        assert not isinstance(connection, errors.HostError), connection
        return await (await connection.run("true")).wait() == 0


def basics(port: int, folder: Path) -> list[str]:
    return ["HostName 127.0.0.1", f"Port {port}", f"UserKnownHostsFile {folder}/known", "IdentityAgent none"]


async def test_a_broken_line_is_told_when_it_may_have_been_meant_for_the_host(
    ssh_name: str, tmp_path: Path, quiet: Counting
) -> None:
    known = write(tmp_path / "known", "# fine", f"[127.0.0.1]:{quiet.port} ssh-ed25519 AAAAbroken")
    config = write(tmp_path / "c", *basics(quiet.port, tmp_path))
    error = await told(ssh_name, config, Host("a"), Host("b"))
    assert error.place == f"{known}:2"
    assert error.exit_status == 2
    assert not quiet.has_been_touched


async def test_with_accept_new_a_broken_line_does_not_matter(ssh_name: str, local_sshd: LocalSshd) -> None:
    local_sshd.known_hosts.write_text("something else\n")
    config = local_sshd.ssh_config
    config.write_text(config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking accept-new"))
    assert await works(ssh_name, config)


async def test_a_known_hosts_that_can_not_be_read_does_not_matter_when_another_has_the_host(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    config = local_sshd.ssh_config
    known = str(local_sshd.known_hosts)
    config.write_text(config.read_text().replace(known, f"{tmp_path}/folder {known}"))
    assert await works(ssh_name, config)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no key at all\n", 1),
        ("", 1),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nnothing of the kind\n-----END OPENSSH PRIVATE KEY-----\n", 2),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n", 4),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\nAA!A\n-----END RSA PRIVATE KEY-----\n", 3),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\nAAAAA\n-----END RSA PRIVATE KEY-----\n", 3),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", 2),
    ],
)
async def test_a_key_file_that_is_none_is_told_when_there_is_no_other(
    ssh_name: str, tmp_path: Path, quiet: Counting, text: str, line: int
) -> None:
    key = tmp_path / "key"
    key.write_text(text)
    key.chmod(0o600)
    config = write(tmp_path / "c", *basics(quiet.port, tmp_path), f"IdentityFile {key}", "IdentityFile /nowhere")
    error = await told(ssh_name, config)
    assert error.place == f"{key}:{line}"
    assert not quiet.has_been_touched
    plain = write(tmp_path / "d", *basics(quiet.port, tmp_path))
    error = await told(ssh_name, plain, Host("h", identity=str(key)))  # as an inventory names it
    assert error.place == f"{key}:{line}"


async def test_a_key_file_that_is_none_does_not_matter_beside_another(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path
) -> None:
    key = write(tmp_path / "key", "no key at all")
    key.chmod(0o600)
    config = local_sshd.ssh_config
    config.write_text(
        config.read_text().replace("  IdentityFile", f"  IdentityFile {key}\n  IdentityFile /nowhere\n  IdentityFile")
    )
    assert await works(ssh_name, config)


async def test_a_key_file_that_is_none_stands_for_the_agents_key_by_its_public_file(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path, agent: Path
) -> None:
    add_key(agent, local_sshd.identity)
    key = write(tmp_path / "key", "no key at all")
    key.chmod(0o600)
    (tmp_path / "key.pub").write_text(local_sshd.identity.with_suffix(".pub").read_text())
    config = local_sshd.ssh_config
    config.write_text(f"IdentityAgent {agent}\n" + config.read_text().replace(str(local_sshd.identity), str(key)))
    assert await works(ssh_name, config)


@pytest.mark.parametrize("options", ["-t rsa -b 2048", "-t rsa -b 2048 -m PEM", "-t ecdsa -m PKCS8", "-t ed25519"])
@pytest.mark.parametrize("passphrase", ["", "secret"])
def test_keys_of_every_format_are_seen_as_whole(tmp_path: Path, options: str, passphrase: str) -> None:
    make_key(tmp_path / "key", *options.split(), "-N", passphrase)
    found = inspect(tmp_path / "key")
    assert (found.problem, found.broken_line, found.is_encrypted) == ("", 0, bool(passphrase))


async def test_a_revoked_host_key_is_refused(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    public = local_sshd.host_key.with_suffix(".pub")
    revoked = write(tmp_path / "revoked", "# comment", public.read_text().strip())
    config = local_sshd.ssh_config
    config.write_text(f"RevokedHostKeys {revoked}\n{config.read_text()}")
    async with reach_hosts((Host("local"),), ssh_name, SshOptions(config=config, connect_timeout=PATIENCE)) as reached:
        answers = [answer async for _, answer in reached.dial(5.0)]
    assert type(answers[0]) is errors.HostKeyChanged
    assert "revoked" in answers[0].message
    assert fingerprint(local_sshd.host_key) in answers[0].message
    write(revoked, local_sshd.identity.with_suffix(".pub").read_text().strip())
    assert await works(ssh_name, config)


@pytest.mark.parametrize("content", [None, "not a key\n"])
async def test_revoked_keys_that_can_not_be_read_are_told(
    ssh_name: str, tmp_path: Path, quiet: Counting, content: str | None
) -> None:
    revoked = tmp_path / "revoked"
    if content is not None:
        revoked.write_text(content)
    config = write(tmp_path / "c", *basics(quiet.port, tmp_path), f"RevokedHostKeys {revoked}")
    error = await told(ssh_name, config)
    assert (error.place or "").startswith(str(revoked))
    assert not quiet.has_been_touched


async def test_a_binary_list_of_revoked_keys_is_left_to_ssh(tmp_path: Path, local_sshd: LocalSshd) -> None:
    run("ssh-keygen", "-q", "-k", "-f", tmp_path / "krl", local_sshd.host_key.with_suffix(".pub"))
    config = local_sshd.ssh_config
    config.write_text(f"RevokedHostKeys {tmp_path}/krl\n{config.read_text()}")
    found = {}
    for name in ("asyncssh", "paramiko", "openssh"):
        async with reach_hosts((Host("local"),), name, SshOptions(config=config, connect_timeout=PATIENCE)) as reached:
            found[name] = [type(answer) async for _, answer in reached.dial(5.0)]
    unable = [errors.TransportUnavailable]
    assert found == {"asyncssh": unable, "paramiko": unable, "openssh": [errors.HostKeyChanged]}


@pytest.mark.parametrize("lines", ["User x;id\nProxyCommand nc %h %p", "HostName x;id\nProxyJump j", "ProxyJump a;id"])
async def test_names_that_a_shell_would_run_are_told_with_their_line(ssh_name: str, tmp_path: Path, lines: str) -> None:
    config = write(tmp_path / "c", "# first", lines)
    error = await told(ssh_name, config)
    assert error.place == f"{config}:2"


async def test_a_user_name_that_reaches_no_shell_is_left_to_ssh(local_sshd: LocalSshd) -> None:
    config = local_sshd.ssh_config
    config.write_text(config.read_text().replace(f"User {local_sshd.user}", "User a;b"))
    async with reach_hosts((Host("local"),), "openssh", SshOptions(config=config, connect_timeout=PATIENCE)) as reached:
        answers = [type(answer) async for _, answer in reached.dial(5.0)]
    assert answers == [errors.AuthRefused]  # there is no such user
    await told("asyncssh", config, Host("local"))


async def test_a_circle_of_jumps_is_told_with_its_line(ssh_name: str, tmp_path: Path) -> None:
    config = write(tmp_path / "c", "Host a", " ProxyJump b", "Host b", " ProxyJump a")
    error = await told(ssh_name, config, Host("a"))
    assert (error.place or "").startswith(f"{config}:")
    assert "circle" in error.message


async def test_one_bad_host_keeps_all_from_being_touched(ssh_name: str, tmp_path: Path, quiet: Counting) -> None:
    config = write(tmp_path / "c", *basics(quiet.port, tmp_path), "Host b", "  IdentityFile %q")
    error = await told(ssh_name, config, *(Host(name) for name in "abc"))
    assert error.place == f"{config}:6"
    assert not quiet.has_been_touched


def test_every_transport_is_closed_after_such_an_error(ssh_name: str, tmp_path: Path) -> None:
    config = write(tmp_path / "c", "Port many")
    with pytest.raises(errors.UsageError):
        transport.create(ssh_name, SshOptions(config=config))
