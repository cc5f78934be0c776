"""ssh_config is read as OpenSSH reads it: held against `ssh -G`."""

import getpass
import subprocess
from pathlib import Path

import pytest

from mnspawn.errors import UsageError
from mnspawn.transport import SshOptions, Target
from mnspawn.transport.config.route import DEFAULT, Router, parse_destination
from mnspawn.transport.config.ssh_config import SshConfig
from tests.support.work import calls

CONFIG = """\
# a comment
Include {folder}/more/*.conf

Host alias another # trailing words
    HostName real.example
    Port=2222
    User "some one"
    IdentityFile ~/.ssh/%h-%r-key
    IdentityFile {folder}/second
    SetEnv A=1 B=2 A=3
    SetEnv C=4
Host *.inner !bad.inner
    ProxyJump first@j1:2200,second@j2
    HostKeyAlias %h-alias
Host quoted
    ProxyCommand nc -X "a b" %h %p # not a comment
    UserKnownHostsFile "{folder}/known one" {folder}/two
Match host real.example user other
    Ciphers aes256-ctr
Match originalhost exec1 exec "test %n = exec1"
    Port 7001
Match originalhost exec2 exec "test %n = exec1"
    Port 7002
Match !originalhost alias,quoted localuser *
    ServerAliveInterval 7
Match final host final.example
    Port 7003
Host final
    HostName final.example
Host *
    Port 2022
    User fallback
    ConnectTimeout 1m30
    StrictHostKeyChecking accept-new
    IdentityFile {folder}/last
"""
HOSTS = [
    "alias",
    "another",
    "a.inner",
    "bad.inner",
    "quoted",
    "exec1",
    "exec2",
    "final",
    "included",
    "plain",
    "10.0.0.1",
]
KEYWORDS = ["hostname", "port", "user", "ciphers", "serveraliveinterval", "connecttimeout", "proxycommand", "proxyjump"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.conf").write_text("Host included\n  Port 1\n")
    (tmp_path / "more" / "a.conf").write_text("Host included\n  User inner\nHost nothing\n  Include deeper\n")
    path = tmp_path / "config"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


def asked(config: Path, host: str, *options: str) -> dict[str, list[str]]:
    done = subprocess.run(["ssh", "-G", "-F", config, *options, host], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, []).append(value)
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_values_are_those_of_ssh(config: Path, host: str) -> None:
    theirs, ours = asked(config, host), SshConfig(config).lookup(host)
    assert ours.hostname == theirs["hostname"][0]
    assert ours.user == theirs["user"][0]
    assert str(ours.port) == theirs["port"][0]
    assert ours.seconds("connecttimeout") == int(theirs["connecttimeout"][0])
    for keyword in ("proxyjump", "proxycommand", "hostkeyalias"):
        assert ours.text(keyword) == (theirs[keyword][0] if keyword in theirs else None), keyword
    if ours.text("ciphers"):
        assert ours.text("ciphers") == theirs["ciphers"][0]
    assert (ours.text("serveraliveinterval") or "0") == theirs["serveraliveinterval"][0]
    assert [ours.all("identityfile")[i].text for i in range(len(theirs["identityfile"]))] == theirs["identityfile"]


def test_a_user_and_port_that_are_given_win_and_count_in_match(config: Path) -> None:
    theirs = asked(config, "alias", "-l", "other", "-p", "99")
    ours = SshConfig(config).lookup("alias", "other", 99)
    assert (ours.user, str(ours.port)) == (theirs["user"][0], theirs["port"][0])
    assert ours.text("ciphers") == theirs["ciphers"][0] == "aes256-ctr"


def test_each_value_has_its_origin(config: Path) -> None:
    hop = Router(SshOptions(config=config)).hop(Target("alias", user="given"))
    lines = config.read_text().splitlines()
    assert hop.origins["user"] == "inventory"
    assert hop.origins["hostname"] == f"{config}:{lines.index('    HostName real.example') + 1}"
    assert hop.identities[0] == Path("~/.ssh/real.example-given-key").expanduser()
    assert hop.env == ((b"A", b"1"), (b"B", b"2"))


@pytest.mark.parametrize("line", [b"HostName caf\xe9", b"User caf\xe9"])
def test_names_that_are_not_utf8_are_refused(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"# caf\xe9\nHost h\n  HostKeyAlias \xe9\n  " + line + b"\n")
    with pytest.raises(UsageError, match="is not UTF-8") as caught:
        Router(SshOptions(config=path)).hop(Target("h"))
    assert caught.value.place == f"{path}:4"


def test_effective_values_come_with_their_origins(config: Path) -> None:
    hop = Router(SshOptions(config=config)).hop(Target("final", port=1))
    number = config.read_text().splitlines().index("    HostName final.example") + 1
    assert (hop.address, hop.origins["hostname"]) == ("final.example", f"{config}:{number}")
    assert (hop.port, hop.origins["port"]) == (1, "inventory")
    assert (hop.jump, hop.origins.get("proxyjump", DEFAULT)) == (None, "default")
    assert hop.host_key_check == "accept-new"


def test_inventory_values_win_over_host_star(config: Path) -> None:
    target = Target("plain", address="10.9.9.9", user="me", port=22, identity=Path("/keys/k"), jump="u@j:1")
    hop = Router(SshOptions(config=config, host_key_check="strict")).hop(target)
    assert (hop.address, hop.user, hop.port, hop.identities) == ("10.9.9.9", "me", 22, (Path("/keys/k"),))
    assert hop.jump is not None
    assert (hop.jump.address, hop.jump.user, hop.jump.port) == ("j", "u", 1)
    assert hop.host_key_check == "strict"


def test_jumps_are_chained_in_their_order(config: Path) -> None:
    hop = Router(SshOptions(config=config)).hop(Target("a.inner"))
    assert hop.known_as == "%h-alias"  # ssh expands no tokens there
    last = hop.jump
    assert last is not None
    assert (last.address, last.user, last.port) == ("j2", "second", 2022)
    assert last.jump is not None
    assert (last.jump.address, last.jump.user, last.jump.port) == ("j1", "first", 2200)


def test_a_circle_of_jumps_is_told(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(Exception, match="circle"):
        Router(SshOptions(config=tmp_path / "c")).hop(Target("a"))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('Host a\n  User "open\n', 2, "not closed"),
        ("Port\n", 1, "expected a value"),
        ("Match nonsense x\n", 1, "no such criterion"),
        ("Host a\nMatch host\n", 2, "expected a pattern"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        SshConfig(path)
    assert caught.value.place == f"{path}:{line}"


def test_a_file_that_is_not_there_is_an_error_when_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't read it"):
        SshConfig(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h", (None, "h", None)),
        ("u@h:22", ("u", "h", 22)),
        ("ssh://u@h:22/", ("u", "h", 22)),
        ("[::1]:2200", (None, "::1", 2200)),
        ("u@fe80::1", ("u", "fe80::1", None)),
        ("a@b@h", ("a@b", "h", None)),
    ],
)
def test_destinations(text: str, expected: tuple[str | None, str, int | None]) -> None:
    assert parse_destination(text) == expected


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    hop = Router(SshOptions(config=tmp_path / "empty")).hop(Target("h"))
    assert (hop.address, hop.port, hop.user, hop.host_key_check) == ("h", 22, getpass.getuser(), "strict")


def test_a_file_with_many_hosts_is_asked_with_little_work(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("".join(f"Host n{number}\n  Port {1000 + number}\n" for number in range(1000)))
    config = SshConfig(path)

    def ask() -> None:
        assert [config.lookup(f"n{number}").port for number in range(64)] == list(range(1000, 1064))

    assert calls(ask) < 4 * 64 * 1000  # two for each block and host; to compile a pattern takes hundreds
