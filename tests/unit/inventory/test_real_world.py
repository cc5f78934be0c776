"""Inventories with the structure of those that public projects of the field have."""

import sys
from pathlib import Path

import pytest

from mnspawn_inventory import Inventory, InventoryError, read_inventory


@pytest.fixture
def write(tmp_path: Path) -> "Write":
    return Write(tmp_path)


class Write:
    """Writes files and reads the first as an inventory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, files: dict[str, str]) -> Inventory:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return read_inventory(self.folder / next(iter(files)))


def rows(inventory: Inventory) -> list[tuple[object, ...]]:
    return [(host.name, host.address, host.user, host.port, host.jump, host.groups) for host in inventory.hosts]


def test_a_kubernetes_installers_ini(write: Write) -> None:
    inventory = write(
        {
            "inventory.ini": "# ## Configure 'ip' variable to bind services on a different ip\n[all]\n"
            "node1 ansible_host=95.54.0.12 # ip=10.3.0.1 etcd_member_name=etcd1\n"
            "node2 ansible_host=95.54.0.13   ip=10.3.0.2 etcd_member_name=etcd2\n\n"
            "# bastion ansible_host=x.x.x.x ansible_user=some_user\n\n[kube_control_plane]\nnode1\n[etcd]\nnode1\n"
            "[kube_node]\nnode2\n[calico_rr]\n[k8s_cluster:children]\nkube_control_plane\nkube_node\ncalico_rr\n"
            "[all:vars]\nansible_ssh_common_args='-o ProxyCommand=\"ssh -W %h:%p -q -i ~/.k ops@bastion -p 2222\"'\n"
        }
    )
    command = "ssh -W %h:%p -q -i ~/.k ops@bastion -p 2222"
    assert [(host.name, host.address, host.jump, host.proxy_command) for host in inventory.hosts] == [
        ("node1", "95.54.0.12", None, command),
        ("node2", "95.54.0.13", None, command),
    ]
    assert set(inventory.hosts[0].groups) == {"k8s_cluster", "etcd", "kube_control_plane"}


def test_a_slurm_clusters_ini_without_addresses(write: Write) -> None:
    inventory = write(
        {
            "hosts": "[slurm-master]\nhpc-login01 ansible_host=10.0.0.1\n\n[slurm-node]\nhpc-gpu[01:02]\n\n"
            "[slurm-cluster:children]\nslurm-master\nslurm-node\n\n[all:vars]\nansible_user=ubuntu\n"
            "ansible_password=hunter2\nansible_become_pass={{ vault_pass }}\n"
        }
    )
    assert inventory.format == "ansible-ini"
    assert [host.name for host in inventory.hosts] == ["hpc-login01", "hpc-gpu01", "hpc-gpu02"]
    assert {host.user for host in inventory.hosts} == {"ubuntu"}
    assert "hunter2" not in repr(inventory)


def test_a_yaml_with_group_vars_and_a_vault(write: Write) -> None:
    inventory = write(
        {
            "inventories/prod/hosts.yaml": "---\nworkers:\n  hosts:\n    w1: {ansible_host: 10.1.0.1}\n    w2:\n",
            "inventories/prod/group_vars/all/main.yml": 'ansible_user: "{{ login }}"\nlogin: deploy\nlist: [1, 2]\n',
            "inventories/prod/group_vars/all/vault.yml": "$ANSIBLE_VAULT;1.1;AES256\n3636\n",
            "inventories/prod/host_vars/w2.yml": "ansible_port: 2222\npassword: !vault |\n  $ANSIBLE_VAULT;1.1\n  66\n",
        }
    )
    assert rows(inventory) == [
        ("w1", "10.1.0.1", "deploy", None, None, ("workers",)),
        ("w2", None, "deploy", 2222, None, ("workers",)),
    ]
    assert str(inventory.hosts[1].origin("port")).endswith("inventories/prod/host_vars/w2.yml:1:15")


def test_a_yaml_with_values_to_merge_at_its_top(write: Write) -> None:
    inventory = write(
        {
            "hosts.yml": "x-common: &common\n  ansible_user: deploy\n  ansible_port: 2222\n"
            ".more: &more {ansible_host: 10.0.0.9}\n"
            "all:\n  hosts:\n    a: *common\n    b:\n      <<: [*common, *more]\n      ansible_port: 22\n"
        }
    )
    assert rows(inventory) == [("a", None, "deploy", 2222, None, ()), ("b", "10.0.0.9", "deploy", 22, None, ())]
    assert inventory.groups == ()


def test_a_local_host_with_the_python_that_is_running(write: Write) -> None:
    python = "{{ ansible_playbook_python }}"
    inventory = write({"hosts.ini": f'localhost ansible_connection=local ansible_python_interpreter="{python}"\n'})
    assert [(host.name, host.transport, host.python) for host in inventory.hosts] == [
        ("localhost", "local", sys.executable)
    ]


def test_a_folder_as_an_inventory(write: Write) -> None:
    write(
        {
            "inv/10-static.ini": "[gpu]\ng1\n",
            "inv/20-more.yml": "gpu: {hosts: {g2: }}\n",
            "inv/README.md": "# not an inventory\n",
            "inv/group_vars/gpu.yml": (
                "ansible_user: train\nansible_ssh_private_key_file: '{{ inventory_dir }}/key'\n"
            ),
        }
    )
    folder = write.folder / "inv"
    inventory = read_inventory(folder)
    assert [(host.name, host.user, host.identity, host.groups) for host in inventory.hosts] == [
        ("g1", "train", f"{folder}/key", ("gpu",)),
        ("g2", "train", f"{folder}/key", ("gpu",)),
    ]
    assert str(inventory.hosts[0].origin("user")) == f"{folder}/group_vars/gpu.yml:1:15"


def test_a_personal_ssh_config(write: Write) -> None:
    inventory = write(
        {
            "config": "Include config.d/*\n\nAddKeysToAgent yes\nHost *.lan !x.lan\n  User lan\n\n"
            "Host dev dev.lan\n    Hostname 10.0.0.5\n    IdentityFile ~/.ssh/a\n    IdentityFile ~/.ssh/b\n"
            "    LocalForward 8080 localhost:80\nHost git?ub.com\n  User git\nHost github.com\n  User git\n"
            '    IdentityFile "~/.ssh/my key"\nMatch exec "true"\n  User never\nHost hop\n  ProxyJump a,b:22\n'
            "  HostName=%h.example.com\n"
        }
    )
    assert [(host.name, host.address, host.user, host.identity, host.jump) for host in inventory.hosts] == [
        ("dev", "10.0.0.5", None, None, None),
        ("dev.lan", "10.0.0.5", "lan", None, None),
        ("github.com", None, "git", "~/.ssh/my key", None),
        ("hop", "hop.example.com", None, None, "a,b:22"),
    ]
    assert len(inventory.notes) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker-1 slots=4\nworker-2 slots=4\n", [("worker-1", 4), ("worker-2", 4)]),
        (
            "# GPUs\n192.168.1.2 slots=8 max_slots=8\n192.168.1.3 slots=8  max-slots=8\n",
            [("192.168.1.2", 8), ("192.168.1.3", 8)],
        ),
        ("root@10.0.0.1 slots=1\nssh://me@10.0.0.2:2222 slots=2\n", [("10.0.0.1", 1), ("10.0.0.2", 2)]),
        (
            "node001.cluster.local:8\nnode002.cluster.local:8",
            [("node001.cluster.local", 8), ("node002.cluster.local", 8)],
        ),
        ("job-master-0.job-svc.ns.svc.cluster.local slots=1\n", [("job-master-0.job-svc.ns.svc.cluster.local", 1)]),
    ],
)
def test_hostfiles_of_workers(text: str, expected: list[tuple[str, int]], write: Write) -> None:
    assert [(host.name, host.slots) for host in write({"hostfile": text}).hosts] == expected


def test_a_machinefile_of_open_mpi(write: Write) -> None:
    inventory = write({"machinefile": "# ours\nnode1 slots=8 max_slots=16\nnode2\n"})
    assert [(host.name, host.slots) for host in inventory.hosts] == [("node1", 8), ("node2", None)]
    assert [(host.name, host.slots) for host in write({"machinefile": "node1:8\nnode1\n"}).hosts] == [("node1", 9)]


def test_a_cloud_plugins_configuration_says_what_to_do(write: Write) -> None:
    with pytest.raises(InventoryError, match="the configuration of an Ansible plugin") as raised:
        write({"aws_ec2.yml": "---\nplugin: amazon.aws.aws_ec2\nregions: [us-east-1]\n"})
    assert "ansible-inventory" in str(raised.value.hint)
