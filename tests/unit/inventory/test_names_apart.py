"""Several hosts of one address, by port or account: each has a short name of its own, and is found by what it is."""

from pathlib import Path
from typing import Any

import pytest

from mnspawn_inventory import Host, Inventory, InventoryError, read_inventory, resolve
from mnspawn_inventory.editors import open_document
from mnspawn_inventory.export import export
from mnspawn_inventory.names import check_name
from mnspawn_inventory.nodeset import fold

NOBODY = {"HOME": "/nonexistent"}
Facts = tuple[str, str, str | None, int | None]


def facts(hosts: tuple[Host, ...]) -> list[Facts]:
    return [(host.name, host.ssh_name, host.user, host.port) for host in hosts]


def names(hosts: tuple[Host, ...]) -> str:
    return " ".join(host.name for host in hosts)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            "root@10.0.0.5:40123,root@10.0.0.5:40124",
            [("10.0.0.5:40123", "10.0.0.5", "root", 40123), ("10.0.0.5:40124", "10.0.0.5", "root", 40124)],
        ),
        ("alice@h,bob@h", [("alice@h", "h", "alice", None), ("bob@h", "h", "bob", None)]),
        ("h,h:2222", [("h", "h", None, None), ("h:2222", "h", None, 2222)]),
        ("h:4,bob@h:2", [("h", "h", None, None), ("bob@h", "h", "bob", None)]),
        ("[::1]:2201,[::1]:2202", [("[::1]:2201", "::1", None, 2201), ("[::1]:2202", "::1", None, 2202)]),
        ("ssh://me@h:443,ssh://me@h:22", [("ssh://h:443", "h", "me", 443), ("h:22", "h", "me", 22)]),
        (
            "a@h:2201,b@h:2201,a@h:2202",
            [("a@h:2201", "h", "a", 2201), ("b@h:2201", "h", "b", 2201), ("a@h:2202", "h", "a", 2202)],
        ),
        ("me@h:2201,other", [("h", "h", "me", 2201), ("other", "other", None, None)]),
        ("alice@h,bob@h,c!bob@h", [("h", "h", "alice", None), ("c", "c", None, None)]),
    ],
)
def test_hosts_of_one_address_have_names_that_tell_them_apart(expression: str, expected: list[Facts]) -> None:
    assert facts(resolve(hosts=expression, environ=NOBODY).hosts) == expected


@pytest.mark.parametrize("expression", ["h,h", "me@h,me@h", "h:2201,h:2201", "me@h:2201,ssh://me@h:2201", "h,h:4"])
def test_user_address_and_port_make_a_host_that_is_listed_twice(expression: str) -> None:
    with pytest.raises(InventoryError, match=r"^--hosts: a host is listed twice"):
        resolve(hosts=expression, environ=NOBODY)


@pytest.mark.parametrize(
    "text",
    [
        "root@10.0.0.5:40123 slots=2\nroot@10.0.0.5:40124 slots=3\n",
        "ssh://root@10.0.0.5:40123 slots=2\nssh://root@10.0.0.5:40124 slots=3\n",
        "10.0.0.5 user=root port=40123 slots=2\n10.0.0.5 port=40124 user=root slots=3\n",
    ],
)
def test_lines_of_a_hostfile_with_other_ports_are_hosts_of_their_own(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    hosts = read_inventory(path).hosts
    assert facts(hosts) == [
        ("10.0.0.5:40123", "10.0.0.5", "root", 40123),
        ("10.0.0.5:40124", "10.0.0.5", "root", 40124),
    ]
    assert [host.slots for host in hosts] == [2, 3]
    path.write_text(text + text.splitlines()[0] + "\n")
    with pytest.raises(InventoryError, match=r"hosts:3:1: the host is already listed in line 1"):
        read_inventory(path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"hosts": "10.0.0.5:40124"}, "10.0.0.5:40124"),
        ({"hosts": "root@10.0.0.5:40124,10.0.0.5:40123"}, "10.0.0.5:40124 10.0.0.5:40123"),
        ({"hosts": "ssh://root@10.0.0.5:40123"}, "10.0.0.5:40123"),
        ({"hosts": "10.0.0.5"}, "10.0.0.5:40123 10.0.0.5:40124"),
        ({"hosts": "@late"}, "10.0.0.5:40124"),
        ({"exclude": "10.0.0.5:40123"}, "10.0.0.5:40124 bob@h"),
        ({"exclude": "10.0.0.5"}, "bob@h"),
        ({"include": "bob@h"}, "bob@h"),
        ({"limit": "root@10.0.0.5:40124,h"}, "10.0.0.5:40124 bob@h"),
    ],
)
def test_hosts_of_an_inventory_are_chosen_by_name_or_by_user_and_port(
    options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[hosts."10.0.0.5:40123"]\nuser = "root"\n[hosts."root@10.0.0.5:40124"]\nslots = 3\n[hosts."bob@h"]\n'
        '[groups.late]\nhosts = ["root@10.0.0.5:40124"]\n'
    )
    chosen = resolve(inventory=str(path), environ=NOBODY, **options).hosts
    assert names(chosen) == expected.replace("10.0.0.5:40124", "root@10.0.0.5:40124")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hosts": "10.0.0.5:40125"}, "--hosts: no such host in .*: found '10.0.0.5:40125'"),
        ({"exclude": "me@10.0.0.5:40123"}, "--exclude: no such host among the hosts: found 'me@10.0.0.5:40123'"),
    ],
)
def test_a_port_or_user_that_no_host_has_is_told(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("root@10.0.0.5:40123\nroot@10.0.0.5:40124\n")
    with pytest.raises(InventoryError, match=message):
        resolve(hostfile=str(path), environ=NOBODY, **options)


def test_two_accounts_share_what_the_inventory_says_of_their_machine(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("alice@h\nbob@h\n")
    (tmp_path / "mnspawn.toml").write_text("[hosts.h]\nslots = 3\n")
    hosts = resolve(hostfile=str(path), environ=NOBODY, cwd=tmp_path).hosts
    assert [(host.name, host.user, host.slots) for host in hosts] == [("alice@h", "alice", 3), ("bob@h", "bob", 3)]


def test_a_name_and_a_setting_that_contradict_each_other_are_told_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[hosts."h:2201"]\nport = 2202\n')
    with pytest.raises(InventoryError, match=r"cluster.toml:2:8: the port contradicts the name h:2201: found '2202'"):
        read_inventory(path)


@pytest.mark.parametrize("format_name", ["toml", "hostfile"])
def test_hosts_of_one_address_are_added_set_and_removed(format_name: str) -> None:
    def changed(text: str) -> Inventory:
        return open_document(text, "file", format_name).inventory

    document = open_document("", "file", format_name)
    assert document.add(["root@10.0.0.5:40123"], {"slots": 1}) == ["10.0.0.5"]
    document = open_document(document.text(), "file", format_name)
    assert document.add(["root@10.0.0.5:40124", "alice@h", "bob@h"], {}) == ["10.0.0.5:40124", "alice@h", "bob@h"]
    text = document.text()
    assert [host.port for host in changed(text).hosts] == [40123, 40124, None, None]
    document = open_document(text, "file", format_name)
    with pytest.raises(InventoryError, match=r"the host is there already: found 'root@10.0.0.5:40124'"):
        document.add(["root@10.0.0.5:40124"], {})
    document.set(["root@10.0.0.5:40124", "alice@h"], {"slots": 5})
    document = open_document(document.text(), "file", format_name)
    document.remove(["bob@h"])
    assert [(host.user, host.port, host.slots) for host in changed(document.text()).hosts] == [
        ("root", 40123, 1),
        ("root", 40124, 5),
        ("alice", None, 5),
    ]


@pytest.mark.parametrize("format_name", ["hostfile", "ssh-config", "ansible-yaml", "toml", "json"])
def test_hosts_of_one_address_are_exported_as_what_they_are(format_name: str, tmp_path: Path) -> None:
    hosts = resolve(hosts="root@10.0.0.5:40123,me@10.0.0.5:40124,c", environ=NOBODY).hosts
    text, _ = export(Inventory(hosts), format_name)
    path = tmp_path / "file"
    path.write_text(text)
    back = read_inventory(path, format_name).hosts
    assert [(one.address or one.ssh_name, one.user, one.port) for one in back] == [
        ("10.0.0.5", "root", 40123),
        ("10.0.0.5", "me", 40124),
        ("c", None, None),
    ]
    assert len({one.name for one in back}) == 3


def test_a_number_that_could_be_slots_is_no_port_of_a_name() -> None:
    with pytest.raises(InventoryError, match="not a host name: found 'a:4'"):
        check_name("a:4", None)
    assert check_name("SSH://a:4", None) == "ssh://a:4"


def test_names_with_ports_and_users_are_folded_as_they_are() -> None:
    assert fold(["n1", "n2", "10.0.0.5:40123", "alice@h", "::1", "[::1]:2201"]) == (
        "n[1-2],10.0.0.5:40123,alice@h,[::1],[::1]:2201"
    )
