"""A value that ssh takes is taken; one that ssh refuses is told with file and line, in every block, before all else."""

import subprocess
from pathlib import Path

import pytest

from mnspawn import transport
from mnspawn.errors import UsageError
from mnspawn.transport import SshOptions
from mnspawn.transport.config.ssh_config import SshConfig

REFUSED = """
Port abc
Port 0
Port 70000
Port 22x
Port -1
Port 22 23
Port==2
Port 7# x
Port "2
ConnectTimeout x
ConnectTimeout -3
ConnectTimeout 5 6
IdentitiesOnly perhaps
IdentitiesOnly yes no
Compression maybe
Compression true
HashKnownHosts maybe
StrictHostKeyChecking maybe
AddressFamily ipx
CanonicalizeHostname maybe
User
User a b
User ""
HostName
HostName a b
HostKeyAlias a b
BindAddress a b
KexAlgorithms nonsense
KexAlgorithms +nonsense
KexAlgorithms ^nonsense
Ciphers nonsense
Ciphers aes256-ctr aes128-ctr
MACs nonsense
HostKeyAlgorithms nonsense
SetEnv A
SetEnv =1
SetEnv A B=2
SendEnv A=1
IdentityFile
IdentityFile a b
UserKnownHostsFile none /x
ProxyJump a,,b
ProxyJump a, b
ProxyJump a:abc
ProxyJump a:0
ProxyJump a:70000
ProxyJump ssh://a:22/x
ProxyJump u@
ProxyJump @a
ProxyCommand
Match host
Match
Match all host a
Match exec
Match nonsense
Match host a,b user
Match localnetwork 10.0.0.0/33
Include
Host
Host "a
""".strip().splitlines()

TAKEN = """
Port ssh
Port = 2
Port =2
Port "2"
ConnectTimeout none
ConnectTimeout 0
ConnectTimeout 1M30
IdentitiesOnly TRUE
StrictHostKeyChecking ASK
StrictHostKeyChecking off
StrictHostKeyChecking true
AddressFamily INET
CanonicalizeHostname ALWAYS
User -x
User a;b
User "a b"
User a#b # comment
HostName a;b
HostName %h.example
KexAlgorithms -nonsense
KexAlgorithms -curve*
Ciphers aes256-ctr,
Ciphers +3des-cbc
Ciphers ^aes256-ctr
MACs hmac-sha1
HostKeyAlgorithms ssh-*
HostKeyAlgorithms +ssh-rsa
SetEnv A=1 B=2
SetEnv "A=1 2"
SendEnv -LC_*
SendEnv A B
IdentityFile none
IdentityFile /nowhere/key
IdentityFile %q
CertificateFile none
IdentityAgent relative
UserKnownHostsFile none
UserKnownHostsFile a b c
ProxyJump a b
ProxyJump a # comment
ProxyJump u@a@b:3
ProxyJump [::1]:3
ProxyJump ssh://u@a:3,b
ProxyJump NONE
ProxyCommand nc %q %h
Match final all
Match !all
Match host=h
Match host a,b user c
Include /nowhere
RequestTTY force
RemoteCommand nonsense
ControlMaster auto
""".strip().splitlines()


@pytest.mark.parametrize("block", ["Host other", "Match host other"])
@pytest.mark.parametrize("line", REFUSED)
def test_what_ssh_refuses_is_told_with_its_line(tmp_path: Path, block: str, line: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"{block}\n  {line}\n")
    assert subprocess.run(["ssh", "-G", "-F", path, "h"], capture_output=True, check=False).returncode != 0
    with pytest.raises(UsageError) as caught:
        SshConfig(path)
    assert caught.value.place == f"{path}:2"


@pytest.mark.parametrize("line", TAKEN)
def test_what_ssh_takes_is_taken(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"Host other\n  {line}\n")
    subprocess.run(["ssh", "-G", "-F", path, "h"], capture_output=True, check=True)
    assert SshConfig(path).lookup("h").port == 22


def test_a_bad_value_keeps_every_transport_from_being_made(ssh_name: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("# first\nHost other\n  Port many\n")
    with pytest.raises(UsageError) as caught:
        transport.create(ssh_name, SshOptions(config=path))
    assert caught.value.place == f"{path}:3"


def test_an_included_file_to_which_others_may_write_is_refused_as_ssh_does(tmp_path: Path) -> None:
    included = tmp_path / "an included"
    included.write_text("Port 9\n")
    included.chmod(0o666)
    path = tmp_path / "config"
    path.write_text(f'Include "{included}"\n')
    assert subprocess.run(["ssh", "-G", "-F", path, "h"], capture_output=True, check=False).returncode != 0
    with pytest.raises(UsageError, match="others may write") as caught:
        SshConfig(path)
    assert caught.value.place == str(included)
    assert caught.value.hint == f"chmod go-w '{included}'"
