"""Hosts that show other keys than known_hosts has: each is told with its place, both fingerprints and what to do."""

import base64
import hashlib
import struct
from collections.abc import Callable

import pytest

from tests.support import Cluster

SSH = ("asyncssh", "paramiko", "openssh")


def line_of(kind: str, number: int) -> str:
    """A key of a type as known_hosts has it; nobody's."""
    name = kind.encode()
    blob = struct.pack(">I", len(name)) + name
    if kind == "ssh-ed25519":
        blob += struct.pack(">I", 32) + bytes([number]) * 32
    else:
        blob += struct.pack(">I", 8) + b"nistp256" + struct.pack(">I", 65) + b"\4" + bytes([number]) * 64
    return f"{kind} {base64.b64encode(blob).decode()}"


def print_of(key: str) -> str:
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@pytest.mark.parametrize("transport", SSH)
def test_changed_keys_of_several_hosts_are_told_one_by_one(
    make_cluster: Callable[..., Cluster], transport: str
) -> None:
    cluster = make_cluster(2)
    old = {"h1": line_of("ssh-ed25519", 1), "h2": line_of("ssh-ed25519", 2)}
    cluster.known_hosts.write_text("".join(f"{cluster[host].address} {key}\n" for host, key in old.items()))
    config = ("--ssh-config", str(cluster.ssh_config))
    run = ("--transport", transport, "--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "true")
    for command in ((*config, *run), ("hosts", "trust", "h1,h2", "--yes", *config)):
        done = cluster.mnspawn(*command)
        assert done.status == 3, done
        assert done.stderr.splitlines() == [
            "mnspawn: 2 hosts: its ssh-ed25519 key has changed: h[1-2]",
            *(
                f"    {host}: its ssh-ed25519 key has changed: {cluster.known_hosts}:{number} "
                f"has {print_of(old[host])}, "
                f"the host shows {print_of(cluster[host].host_key)}"
                for number, host in enumerate(old, 1)
            ),
            "  hint: somebody may be in between; if it was set up anew: mnspawn hosts trust --replace h[1-2]"
            f" --ssh-config {cluster.ssh_config}",
        ]
        assert (done.stdout == "") == ("trust" not in command)


@pytest.mark.parametrize("transport", SSH[:2])
def test_each_line_that_has_another_key_is_told(make_cluster: Callable[..., Cluster], transport: str) -> None:
    cluster = make_cluster(1)
    lines = [line_of("ssh-ed25519", 1), line_of("ssh-ed25519", 2)]
    cluster.known_hosts.write_text("".join(f"{cluster['h1'].address} {key}\n" for key in lines))
    done = cluster.mnspawn(
        *("--ssh-config", str(cluster.ssh_config), "--transport", transport, "--hosts", "h1"),
        *("--nproc-per-node", "1", "--no-python", "true"),
    )
    told = f"{cluster.known_hosts}:1 has {print_of(lines[0])}, {cluster.known_hosts}:2 has {print_of(lines[1])}, "
    assert told in done.stderr, done


def test_several_changed_keys_of_a_host_have_a_line_each(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1)
    host = cluster["h1"]
    host.run("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", "/etc/ssh/vhost_ecdsa").check()
    host.configure_sshd("HostKey /etc/ssh/vhost_ecdsa")
    shown = " ".join(host.path("/etc/ssh/vhost_ecdsa.pub").read_text().split()[:2])
    old = [line_of("ssh-ed25519", 1), line_of("ecdsa-sha2-nistp256", 2)]
    cluster.known_hosts.write_text("".join(f"{cluster['h1'].address} {key}\n" for key in old))
    done = cluster.mnspawn("hosts", "trust", "h1", "--yes", "--ssh-config", str(cluster.ssh_config))
    assert done.status == 3, done
    first, *lines, hint = done.stderr.splitlines()
    assert first == "mnspawn: h1: its host keys have changed"
    assert sorted(lines) == [
        f"    ecdsa-sha2-nistp256: {cluster.known_hosts}:2 has {print_of(old[1])}, the host shows {print_of(shown)}",
        f"    ssh-ed25519: {cluster.known_hosts}:1 has {print_of(old[0])}, the host shows {print_of(host.host_key)}",
    ]
    assert hint.endswith(f"mnspawn hosts trust --replace h1 --ssh-config {cluster.ssh_config}")
