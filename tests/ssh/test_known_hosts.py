"""known_hosts files: what is found in them, and how `hosts trust` writes to them."""

import base64
import os
import stat
from pathlib import Path

import pytest

from mnspawn import transport
from mnspawn.errors import HostKeyChanged
from mnspawn.transport import SshOptions, Target
from mnspawn.transport.asyncssh.transport import AsyncsshTransport
from mnspawn.transport.trust import keys, known_hosts, offers
from mnspawn.transport.trust.keys import kind_of
from tests.ssh.test_errors import fingerprint, make_key
from tests.support import LocalSshd


def blob(number: int) -> bytes:
    """Something that has the shape of a key."""
    return b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes([number]) * 32


def line(name: str, key: bytes) -> str:
    return f"{name} {kind_of(key)} {base64.b64encode(key).decode()} a comment\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


@pytest.mark.parametrize(
    ("names", "asked", "is_found"),
    [
        ("h1", "h1", True),
        ("H1,h2", "h1", True),
        ("h1", "h11", False),
        ("*.inner,!bad.inner", "a.inner", True),
        ("*.inner,!bad.inner", "bad.inner", False),
        ("[h1]:2200", "[h1]:2200", True),
        ("[h1]:2200", "h1", False),
        ("10.0.0.?", "10.0.0.7", True),
    ],
)
def test_names_match_as_in_ssh(path: Path, names: str, asked: str, is_found: bool) -> None:
    path.write_text(line(names, blob(1)))
    assert bool(known_hosts.KnownHosts().entries([path], asked)) is is_found
    assert known_hosts.read(path)[0].speaks_of(asked) is is_found


def test_a_name_is_hashed_with_a_salt_of_its_own(path: Path) -> None:
    first, second = known_hosts.hashed("h1"), known_hosts.hashed("h1")
    assert first != second
    path.write_text(line(first, blob(1)) + line(second, blob(2)))
    assert [entry.number for entry in known_hosts.KnownHosts().entries([path], "h1")] == [1, 2]


def test_what_is_appended_starts_a_line_of_its_own(path: Path) -> None:
    path.write_text("# no newline at the end")
    known_hosts.write(path, "h1", [blob(1)], hash_names=False)
    known_hosts.write(path, "h1", [blob(1)], hash_names=False)
    assert path.read_text().splitlines() == [
        "# no newline at the end",
        line("h1", blob(1)).removesuffix(" a comment\n"),
    ]


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    known_hosts.write(tmp_path / "new" / "known_hosts", "h1", [blob(1)], hash_names=True)
    assert (tmp_path / "new" / "known_hosts").stat().st_mode & 0o777 == 0o600


def test_others_can_not_write_to_it_for_a_moment_whatever_the_umask(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has a file open goes on writing to it."""
    modes = []
    fchmod = os.fchmod

    def watched(fd: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        fchmod(fd, mode)

    monkeypatch.setattr(os, "fchmod", watched)
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    path.unlink(missing_ok=True)
    before = os.umask(0)
    try:
        known_hosts.write(path, "h1", [blob(1)], hash_names=False)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        known_hosts.write(path, "h1", [blob(7)], hash_names=False, replace=True)
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_replacing_takes_out_the_hosts_old_key_and_nothing_else(path: Path) -> None:
    kept = [line("h2", blob(2)), "# said\n", "@revoked " + line("h1", blob(9))]
    path.write_text(line("h1,h3", blob(1)) + kept[0] + line(known_hosts.hashed("h1"), blob(3)) + "".join(kept[1:]))
    known_hosts.write(path, "h1", [blob(7)], hash_names=False, replace=True)
    lines = path.read_text().splitlines(keepends=True)
    assert lines[:4] == [line("h3", blob(1)), *kept]
    assert lines[4].startswith("h1 ")
    assert [entry.key for entry in known_hosts.read(path) if entry.speaks_of("h1") and not entry.marker] == [blob(7)]


def test_what_is_broken_stays_in_its_line(path: Path) -> None:
    broken = "h3 ssh-ed25519 AAAAbroken\x0c\u2028 comment\nh4 1024 35 123456\n"
    path.write_text(broken + line("h1", blob(1)) + line("h2", blob(2)))
    known_hosts.write(path, "h1", [blob(7)], hash_names=False, replace=True)
    assert path.read_text().startswith(broken + line("h2", blob(2)) + "h1 ")
    problem = known_hosts.KnownHosts().problem([path])
    assert problem is not None
    assert problem.place == f"{path}:1"


def asyncssh_transport(server: LocalSshd) -> AsyncsshTransport:
    shared = transport.create("asyncssh", SshOptions(config=server.ssh_config))
    assert isinstance(shared, AsyncsshTransport)
    return shared


async def offered(shared: AsyncsshTransport) -> offers.Offer:
    target = Target("local")
    return offers.compare(shared.hop(target), await shared.host_keys(target))


async def test_trust_fetches_keys_of_every_type_and_writes_them(tmp_path: Path) -> None:
    make_key(tmp_path / "rsa", "-t", "rsa")
    with LocalSshd(sshd_config=f"HostKey {tmp_path}/rsa") as server:
        server.known_hosts.unlink()
        shared = asyncssh_transport(server)
        offer = await offered(shared)
        assert [(key.kind, key.fingerprint) for key in offer.new] == [
            ("ssh-ed25519", fingerprint(server.host_key)),
            ("ssh-rsa", fingerprint(tmp_path / "rsa")),
        ]
        assert not server.known_hosts.exists()
        offers.accept(offer, replace=False)
        again = await offered(shared)
        assert (again.new, again.changed, again.known, again.keys) == ((), (), 2, ())
        await (await shared.connect(Target("local"))).close()
        await shared.close()


async def test_trust_replaces_a_key_only_when_told_to(local_sshd: LocalSshd) -> None:
    name = f"[127.0.0.1]:{local_sshd.port}"
    local_sshd.known_hosts.write_text(line("other", blob(1)) + line(known_hosts.hashed(name), blob(2)))
    shared = asyncssh_transport(local_sshd)
    offer = await offered(shared)
    assert offer.new == ()
    assert [key.before for key in offer.changed] == [f"{local_sshd.known_hosts}:2 has {keys.fingerprint(blob(2))}"]
    with pytest.raises(HostKeyChanged, match=f"{local_sshd.known_hosts}:2") as caught:
        offers.accept(offer, replace=False)
    assert "--replace" in (caught.value.hint or "")
    offers.accept(offer, replace=True)
    lines = local_sshd.known_hosts.read_text().splitlines()
    assert lines[0] + "\n" == line("other", blob(1))
    assert lines[1].startswith("|1|")
    await (await shared.connect(Target("local"))).close()
    await shared.close()
