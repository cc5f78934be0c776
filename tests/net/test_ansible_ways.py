"""Hosts of an Ansible inventory behind another host: its arguments for ssh decide the way, whatever the transport."""

from pathlib import Path

import pytest

from tests.support import Cluster

TRANSPORTS = ["asyncssh", "openssh", "paramiko"]
# where the connection that a rank's host has comes from
PEER = ("--no-python", "sh", "-c", "echo from ${SSH_CONNECTION%% *}")


def options(cluster: Cluster, inventory: Path, transport: str) -> list[str]:
    return ["--transport", transport, "--ssh-config", str(cluster.ssh_config), "-i", str(inventory)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_proxy_command_with_key_and_options_of_its_own_is_the_way(
    transport: str, cluster: Cluster, tmp_path: Path
) -> None:
    key = tmp_path / "a key"
    key.write_bytes(cluster.identity.read_bytes())
    key.chmod(0o600)
    gate, host = cluster["h1"], cluster["h2"]
    command = f"ssh -F none -i '{key}' -o UserKnownHostsFile={cluster.known_hosts} -W %h:%p root@{gate.address}"
    inventory = tmp_path / "i.yml"
    inventory.write_text(
        f'all:\n  hosts:\n    h2:\n      mnspawn_slots: 1\n      ansible_ssh_common_args: -o "ProxyCommand={command}"\n'
    )
    done = cluster.mnspawn(*options(cluster, inventory, transport), *PEER).check()
    assert done.stdout == f"[h2:0] from {gate.address}\n", done
    assert host.address != gate.address


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_proxy_command_that_fails_is_no_direct_connection(transport: str, cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "i.ini"
    args = f'-o ProxyCommand="ssh -F none -i {tmp_path}/none -o BatchMode=yes -W %h:%p root@{cluster["h1"].address}"'
    inventory.write_text(f"h2 mnspawn_slots=1 ansible_ssh_common_args='{args}'\n")
    done = cluster.mnspawn(*options(cluster, inventory, transport), *PEER)
    assert (done.status, done.stdout) == (3, ""), done
    assert "h2" in done.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_proxy_command_of_an_ssh_config_as_inventory_is_the_way(
    transport: str, cluster: Cluster, tmp_path: Path
) -> None:
    inventory = tmp_path / "my.ssh_config"
    gate = cluster["h1"].address
    inventory.write_text(f"Host h2\n  ProxyCommand ssh -F {cluster.ssh_config} -W %h:%p {gate}\n")
    command = [*options(cluster, inventory, transport), "--nproc-per-node", "1", *PEER]
    assert cluster.mnspawn(*command).check().stdout == f"[h2:0] from {gate}\n"


def test_a_proxy_that_cant_be_used_is_told_with_its_line_before_any_host_is_asked(
    cluster: Cluster, tmp_path: Path
) -> None:
    inventory = tmp_path / "i.ini"
    inventory.write_text("h1\nh2 ansible_ssh_common_args='-o ProxyCommand='\n")
    done = cluster.mnspawn("-i", str(inventory), *PEER)
    assert done.status == 2
    assert f"{inventory}:2:28: a proxy that can't be used: found 'ProxyCommand='" in done.stderr


def test_a_template_stops_the_host_that_needs_it_and_notes_are_told(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "i.ini"
    inventory.write_text(
        "h1 mnspawn_slots=1 ansible_host=nowhere\nh2 ansible_user='{{ x | lower }}'\n"
        f"[all:vars]\nansible_ssh_host={cluster['h1'].address}\n"
    )
    done = cluster.mnspawn("-i", str(inventory), "--hosts", "h1", "--no-python", "echo", "here").check()
    assert done.stdout == "[h1:0] here\n"
    assert f"{inventory}:1:33: h1: ansible_host is 'nowhere', but Ansible uses ansible_ssh_host" in done.stderr
    done = cluster.mnspawn("-i", str(inventory), "--no-python", "echo", "here")
    assert done.status == 2
    assert f"{inventory}:2:17: a template that only Ansible can evaluate" in done.stderr
