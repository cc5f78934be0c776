"""Every transport across real hosts: jumps into a network of their own, login shells, noise, a busy sshd, faults."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import PATIENCE, Cluster, wait_until
from tests.support.controller import REPOSITORY

SSH = ("asyncssh", "paramiko", "openssh")


@pytest.fixture(params=SSH)
def ssh_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SHORT = 8.0  # seconds that silent hosts are given


def probe(
    cluster: Cluster, name: str, *hosts: str, config: Path | None = None, timeout: float = PATIENCE
) -> dict[str, list[str]]:
    """What became of each host: [what it said, "", ""] or [error class, message, hint]."""
    path = f"{cluster.environment()['PYTHONPATH']}:{REPOSITORY}"
    words = ["-m", "tests.ssh.probe", name, str(config or cluster.ssh_config), str(timeout), *hosts]
    done = cluster.run(sys.executable, *words, env={"PYTHONPATH": path})
    assert done.status == 0, done
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert sorted(found) == sorted(hosts)
    return found


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash", "/bin/tcsh", "/usr/bin/fish", "/usr/bin/zsh"])
def test_every_login_shell_runs_the_command(cluster: Cluster, ssh_name: str, shell: str) -> None:
    cluster["h1"].set_shell(shell)
    try:
        found = probe(cluster, ssh_name, "h1")
    finally:
        cluster["h1"].set_shell("/bin/bash")
    if shell in ("/bin/tcsh", "/usr/bin/fish"):  # $(..) is not theirs: that they ran at all is what counts
        assert "@" in found["h1"][0] or found["h1"][0] == ""
    else:
        assert found["h1"][0] == "root@h1"


def test_a_host_behind_two_jumps_with_users_and_keys_of_their_own(
    make_cluster: Callable[..., Cluster], ssh_name: str, tmp_path: Path
) -> None:
    """h3 is reached from h2 only, and h2 from h1 only."""
    cluster = make_cluster(3)
    keys = {}
    for host, user in (("h1", "alice"), ("h2", "bob"), ("h3", "carol")):
        cluster[host].add_user(user)
        keys[host] = cluster.home / f"key-{host}"
        cluster.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys[host])).check()
        cluster[host].write("/etc/ssh/authorized_keys", keys[host].with_suffix(".pub").read_text())
    for host, sources in (("h2", ["h1", "h3"]), ("h3", ["h2"])):
        for gone in {"h1", "h2", "h3"} - {host, *sources}:
            cluster[host].run("ip", "route", "add", "blackhole", f"{cluster[gone].address}/32").check()
        controller = cluster["h1"].address.rsplit(".", 1)[0] + ".1"
        cluster[host].run("ip", "route", "add", "blackhole", f"{controller}/32").check()
    blocks = [
        f"Host {host}\n  HostName {cluster[host].address}\n  User {user}\n  IdentityFile {keys[host]}\n"
        for host, user in (("h1", "alice"), ("h2", "bob"), ("h3", "carol"))
    ]
    common = f"Host *\n  IdentitiesOnly yes\n  UserKnownHostsFile {cluster.known_hosts}\n  StrictHostKeyChecking yes\n"
    config = cluster.home / "jumps"
    config.write_text("Host h2\n  ProxyJump h1\nHost h3\n  ProxyJump h2\n" + "".join(blocks) + common)
    assert probe(cluster, ssh_name, "h3", config=config)["h3"][0] == "carol@h3"


def test_forty_aliases_of_one_sshd_that_drops_connections_all_succeed(
    make_cluster: Callable[..., Cluster], ssh_name: str
) -> None:
    cluster = make_cluster(1, sshd_config="MaxStartups 10:30:100")
    names = [f"alias{number}" for number in range(40)]
    config = cluster.home / "aliases"
    address = cluster["h1"].address
    config.write_text(f"Host alias*\n  HostName {address}\n{cluster.ssh_config.read_text()}")
    found = probe(cluster, ssh_name, *names, config=config)
    assert {answer[0] for answer in found.values()} == {"root@h1"}


def test_all_bad_hosts_are_told_at_once_within_the_connect_timeout(
    make_cluster: Callable[..., Cluster], ssh_name: str
) -> None:
    cluster = make_cluster(5)
    cluster["h1"].off()
    cluster["h2"].cut()
    cluster["h3"].write("/etc/ssh/authorized_keys", "")
    cluster.known_hosts.write_text(
        "".join(
            line for line in cluster.known_hosts.read_text().splitlines(keepends=True) if not line.startswith("h4,")
        )
    )
    found = probe(cluster, ssh_name, "h1", "h2", "h3", "h4", "h5", "nobody", timeout=SHORT)
    assert found["h5"][0] == "root@h5"
    kinds = {host: answer[0] for host, answer in found.items() if host != "h5"}
    assert kinds.pop("h1") in ("ConnectTimeout", "NoRoute")
    assert kinds.pop("h2") in ("ConnectTimeout", "NoRoute")
    assert kinds.pop("nobody") in ("NameUnknown", "LookupFailed")
    assert kinds == {"h3": "AuthRefused", "h4": "HostKeyUnknown"}


@pytest.mark.essential
def test_a_ring_runs_over_every_transport(cluster: Cluster, ssh_name: str) -> None:
    cluster["h1"].write(
        "/root/.bashrc", "for i in $(seq 30); do echo noise $i; done\necho noise >&2\nprintf 'no newline'\n"
    )
    try:
        ring = str(REPOSITORY / "examples" / "ring.py")
        done = cluster.mnspawn(
            "--transport",
            ssh_name,
            "--ssh-config",
            str(cluster.ssh_config),
            "--hosts",
            "h1,h2",
            "--nproc-per-node",
            "1",
            ring,
        )
    finally:
        cluster["h1"].remove("/root/.bashrc")
    assert done.status == 0, done


def test_a_controller_that_is_killed_leaves_no_ssh_behind(cluster: Cluster) -> None:
    command = ["--transport", "openssh", "--ssh-config", str(cluster.ssh_config), "--orphan-grace", "1"]
    command += ["--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "sh", "-c", "echo up; exec sleep 300"]
    places = {"TMPDIR": str(cluster.folder)}  # it can't clean up after itself
    with cluster.start_mnspawn(*command, env=places) as running:
        running.wait_for(lambda: running.stdout.count("up") == 2, what="both ranks are up")
        assert len(ssh_of(cluster)) >= 2
        running.kill()
        wait_until(lambda: not ssh_of(cluster), what="an ssh lives on")
    cluster.wait_idle()


def ssh_of(cluster: Cluster) -> list[str]:
    """Command lines of the ssh processes here that use the cluster's configuration."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = path.read_bytes().split(b"\0")
            if os.path.basename(words[0]) == b"ssh" and str(cluster.ssh_config).encode() in words:
                found.append(b" ".join(words).decode(errors="replace"))
    return found
