"""What works with `ssh HOST` works here: keys, agents, certificates, known_hosts of every kind, jumps and proxies."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mnspawn import errors, transport
from mnspawn.transport import SshOptions, Target
from tests.ssh.test_errors import make_key
from tests.support import PATIENCE, LocalSshd

pytestmark = pytest.mark.full


async def reach(name: str, config: Path, *targets: Target, **options: object) -> list[str]:
    """What `echo hello` says on each, all at once. Raises what connecting raises."""
    settings = SshOptions(config=config, connect_timeout=PATIENCE, **options)  # type: ignore[arg-type]
    shared = transport.create(name, settings)
    try:

        async def one(target: Target) -> str:
            process = await (await shared.connect(target)).run('echo "hello $MARK"')
            await process.write_eof()
            said = b""
            while chunk := await process.read():
                said += chunk
            assert await process.wait() == 0
            return said.decode().strip()

        return list(await asyncio.gather(*(one(target) for target in targets)))
    finally:
        await shared.close()


def run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def basics(server: LocalSshd) -> list[str]:
    return [
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"UserKnownHostsFile {server.known_hosts}",
        "IdentityAgent none",
    ]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """An ssh-agent without keys; its socket."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield path
        running.kill()


def add_key(agent: Path, key: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", key], check=True, env=environment, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "options", ["-t rsa -b 2048", "-t ecdsa -b 256", "-t ecdsa -b 521", "-t rsa -m PEM", "-t ed25519"]
)
async def test_keys_of_every_type_are_used(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path, options: str) -> None:
    key = tmp_path / "key with spaces"
    make_key(key, *options.split())
    public = local_sshd.identity.with_suffix(".pub")
    public.write_text(key.with_name("key with spaces.pub").read_text())
    write(tmp_path / "c", *basics(local_sshd), f'IdentityFile "{key}"')
    assert await reach(ssh_name, tmp_path / "c", Target("h")) == ["hello"]


async def test_several_identities_are_tried_in_turn(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    make_key(tmp_path / "wrong")
    files = [f"IdentityFile {path}" for path in ("/nowhere", tmp_path / "wrong", local_sshd.identity)]
    write(tmp_path / "c", *basics(local_sshd), *files)
    assert await reach(ssh_name, tmp_path / "c", Target("h")) == ["hello"]


async def test_the_agent_is_asked(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path, agent: Path) -> None:
    add_key(agent, local_sshd.identity)
    lines = [*basics(local_sshd)[:-1], f"IdentityAgent {agent}", "IdentityFile none"]
    assert await reach(ssh_name, write(tmp_path / "c", *lines), Target("h"), Target("i")) == ["hello", "hello"]


async def test_identities_only_picks_the_agents_key_by_its_public_file(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path, agent: Path
) -> None:
    for number in range(7):  # more than a server has patience with
        make_key(tmp_path / f"k{number}")
        add_key(agent, tmp_path / f"k{number}")
    add_key(agent, local_sshd.identity)
    public = tmp_path / "mine.pub"
    public.write_text(local_sshd.identity.with_suffix(".pub").read_text())
    lines = [*basics(local_sshd)[:-1], f"IdentityAgent {agent}", f"IdentityFile {public}", "IdentitiesOnly yes"]
    assert await reach(ssh_name, write(tmp_path / "c", *lines), Target("h")) == ["hello"]


async def test_an_encrypted_key_whose_agent_holds_it(
    ssh_name: str, local_sshd: LocalSshd, tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_key(agent, local_sshd.identity)
    run("ssh-keygen", "-q", "-p", "-N", "secret", "-f", local_sshd.identity)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    write(tmp_path / "c", *basics(local_sshd)[:-1], f"IdentityFile {local_sshd.identity}", "IdentitiesOnly yes")
    assert await reach(ssh_name, tmp_path / "c", Target("h")) == ["hello"]


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
@pytest.mark.parametrize("place", ["file", "file and agent", "agent"])
async def test_user_certificates(ssh_name: str, tmp_path: Path, agent: Path, place: str, kind: str) -> None:
    make_key(tmp_path / "ca")
    make_key(tmp_path / "key", "-t", kind)
    run("ssh-keygen", "-q", "-s", tmp_path / "ca", "-I", "me", "-n", "root", tmp_path / "key.pub")
    with LocalSshd(sshd_config=f"TrustedUserCAKeys {tmp_path}/ca.pub\nAuthorizedKeysFile none") as server:
        lines = [*basics(server)[:-1], f"IdentityAgent {agent if 'agent' in place else 'none'}"]
        if "agent" in place:
            add_key(agent, tmp_path / "key")
        file = ["IdentityFile none"] if place == "agent" else [f"IdentityFile {tmp_path}/key", "IdentitiesOnly yes"]
        write(tmp_path / "c", *lines, *file)
        assert await reach(ssh_name, tmp_path / "c", Target("h", user="root")) == ["hello"]


async def test_hashed_known_hosts(ssh_name: str, local_sshd: LocalSshd) -> None:
    run("ssh-keygen", "-q", "-H", "-f", local_sshd.known_hosts)
    assert local_sshd.known_hosts.read_text().startswith("|1|")
    assert await reach(ssh_name, local_sshd.ssh_config, Target("local")) == ["hello"]


async def test_a_host_key_alias(ssh_name: str, local_sshd: LocalSshd) -> None:
    key = local_sshd.known_hosts.read_text().split(" ", 1)[1]
    local_sshd.known_hosts.write_text(f"gpu-07 {key}")
    config = local_sshd.ssh_config
    config.write_text(f"{config.read_text()}  HostKeyAlias gpu-07\n")
    assert await reach(ssh_name, config, Target("local")) == ["hello"]


async def test_the_key_of_the_known_type_is_asked_for(ssh_name: str, tmp_path: Path) -> None:
    """The server prefers another key, which known_hosts does not have."""
    make_key(tmp_path / "rsa", "-t", "rsa")
    with LocalSshd(sshd_config=f"HostKey {tmp_path}/rsa") as server:
        public = " ".join((tmp_path / "rsa.pub").read_text().split()[:2])
        server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public}\n")
        assert await reach(ssh_name, server.ssh_config, Target("local")) == ["hello"]


def sign_host(folder: Path, *options: str) -> str:
    """A host key with a certificate; what sshd_config has to say of it."""
    make_key(folder / "ca")
    make_key(folder / "host", "-t", "ecdsa")
    run("ssh-keygen", "-q", "-s", folder / "ca", "-I", "it", "-h", *options, folder / "host.pub")
    return f"HostKey {folder}/host\nHostCertificate {folder}/host-cert.pub"


def trust_authority(server: LocalSshd, folder: Path, *markers: str) -> None:
    authority = " ".join((folder / "ca.pub").read_text().split()[:2])
    server.known_hosts.write_text("".join(f"{marker} [127.0.0.1]:* {authority}\n" for marker in markers))


async def test_a_host_certificate_by_a_known_authority(ssh_name: str, tmp_path: Path) -> None:
    with LocalSshd(sshd_config=sign_host(tmp_path, "-n", "127.0.0.1,other")) as server:
        trust_authority(server, tmp_path, "@cert-authority")
        assert await reach(ssh_name, server.ssh_config, Target("local")) == ["hello"]


@pytest.mark.parametrize("options", [("-n", "another.host"), ("-n", "127.0.0.1", "-V", "20200101:20200102")])
@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_host_certificate_that_does_not_fit(name: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    with LocalSshd(sshd_config=sign_host(tmp_path, *options)) as server:
        trust_authority(server, tmp_path, "@cert-authority")
        with pytest.raises(errors.HostKeyError, match="certificate was not accepted"):
            await reach(name, server.ssh_config, Target("local"))


@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_host_certificate_by_a_revoked_authority(name: str, tmp_path: Path) -> None:
    with LocalSshd(sshd_config=sign_host(tmp_path, "-n", "127.0.0.1")) as server:
        trust_authority(server, tmp_path, "@cert-authority", "@revoked")
        with pytest.raises(errors.HostKeyError):
            await reach(name, server.ssh_config, Target("local"))


async def test_a_revoked_host_key(ssh_name: str, local_sshd: LocalSshd) -> None:
    line = local_sshd.known_hosts.read_text()
    local_sshd.known_hosts.write_text(f"{line}@revoked {line}")
    where = "in known_hosts" if ssh_name == "openssh" else f"at {local_sshd.known_hosts}:2"
    with pytest.raises(errors.HostKeyChanged, match=f"revoked {where}"):
        await reach(ssh_name, local_sshd.ssh_config, Target("local"))


@pytest.mark.parametrize("is_hashed", [False, True])
async def test_accept_new_records_a_key_once_and_refuses_a_changed_one(
    ssh_name: str, local_sshd: LocalSshd, is_hashed: bool
) -> None:
    recorded = local_sshd.known_hosts.read_text()
    local_sshd.known_hosts.write_text("")
    config = local_sshd.ssh_config
    config.write_text(f"{config.read_text()}  HashKnownHosts {'yes' if is_hashed else 'no'}\n")
    for _ in range(2):
        said = await reach(ssh_name, config, Target("local"), host_key_check="accept-new")
        assert said == ["hello"]
    lines = local_sshd.known_hosts.read_text().splitlines()
    assert len([line for line in lines if "ssh-ed25519" in line]) == 1
    assert lines[0].startswith("|1|") if is_hashed else lines[0] == recorded.strip()
    other = local_sshd.identity.with_suffix(".pub").read_text().split()[1]
    local_sshd.known_hosts.write_text(f"[127.0.0.1]:{local_sshd.port} ssh-ed25519 {other}\n")
    with pytest.raises(errors.HostKeyChanged):
        await reach(ssh_name, config, Target("local"), host_key_check="accept-new")


async def test_a_proxy_command(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    proxy = write(
        tmp_path / "proxy.py",
        "import os, select, socket, sys",
        "print('on its way', file=sys.stderr, flush=True)",
        "peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))",
        "while True:",
        "    for source in select.select([0, peer], [], [])[0]:",
        "        data = os.read(0, 65536) if source == 0 else peer.recv(65536)",
        "        if not data: sys.exit()",
        "        peer.sendall(data) if source == 0 else os.write(1, data)",
    )
    config = local_sshd.ssh_config
    config.write_text(f"Host local\n  ProxyCommand {sys.executable} {proxy} %h %p\n{config.read_text()}")
    assert await reach(ssh_name, config, Target("local")) == ["hello"]


async def test_a_proxy_command_that_fails(ssh_name: str, local_sshd: LocalSshd) -> None:
    config = local_sshd.ssh_config
    config.write_text(f"Host local\n  ProxyCommand exit 1\n{config.read_text()}")
    with pytest.raises(errors.Unreachable, match="its ProxyCommand ended before") as caught:
        await reach(ssh_name, config, Target("local"))
    assert "exit 1" in (caught.value.hint or "")


async def test_two_jumps_with_keys_of_their_own_are_made_once_for_all_hosts(ssh_name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(LocalSshd()) for _ in range(3)]
        lines = []
        for number, server in enumerate(servers):
            lines += [f"Host s{number} alias{number}*", *basics(server), f"IdentityFile {server.identity}"]
        lines += ["Host alias2*", "ProxyJump s0,s1", "Host *", "IdentitiesOnly yes", "StrictHostKeyChecking yes"]
        targets = [Target(f"alias2-{number}") for number in range(5)]
        said = await reach(ssh_name, write(tmp_path / "c", *lines), *targets)
        assert said == ["hello"] * 5
        if ssh_name != "openssh":
            assert [server.log.count("Accepted publickey") for server in servers] == [1, 1, 5]


async def test_a_jump_host_that_is_down_is_named(ssh_name: str, local_sshd: LocalSshd, tmp_path: Path) -> None:
    lines = ["Host h", *basics(local_sshd), f"IdentityFile {local_sshd.identity}", "ProxyJump bastion"]
    lines += ["Host bastion", "HostName 127.0.0.1", "Port 1"]
    with pytest.raises(errors.Unreachable, match=r"^h: jump host bastion: connection refused") as caught:
        await reach(ssh_name, write(tmp_path / "c", *lines), Target("h"))
    assert caught.value.host == "h"


async def test_a_jump_host_that_can_not_reach_the_host(ssh_name: str, local_sshd: LocalSshd) -> None:
    config = local_sshd.ssh_config
    config.write_text(f"Host behind\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump local\n{config.read_text()}")
    with pytest.raises(errors.Unreachable, match="jump host local"):
        await reach(ssh_name, config, Target("behind"))


async def test_the_address_family_is_kept(ssh_name: str, local_sshd: LocalSshd) -> None:
    config = local_sshd.ssh_config
    config.write_text(f"Host local\n  HostName localhost\n  AddressFamily inet6\n{config.read_text()}")
    with pytest.raises(errors.Unreachable):  # sshd listens on 127.0.0.1 only
        await reach(ssh_name, config, Target("local"))


async def test_variables_are_sent_as_ssh_sends_them(
    ssh_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", "from here")
    monkeypatch.setenv("MALFORMED", os.fsdecode(b"\xff"))
    with LocalSshd(sshd_config="AcceptEnv MARK") as server:
        config = server.ssh_config
        config.write_text(f"{config.read_text()}  SendEnv MA*\n  SetEnv OTHER=not-accepted\n")
        assert await reach(ssh_name, config, Target("local")) == ["hello from here"]


async def test_openssh_uses_a_session_that_is_open_already(local_sshd: LocalSshd, tmp_path: Path) -> None:
    config = local_sshd.ssh_config
    config.write_text(f"{config.read_text()}  ControlPath {tmp_path}/%h\n")
    run("ssh", "-F", config, "-o", "ControlMaster=yes", "-f", "-N", "local")
    try:
        assert await reach("openssh", config, Target("local"), Target("local")) == ["hello", "hello"]
    finally:
        run("ssh", "-F", config, "-O", "exit", "local")
    assert local_sshd.log.count("Accepted publickey") == 1


@pytest.mark.parametrize(
    "lines",
    [
        "RemoteCommand echo other",
        "RequestTTY force",
        "ForkAfterAuthentication yes",
        "StdinNull yes",
        "SessionType none",
        "SendEnv LANG LC_*\nSetEnv A=1 B=2",
        "LocalForward 127.0.0.1:1 127.0.0.1:2\nExitOnForwardFailure yes",
        "PermitLocalCommand yes\nLocalCommand false",
        "LogLevel QUIET",
        "LogLevel DEBUG3",
        "ProxyJump none\nProxyCommand none",
        "KexAlgorithms curve25519-sha256",
        "KexAlgorithms curve25519-sha256@libssh.org",
        "KexAlgorithms diffie-hellman-group14-sha256",
        "IdentityFile /nowhere\nCertificateFile /nowhere",
    ],
)
@pytest.mark.filterwarnings("ignore:Diffie-Hellman")
async def test_settings_that_change_what_ssh_does_leave_commands_as_they_are(
    ssh_name: str, local_sshd: LocalSshd, lines: str
) -> None:
    config = write(local_sshd.ssh_config, lines, local_sshd.ssh_config.read_text())
    shared = transport.create(ssh_name, SshOptions(config=config, connect_timeout=PATIENCE))
    try:
        process = await (await shared.connect(Target("local"))).run("cat; tty <&2")
        await process.write(b"said\n")
        await process.write_eof()
        said = b""
        while chunk := await process.read():
            said += chunk
        assert said == b"said\nnot a tty\n"
    finally:
        await shared.close()
