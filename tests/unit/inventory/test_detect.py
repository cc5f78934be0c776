"""Which format a file is: all of its lines have to fit, and what fits no format is refused with its place."""

from pathlib import Path

import pytest

from mnspawn_inventory import InventoryError, read_inventory

CHARM = "group main\nhost n01 ++cpus 8\nhost n02 ++cpus 4\n"
# (name of the file, content, line and column that must be told, part of what was found)
STRANGE = [
    ("nodelist", CHARM, (1, 1), "group main"),
    ("config", CHARM, (1, 1), "group main"),
    ("nodelist", "host n01 ++cpus 8\nhost n02\n", (1, 10), "++cpus"),
    ("nodelist", "# c\ngroup main ++shell /usr/bin/ssh\n  host n01\n", (2, 1), "group main ++shell"),
    ("hosts", "Host a\n  HostName 10.0.0.1\n  Usr me\n", (3, 3), "Usr me"),
    ("hosts", "gpu1\nHost a\n  HostName 10.0.0.1\n", (1, 1), "gpu1"),
    ("prose", "Host key verification failed\n", (1, 1), "Host key"),
    ("prose", "Host names of the cluster\ngpu1\ngpu2\n", (2, 1), "gpu1"),
    ("prose", "Dear all,\nuse gpu1\n", (1, 6), "all,"),
    ("hosts", "127.0.0.1 localhost\n10.0.0.1 gpu1\n", (1, 11), "localhost"),
    ("hosts.csv", "name,ip\ngpu1,10.0.0.1\n", (1, 1), "name,ip"),
    ("page", "<!DOCTYPE html>\n<html></html>\n", (1, 1), "<!DOCTYPE"),
    ("nodes", "NAME   STATUS   ROLES\ngpu1   Ready    <none>\n", (1, 8), "STATUS"),
    ("nodes", "node/gpu1\nnode/gpu2\n", (1, 1), "node/gpu1"),
    ("ips", 'ips = [\n  "10.0.0.1",\n]\n', (1, 5), "="),
    ("tf.json", '{"ips": {"sensitive": false, "type": "string", "value": "10.0.0.1"}}', (1, 2), "ips with"),
    ("hosts", "gpu1 4\ngpu2 2\n", (1, 6), "4"),
    ("hosts", "gpu1\ngpu1\ngpu2\n", (2, 1), "gpu1"),
    ("genders", "gpu1 compute,login\n", (1, 6), "compute,login"),
    ("pe_hostfile", "gpu1 4 all.q@gpu1 UNDEFINED\n", (1, 6), "4"),
    ("groups", "all: gpu[1-4]\n", (1, 5), ""),
    ("groups", "@train\n", (1, 1), ""),
    ("pod", "apiVersion: v1\nkind: Pod\n", (1, 12), ""),
    ("hosts", "a\nb\n".encode("utf-16"), (1, 1), None),
    ("hosts", "a\nb\n".encode("utf-16-le"), (1, 2), "\x00"),
]


@pytest.mark.parametrize(("name", "content", "place", "found"), STRANGE)
def test_a_file_of_another_kind_is_refused_with_its_place(
    name: str, content: str | bytes, place: tuple[int, int], found: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InventoryError) as caught:
        read_inventory(path)
    where = caught.value.place
    assert where is not None
    assert (where.source, where.line, where.column) == (str(path), *place)
    assert (caught.value.found is None) == (found is None)
    assert (found or "") in (caught.value.found or "")


def test_a_nodelist_of_charm_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "nodelist").write_text(CHARM)
    with pytest.raises(InventoryError) as caught:
        read_inventory(tmp_path / "nodelist")
    assert "Charm++" in str(caught.value.hint)
    assert "n01 slots=8" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("any", "Host a b\n  User me\nMatch all\n  Port 22\n", ("ssh-config", ["a", "b"])),
        ("any", "IgnoreUnknown Use*,x\nHost a\n  UseSomethingNew yes\n  HostName 10.0.0.1\n", ("ssh-config", ["a"])),
        ("any", "Host a\n  GSSAPIAuthentication no\n  HPNDisabled yes\n  UseKeychain yes\n", ("ssh-config", ["a"])),
        ("my.ssh_config", "Host a\nHost b\n", ("ssh-config", ["a", "b"])),
        ("any", "host  # the only one\n", ("hostfile", ["host"])),
        ("any", "host slots=2\ngroup\n", ("hostfile", ["host", "group"])),
        ("x.nodefile", "a\na\nb\n", ("pbs", ["a", "b"])),
        ("x.nodefile", "a slots=2\nb\n", ("hostfile", ["a", "b"])),
        ("my.lsf", "a\na\n", ("lsf", ["a"])),
        ("selfsame", "a\nb\n", ("hostfile", ["a", "b"])),
        ("x.json", '{"a": {"ansible_host": "10.0.0.1"}}', ("ansible-json", ["a"])),
        ("x.yml", "a:\n  hosts:\n    b:\n", ("ansible-yaml", ["b"])),
        ("any", "a:4\nb:2\n", ("hostfile", ["a", "b"])),
    ],
)
def test_a_file_whose_lines_all_fit_is_read(
    name: str, content: str, expected: tuple[str, list[str]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    inventory = read_inventory(tmp_path / name)
    assert (inventory.format, [host.name for host in inventory.hosts]) == expected


def test_another_file_that_pdsh_would_include_is_told(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("gpu1\n#include more\n")
    inventory = read_inventory(tmp_path / "hosts")
    assert [host.name for host in inventory.hosts] == ["gpu1"]
    assert [note.removeprefix(f"{tmp_path}/") for note in inventory.notes] == [
        "hosts:2:1: read as a comment; pdsh would include another file here"
    ]
