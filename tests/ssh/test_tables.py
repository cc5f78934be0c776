"""The tables of errors are complete, and that of docs/ssh.md is true."""

import inspect
import subprocess
import sys
from pathlib import Path

import asyncssh
import paramiko
import pytest
from paramiko import ssh_exception

from mnspawn import errors
from mnspawn.transport import SshOptions, Target, create
from mnspawn.transport.asyncssh import transport as asyncssh_transport
from mnspawn.transport.openssh import log as openssh_log
from mnspawn.transport.paramiko import transport as paramiko_transport
from tests.support.controller import REPOSITORY

# raised where no connection to a host is: by server code, listeners, SFTP, terminals; or a warning to callers
ELSEWHERE = {
    asyncssh.BreakReceived,
    asyncssh.ChannelListenError,
    asyncssh.ConfigParseError,  # its parser is not used
    asyncssh.KeyExportError,
    asyncssh.KeyGenerationError,
    asyncssh.PasswordChangeRequired,
    asyncssh.ProcessError,
    asyncssh.SignalReceived,
    asyncssh.TerminalSizeChanged,
    asyncssh.TimeoutError,
}


def test_every_exception_of_asyncssh_has_a_line() -> None:
    raised = {
        value
        for _, value in inspect.getmembers(asyncssh, inspect.isclass)
        if issubclass(value, Exception) and not value.__name__.startswith("SFTP")
    }
    known = tuple(foreign for foreign, _ in asyncssh_transport.TABLE)
    assert {kind for kind in raised - ELSEWHERE - {asyncssh.Error} if not issubclass(kind, known)} == set()


def test_every_exception_of_paramiko_has_a_line() -> None:
    raised = {value for _, value in inspect.getmembers(ssh_exception, inspect.isclass) if issubclass(value, Exception)}
    known = tuple(foreign for foreign, _ in paramiko_transport.TABLE)
    assert {kind for kind in raised if not issubclass(kind, known)} == set()
    assert issubclass(paramiko.SSHException, known)


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("ssh: connect to host h port 22: Connection refused\n", errors.ConnectionRefused),
        ("ssh: connect to host h port 22: No route to host\n", errors.NoRoute),
        ("ssh: connect to host h port 22: Network is unreachable\n", errors.NoRoute),
        ("ssh: connect to host h port 22: Connection timed out\n", errors.ConnectTimeout),
        ("Connection timed out during banner exchange\n", errors.ConnectTimeout),
        ("ssh: Could not resolve hostname h: Name or service not known\n", errors.NameUnknown),
        ("ssh: Could not resolve hostname h: Temporary failure in name resolution\n", errors.LookupFailed),
        ("kex_exchange_identification: Connection closed by remote host\n", errors.ConnectionClosed),
        ("kex_exchange_identification: read: Connection reset by peer\n", errors.ConnectionClosed),
        ("Unable to negotiate: no matching cipher found. Their offer: 3des-cbc\r\n", errors.NoCommonAlgorithm),
        ("Unable to negotiate: no matching host key type found. Their offer: ssh-dss\n", errors.NoCommonAlgorithm),
        ("Host key verification failed.\n", errors.HostKeyUnknown),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n", errors.HostKeyChanged),
        ("root@h: Permission denied (publickey,password).\n", errors.AuthRefused),
        ("Received disconnect: Too many authentication failures\n", errors.AuthRefused),
        ("something that nobody has seen yet\n", errors.HostError),
    ],
)
def test_what_ssh_says_has_a_line(log: str, kind: type[errors.HostError]) -> None:
    error = openssh_log.explain(f"debug1: Connecting\n{log}", "h")
    assert type(error) is kind
    assert not {"{", "\r"} & set(error.message)


@pytest.mark.parametrize(("passphrase", "kind"), [("secret", errors.PassphraseNeeded), ("", errors.AuthRefused)])
def test_ssh_says_nothing_of_an_encrypted_key_without_its_public_one(
    passphrase: str, kind: type[errors.HostError], tmp_path: Path
) -> None:
    key = tmp_path / "id_rsa"
    options = ["-t", "rsa", "-m", "PEM", "-N", passphrase]  # a format that does not tell the public key
    subprocess.run(["ssh-keygen", "-q", *options, "-f", key], check=True)
    key.with_name("id_rsa.pub").unlink()
    error = openssh_log.explain(f"debug1: Trying private key: {key}\nme@h: Permission denied (publickey).\n", "h")
    assert type(error) is kind
    assert (f"key {key} needs a passphrase" in error.message) == bool(passphrase)


@pytest.mark.parametrize(
    ("log", "place"),
    [
        ("/root/.ssh/config: line 3: Bad configuration option: prot\n", "/root/.ssh/config:3"),
        ("/root/.ssh/config line 3: Bad port 'many'.\n", "/root/.ssh/config:3"),
        ("Bad owner or permissions on /root/.ssh/config\n", "/root/.ssh/config"),
    ],
)
def test_what_ssh_has_against_its_configuration_is_bad_input(log: str, place: str) -> None:
    error = openssh_log.unusable_config(f"debug1: Reading\n{log}")
    assert error is not None
    assert error.place == place
    assert openssh_log.unusable_config("ssh: connect to host h port 22: Connection refused\n") is None


@pytest.fixture(scope="module")
def limits() -> list[list[str]]:
    """The rows of the documentation's table of what each transport can do, without its head."""
    text = (REPOSITORY / "docs" / "ssh.md").read_text(encoding="utf-8")
    table = text.partition("| | asyncssh | paramiko | openssh |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
@pytest.mark.parametrize(
    ("keyword", "line"),
    [
        ("`CanonicalizeHostname`", "CanonicalizeHostname yes"),
        ("`ProxyUseFdpass`", "ProxyUseFdpass yes"),
        ("`Match localnetwork`", "Match localnetwork 10.0.0.0/8"),
        ("`Match version`", "Match version OpenSSH_10.*"),
        ("binary `RevokedHostKeys`", "RevokedHostKeys {folder}/revoked"),
    ],
)
def test_settings_that_the_documentation_leaves_to_ssh_are_refused_with_a_hint(
    limits: list[list[str]], name: str, keyword: str, line: str, tmp_path: Path
) -> None:
    assert [row[1:] for row in limits if keyword in row[0]] == [["no", "no", "yes"]]
    (tmp_path / "revoked").write_bytes(b"SSHKRL\n\0")
    (tmp_path / "config").write_text(line.format(folder=tmp_path) + "\n")
    with pytest.raises(errors.TransportUnavailable) as caught:
        create(name, SshOptions(config=tmp_path / "config")).endpoint(Target("h"))
    assert caught.value.hint == "--transport openssh"


def test_the_documentation_says_what_each_transport_can_do(limits: list[list[str]]) -> None:
    assert len(limits) == 7
    assert [row for row in limits if len(row) != 4 or "" in row] == []


@pytest.mark.parametrize(
    ("before", "is_heard"), [("", False), ("logging.getLogger('asyncssh').setLevel('INFO')", True)]
)
def test_callers_who_log_hear_of_every_channel_only_if_they_ask(before: str, is_heard: bool) -> None:
    program = f"""
import logging
logging.basicConfig(level=logging.INFO)
{before}
from mnspawn.transport.asyncssh.library import asyncssh
print(logging.getLogger("asyncssh").isEnabledFor(logging.INFO))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{is_heard}\n"
