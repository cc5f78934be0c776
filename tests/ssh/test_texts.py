"""What servers say until they have let somebody in, in any encoding: it keeps nobody out, and is quoted safely."""

import struct
import sys
from pathlib import Path

import pytest

from mnspawn import errors, transport
from mnspawn.transport import SshOptions, Target
from tests.ssh.test_errors import failure, hanging_up, prepend
from tests.support import PATIENCE, LocalSshd

LATIN1 = "Accès réservé aux membres du laboratoire\r\nZugriff nur für Befugte\r\n".encode("latin-1")
HOSTILE = b"\x1b]0;title\x07\x1b[2J\x9b31mred\x1b[0m \x08 to be read \xff\r\n"


async def reaches(ssh_name: str, config: Path) -> bool:
    shared = transport.create(ssh_name, SshOptions(config=config, connect_timeout=PATIENCE))
    try:
        return await (await (await shared.connect(Target("local"))).run("true")).wait() == 0
    finally:
        await shared.close()


@pytest.mark.parametrize("text", [LATIN1, HOSTILE, "東京\n".encode("shift-jis"), bytes(range(256))])
async def test_a_banner_of_any_encoding_keeps_nobody_out(ssh_name: str, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "banner").write_bytes(text)
    with LocalSshd(sshd_config=f"Banner {tmp_path}/banner") as server:
        assert await reaches(ssh_name, server.ssh_config)


async def test_a_banner_is_quoted_where_nobody_is_let_in(ssh_name: str, tmp_path: Path) -> None:
    (tmp_path / "banner").write_bytes(HOSTILE + LATIN1)
    with LocalSshd(sshd_config=f"Banner {tmp_path}/banner") as server:
        server.identity.with_suffix(".pub").write_text("")
        error = await failure(ssh_name, server.ssh_config, Target("local"))
    assert type(error) is errors.AuthRefused
    assert "to be read" in error.message
    assert "aux membres du laboratoire" in error.message
    assert error.message.isprintable()


@pytest.mark.parametrize("text", [LATIN1, HOSTILE, b"x\r\n" * 20])
async def test_lines_before_the_version_keep_nobody_out(ssh_name: str, local_sshd: LocalSshd, text: bytes) -> None:
    relay = local_sshd.folder / "relay"
    relay.write_text(
        "import os, socket, threading\n"
        f"there = socket.create_connection(('127.0.0.1', {local_sshd.port}))\n"
        f"os.write(1, {text!r})\n"
        "def up():\n"
        "    while chunk := os.read(0, 65536): there.sendall(chunk)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while chunk := there.recv(65536): os.write(1, chunk)\n"
    )
    prepend(local_sshd.ssh_config, f"ProxyCommand {sys.executable} {relay}")
    assert await reaches(ssh_name, local_sshd.ssh_config)


def disconnect(reason: bytes) -> bytes:
    """A server's version, and its last words (RFC 4253, 11.1)."""
    payload = struct.pack(">BII", 1, 11, len(reason)) + reason + struct.pack(">I", 0)
    padding = 8 - (5 + len(payload)) % 8 + 8
    return b"SSH-2.0-other\r\n" + struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)


@pytest.mark.parametrize("text", [LATIN1.strip(), HOSTILE.strip() + b"\x00"])
async def test_last_words_of_any_encoding_are_an_error_of_the_host(ssh_name: str, tmp_path: Path, text: bytes) -> None:
    config = tmp_path / "config"
    config.write_text(f"UserKnownHostsFile {tmp_path}/known_hosts\n")
    with hanging_up(disconnect(text)) as port:
        error = await failure(ssh_name, config, Target("h", address="127.0.0.1", port=port))
    assert isinstance(error, errors.HostError)
    assert error.message.isprintable()


@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_version_that_is_no_ascii_is_an_error_of_the_host(name: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"UserKnownHostsFile {tmp_path}/known_hosts\n")
    with hanging_up("SSH-2.0-réservé\r\n".encode("latin-1")) as port:
        error = await failure(name, config, Target("h", address="127.0.0.1", port=port))
    assert isinstance(error, errors.HostError)
    assert error.message.isprintable()
