"""Each format is read as its own tool reads it: the same files given to us and to the tool."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mnspawn_inventory import InventoryError, Origin, read_inventory
from mnspawn_inventory.allocation import nodelist

pytestmark = pytest.mark.tools

Tool = Callable[[str], str]


def output_of(*argv: str, environ: Mapping[str, str], status: int | None = 0) -> str:
    ran = subprocess.run(
        argv,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    assert status is None or ran.returncode == status, ran.stdout
    return ran.stdout


# -- Slurm


@pytest.fixture
def slurm_conf(tmp_path: Path) -> str:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        *("n1", "a[1-3,05]", "n[01-100]", "n[1-3],m", "r[1-2]n[3-4]", "a[01-03,7],login", "n[9-11]", "n[09-11]"),
        *(
            "n[001-2]",
            "n[3,1]",
            "n[01-3]",
            "n[098-101]",
            "n[1-2][3-4]",
            "n[001-003,0100]",
            "a-b[1-2],c.d[3-4]",
            "n[0-0]",
        ),
        *("n[1,1]", "a,a"),
    ],
)
def test_node_lists_are_expanded_as_scontrol_does(text: str, tool: Tool, slurm_conf: str) -> None:
    expanded = output_of(tool("scontrol"), "show", "hostnames", text, environ={"SLURM_CONF": slurm_conf}).split()
    assert nodelist(text, Origin("SLURM_JOB_NODELIST")) == expanded


@pytest.mark.parametrize("text", ["n[3-1]", "n[]", "n[1-x]", "n[1-3]]"])
def test_node_lists_that_scontrol_refuses_are_refused(text: str, tool: Tool, slurm_conf: str) -> None:
    assert "nvalid" in output_of(
        tool("scontrol"), "show", "hostnames", text, environ={"SLURM_CONF": slurm_conf}, status=None
    )
    with pytest.raises(InventoryError):
        nodelist(text, Origin("SLURM_JOB_NODELIST"))


# -- Open MPI

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mapped(mpirun: str, path: Path, workers: int) -> tuple[list[tuple[str, int]], str]:
    """Nodes and slots as mpirun maps them, without starting anything."""
    argv = [mpirun, "--hostfile", str(path), "--mca", "plm", "isolated", "--display-map", "--do-not-launch"]
    said = output_of(*argv, "-np", str(workers), "true", environ=AS_ROOT, status=None)
    found = re.findall(r"Data for node: (\S+)\s+Num slots: (\d+)", said)
    return [(name, int(slots)) for name, slots in found], said


@pytest.mark.parametrize(
    "text",
    [
        "b slots=2\na slots=1\n",
        "# c\n\na   slots=2\t# x\nb-c slots=1",
        "b\na\nb\n",
        "a slots=2\na\nb\n",
        "a slots = 2\nb slots= 1\n",
        "a max_slots=3\nb slots=1 max_slots=4\n",
        "a cpu=3\nb count=2\n",
        "a slots=2 // two\n// b\nb//c\n",
    ],
)
def test_hostfiles_are_read_as_open_mpi_does(text: str, tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    ours = [(host.name, host.slots or 1) for host in read_inventory(path, "openmpi").hosts]
    theirs, said = mapped(tool("mpirun.openmpi"), path, sum(slots for _, slots in ours))
    assert ours == theirs, said


@pytest.mark.parametrize("text", ["a foo=3\n", "a slots=4x\n", "a slots=2\na slots=3\n"])
def test_hostfiles_that_open_mpi_refuses_are_refused(text: str, tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    theirs, _ = mapped(tool("mpirun.openmpi"), path, 1)
    assert theirs == []
    with pytest.raises(InventoryError):
        read_inventory(path, "openmpi")


# -- MPICH


@pytest.mark.parametrize(
    "text", ["b:4\na:2 # x\n", "a\na\nb\n", "a:2\na:2\nb\n", "a:2\na\n", "a\na:2\n", "\n# c\nb\na:3"]
)
def test_machine_files_are_read_as_mpich_does(text: str, tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "machines"
    path.write_text(text)
    ours = [(host.name, host.slots or 1) for host in read_inventory(path, "mpich").hosts]
    total = sum(slots for _, slots in ours)
    argv = [tool("mpiexec.hydra"), "-verbose", "-f", str(path), "-launcher", "manual", "-n", str(total), "true"]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    theirs: list[tuple[str, int]] = []
    with process:  # it waits for somebody to start its proxies: that is as far as this goes
        assert process.stdout is not None
        for line in process.stdout:
            if proxy := re.search(r"proxy: (\S+) \((\d+) cores\)", line):
                theirs.append((proxy[1], int(proxy[2])))
            if len(theirs) == len(ours):
                break
        process.kill()
    assert ours == theirs


# -- Ansible

INI = """\
alpha
beta:2222 ansible_user=admin   # c
; comment
gamma ansible_host="1.2.3.4" x='a b' y=["1","2"]
[web]
web[01:03] http=80
web[1:10:4]
db-[a:c].lan
[dbs]
db-a.lan
one.example.com ansible_port=22
[all:vars]
ansible_user=root
z = a = b # not a comment
[web:vars]
ansible_user = webuser
ansible_python_interpreter=/usr/bin/python3
[prod:children]
dbs
web
[prod:vars]
ansible_user=produser
ansible_ssh_private_key_file=~/.ssh/prod
"""
YAML = """\
all:
  vars: {ansible_user: root}
  hosts:
    one:
    two: {ansible_host: 10.0.0.2, ansible_port: "2200"}
    ipv6: {ansible_host: "fe80::1"}
  children:
    gpu:
      hosts:
        gpu[01:03]: {ansible_user: train}
        one: {http: 80}
      vars: {ansible_port: 22}
      children:
        a100: {hosts: {gpu01: , gpu09: }, vars: {ansible_user: a100}}
    z: {hosts: {one: }, vars: {ansible_user: z, ansible_group_priority: 1}}
    a: {hosts: {one: }, vars: {ansible_user: a, ansible_group_priority: 10}}
"""
GROUP_VARS = {
    "group_vars/all.yml": "ansible_user: everybody\nansible_port: 1000\n",
    "group_vars/gpu/main.yml": "ansible_user: files\n",
    "group_vars/gpu/z.yml": "ansible_port: 2000\n",
    "host_vars/gpu02.yml": "ansible_host: 10.9.9.9\n",
}
STATIC = (
    '{"g": {"hosts": ["b", "a"], "vars": {"ansible_user": "u"}}, "h": {"children": ["g"]}, '
    '"_meta": {"hostvars": {"a": {"ansible_port": 5}}}}'
)
CASES: dict[str, dict[str, str]] = {
    "ini": {"hosts.ini": INI},
    "yaml": {"hosts.yml": YAML},
    "group_vars": {"hosts.yml": YAML, **GROUP_VARS},
    "ini with files": {"hosts.ini": "[gpu]\ngpu[01:02]\n[gpu:vars]\nansible_user=inventory\n", **GROUP_VARS},
    "script": {"hosts.sh": f"#!/bin/sh\ncat <<'X'\n{STATIC}\nX\n"},
    "templates": {"hosts.ini": 'a ansible_host="{{ inventory_hostname }}.lan"\nb ansible_user="{{ who }}" who=me\n'},
}
FIELDS = {
    "address": "ansible_host",
    "user": "ansible_user",
    "port": "ansible_port",
    "identity": "ansible_ssh_private_key_file",
    "python": "ansible_python_interpreter",
}


@pytest.mark.parametrize("case", CASES)
def test_inventories_are_read_as_ansible_does(case: str, tool: Tool, tmp_path: Path) -> None:
    for name, content in CASES[case].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    path = tmp_path / next(iter(CASES[case]))
    environ = {
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "LC_ALL": "C.UTF-8",
    }
    listed = output_of(tool("ansible-inventory"), "-i", str(path), "--list", environ=environ)
    theirs: dict[str, Any] = json.loads(listed[listed.index("{") : listed.rindex("}") + 1])
    variables = theirs["_meta"]["hostvars"]
    ours = read_inventory(path)
    names = {name for group in theirs.values() for name in group.get("hosts", [])}
    assert {host.name for host in ours.hosts} == names
    for host in ours.hosts:
        for field, variable in FIELDS.items():
            expected = variables.get(host.name, {}).get(variable)
            if expected is not None and "{{" not in str(expected):
                assert str(getattr(host, field)) == str(expected), (host.name, field)
            elif expected is None:
                assert getattr(host, field) is None, (host.name, field)
    for group in ours.groups:
        own = theirs.get(group.name, {})
        assert set(own.get("hosts", [])) <= set(group.hosts)
        assert set(own.get("children", [])) == set(group.children)


OLD_AND_NEW = """\
a ansible_host=new.a ansible_ssh_host=old.a ansible_port=1 ansible_ssh_port=2
b ansible_user=new
c ansible_ssh_host=old.c ansible_ssh_private_key_file=/old ansible_private_key_file=/new
d ansible_ssh_args='-o User=args -p 7' ansible_ssh_common_args='-l common -p 8'
[old]
b
[all:vars]
ansible_user=all
[old:vars]
ansible_ssh_user=old
"""


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_a_host_is_dialled_where_and_as_whom_ansible_dials_it(name: str, tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(OLD_AND_NEW)
    said = tmp_path / "said"
    recorder = tmp_path / "ssh"
    recorder.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{said}\nexit 255\n")
    recorder.chmod(0o755)
    environ = {
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(tmp_path / "cp"),
        "ANSIBLE_SSH_EXECUTABLE": str(recorder),
        "LC_ALL": "C.UTF-8",
    }
    argv = [tool("ansible"), "-i", str(tmp_path / "hosts.ini"), name, "-m", "raw", "-a", "true"]
    output_of(*argv, environ=environ, status=None)
    config = tmp_path / "config"
    config.touch()
    dialled = said.read_text().splitlines()
    asked = output_of("ssh", "-F", str(config), "-G", *dialled[:-1], environ={}).splitlines()
    theirs = dict(line.split(" ", 1) for line in reversed(asked) if " " in line)
    (host,) = [host for host in read_inventory(tmp_path / "hosts.ini").hosts if host.name == name]
    assert (host.address or name, host.user, str(host.port or 22)) == tuple(
        theirs[key] for key in ("hostname", "user", "port")
    )
    if host.identity is not None:
        assert host.identity == theirs["identityfile"]


def test_what_we_export_to_ansible_is_what_ansible_reads(tool: Tool, tmp_path: Path) -> None:
    from mnspawn_inventory.export import export

    sample = read_inventory(Path(__file__).parents[2] / "inventory" / "samples" / "mnspawn.toml")
    path = tmp_path / "exported.yml"
    path.write_text(export(sample, "ansible-yaml")[0])
    environ = {
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "LC_ALL": "C.UTF-8",
    }
    listed = output_of(tool("ansible-inventory"), "-i", str(path), "--list", environ=environ)
    theirs = json.loads(listed[listed.index("{") : listed.rindex("}") + 1])
    for host in sample.hosts:
        variables = theirs["_meta"]["hostvars"][host.name]
        assert {field: variables.get(name) for field, name in FIELDS.items()} == {
            field: getattr(host, field) for field in FIELDS
        }


# -- OpenSSH

SSH_CONFIG = """\
Host gpu*  !gpu9
    User train
    Port 2200
Host gpu1 gpu2
    HostName %h.lan
    Port 22
Host gpu9
    HostName=10.0.0.9
    User "root"
    ProxyJump me@bastion:2222
Match host login
    User admin
Host login # a comment
    IdentityFile ~/.ssh/login
Host *
    User nobody
    Port 2022
"""


def test_ssh_config_is_read_as_ssh_does(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "ssh_config"
    path.write_text(SSH_CONFIG)
    hosts = read_inventory(path).hosts
    assert [host.name for host in hosts] == ["gpu1", "gpu2", "gpu9", "login"]
    for host in hosts:
        lines = output_of(tool("ssh"), "-G", "-F", str(path), host.name, environ={}).splitlines()
        theirs = dict(line.split(" ", 1) for line in reversed(lines) if " " in line)
        assert (host.address or host.name, host.user, str(host.port)) == (
            theirs["hostname"],
            theirs["user"],
            theirs["port"],
        )
        assert host.jump == theirs.get("proxyjump")
