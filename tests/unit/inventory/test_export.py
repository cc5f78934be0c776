"""What is exported is read back as it was, in every format; what a format can't hold is told."""

from pathlib import Path

import pytest

from mnspawn_inventory import Host, Inventory, read_inventory
from mnspawn_inventory.export import SSH_KEYWORDS, export

NASTY = '''
[hosts."gpu[01-04]"]
address = "10.0.0.[1-4]"
data_address = "10.1.0.[1-4]"
slots = 8
devices = [0, 2]
prelude = """module load cuda
x: null
export X='a b'"""
labels = { rack = "r1", n = "01" }
[hosts."gpu[01-04]".env]
A = "1"
B = "it's \\"x\\" # $HOME {{ x }}"
C = ""
D = "a\\nb"
E = "é {% if %}"
F = { env = "TOKEN" }
G = { file = "sub/token" }
H = "0123"
I = "null"
J = " lead "
K = "a: b"
L = "\\\\"
[hosts."fe80::1%eth0"]
user = "a.b@c"
port = 2222
identity = "~/.ssh/my key%h"
jump = "u@j:22,[::1]:5"
transport = "openssh"
python = "/opt/my python"
workdir = "/data/a b"
network = "ib0"
[hosts.loc]
transport = "local"
[hosts.par]
transport = "paramiko"
network = "10.1.0.0/16"
[groups.all]
env = { Z = "1" }
[groups.top]
children = ["g1", "g2"]
[groups.g2]
hosts = ["gpu04", "loc"]
[groups.g1]
hosts = ["gpu[01-02]"]
user = "train"
[groups.empty]
'''


@pytest.fixture
def nasty(tmp_path: Path) -> Inventory:
    path = tmp_path / "nasty.toml"
    path.write_text(NASTY)
    return read_inventory(path)


@pytest.mark.parametrize(("to", "name"), [("toml", "x.toml"), ("ansible-yaml", "x.yml"), ("json", "x.json")])
def test_formats_that_hold_everything_give_everything_back(
    to: str, name: str, nasty: Inventory, tmp_path: Path
) -> None:
    text, notes = export(nasty, to)
    path = tmp_path / "elsewhere" / name
    path.parent.mkdir()
    path.write_text(text)
    back = read_inventory(path)
    assert notes == ()
    assert back.hosts == nasty.hosts
    assert back.groups == nasty.groups


@pytest.mark.parametrize(("to", "held"), [("hostfile", ["user", "port", "slots"]), ("ssh-config", list(SSH_KEYWORDS))])
def test_formats_that_hold_less_say_so(to: str, held: list[str], nasty: Inventory, tmp_path: Path) -> None:
    text, notes = export(nasty, to)
    path = tmp_path / to
    path.write_text(text)
    back = read_inventory(path, to)

    def rows(hosts: tuple[Host, ...]) -> list[tuple[object, ...]]:
        return [(host.name, *(getattr(host, field) for field in held)) for host in hosts]

    assert rows(back.hosts) == rows(nasty.hosts)
    assert f"{to} can't hold groups" in notes
    assert {note.rpartition(" ")[2] for note in notes}.isdisjoint(held)
