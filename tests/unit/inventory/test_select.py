"""Host expressions: exactly the hosts that were meant, in the order in which they were written."""

from pathlib import Path
from typing import Any

import pytest

from mnspawn_inventory import InventoryError, Selection, resolve

CLUSTER = """
[hosts."gpu[01-04]"]
slots = 4
[hosts.a]
slots = 2
user = "inventory"
[hosts.b]
[hosts."n[9-11]"]
[groups.gpu]
hosts = ["gpu[01-04]"]
[groups.odd]
hosts = ["gpu03", "gpu01", "a"]
[groups.both]
children = ["gpu", "odd"]
"""


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return str(path)


def names(selection: Selection) -> list[str]:
    return [host.name for host in selection.hosts]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("b,a", "b a"),
        (" b , a ", "b a"),
        ("gpu[03,01-02]", "gpu03 gpu01 gpu02"),
        ("gpu[01-04/2]", "gpu01 gpu03"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[009-011]", "n009 n010 n011"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("x[1-2]-ib.lan", "x1-ib.lan x2-ib.lan"),
        ("a,b!a", "b"),
        ("a!a,b", "b"),
        ("x[1-5]&x[3-9]", "x3 x4 x5"),
        ("x[1-3]^x[2-4]", "x1 x4"),
        ("x[1-9]!x[2-3]!x9,y", "x1 x4 x5 x6 x7 x8 y"),
        ("x[1-2],y&y", "y"),
        ("[::1],fe80::1%eth0", "::1 fe80::1%eth0"),
        ("[::1],[::2]![::1]", "::2"),
        ("10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3"),
        ("user@b,ssh://me@c:2222", "b c"),
    ],
)
def test_plain_expressions(expression: str, expected: str) -> None:
    assert names(resolve(hosts=expression, environ={})) == expected.split()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@gpu", "gpu01 gpu02 gpu03 gpu04"),
        ("@odd", "gpu01 gpu03 a"),
        ("@both", "gpu01 gpu02 gpu03 gpu04 a"),
        ("@all", "gpu01 gpu02 gpu03 gpu04 a b n9 n10 n11"),
        ("@*!@gpu", "a b n9 n10 n11"),
        ("@gpu&@odd", "gpu01 gpu03"),
        ("@gpu!@odd", "gpu02 gpu04"),
        ("@gpu^@odd", "gpu02 gpu04 a"),
        ("b,@gpu,gpu01", "b gpu01 gpu02 gpu03 gpu04"),
        ("gpu04,@gpu", "gpu04 gpu01 gpu02 gpu03"),
        ("gpu*", "gpu01 gpu02 gpu03 gpu04"),
        ("gpu0?!gpu03", "gpu01 gpu02 gpu04"),
        ("a:0@b", "a b"),
        ("a@b", "a b"),
    ],
)
def test_expressions_over_an_inventory(expression: str, expected: str, inventory: str) -> None:
    assert names(resolve(hosts=expression, inventory=inventory, environ={})) == expected.split()


@pytest.mark.parametrize(
    ("expression", "user", "port", "slots", "devices"),
    [
        ("h:4", None, None, 4, None),
        ("u@h", "u", None, None, None),
        ("u@h:4", "u", None, 4, None),
        ("u@h:2222", "u", 2222, None, None),
        ("u@h:22", "u", 22, None, None),
        ("h:22", None, None, 22, None),
        ("h:2222", None, 2222, None, None),
        ("ssh://h", None, None, None, None),
        ("ssh://u@h:22", "u", 22, None, None),
        ("SSH://u@h:4/", "u", 4, None, None),
        ("[::1]:22", None, 22, None, None),
        ("[::1]:4", None, None, 4, None),
        ("u@[::1]:2222", "u", 2222, None, None),
        ("ssh://u@[::1]:4", "u", 4, None, None),
        ("h:0,2", None, None, 2, (0, 2)),
        ("h:0-3", None, None, 4, (0, 1, 2, 3)),
        ("h:3,0-1", None, None, 3, (3, 0, 1)),
    ],
)
def test_what_a_host_says_of_itself(
    expression: str, user: str | None, port: int | None, slots: int | None, devices: tuple[int, ...] | None
) -> None:
    (host,) = resolve(hosts=expression, environ={}).hosts
    assert (host.user, host.port, host.slots, host.devices) == (user, port, slots, devices)


def test_deepspeeds_list_gives_devices_to_each_host() -> None:
    hosts = resolve(hosts="a:0,2@b@c:1", environ={}).hosts
    assert [(host.name, host.devices, host.slots) for host in hosts] == [
        ("a", (0, 2), 2),
        ("b", None, None),
        ("c", (1,), 1),
    ]


def test_the_command_line_wins_over_the_inventory_and_its_value_says_so(inventory: str) -> None:
    (host,) = resolve(hosts="me@a:1", inventory=inventory, environ={}).hosts
    assert (host.user, host.slots) == ("me", 1)
    assert str(host.origin("user")) == "--hosts"
    (host,) = resolve(hosts="a", inventory=inventory, environ={}).hosts
    assert str(host.origin("user")) == f"{inventory}:6:9"


@pytest.mark.parametrize(
    "expression",
    [
        *("", " ", ",", "a,", ",a", "a,,b", "a,a", "a,x[1-2],x2", "a:0", "a:x", "a:", "a:-1", "a:4x", "a:1-", "a:0,0"),
        *("a:99999999999", "@nope", "@", "x*", "a!a", "!a", "a!", "a&", "a&&b", "a!b:4", "a b", "a;b", "$(x)", "`x`"),
        *(
            "-x",
            "-oProxyCommand=x",
            "a|b",
            "a>b",
            "a\nb",
            "a'b",
            'a"b',
            "a\\b",
            "~a",
            "a@b@c",
            "-x@a",
            "a;b@c",
            "@gpu@b",
        ),
        *("gpu[1-2", "gpu1]", "gpu[2-1]", "gpu[]", "gpu[a-b]", "gpu[1-2/0]", "gpu[1:3]", "x[1-999999]", "[::1", "[x]"),
        *("ssh://", "ssh://a:x", "ssh://a:0", "ssh://a:70000", "ssh://u@@a", "é", "a.b..", "#", "a#b"),
    ],
)
def test_what_is_no_expression_is_told_with_the_option(expression: str) -> None:
    with pytest.raises(InventoryError) as raised:
        resolve(hosts=expression, environ={})
    assert str(raised.value).startswith("--hosts: ")
    assert "\n" not in str(raised.value)


def test_a_name_that_is_not_in_the_given_file_is_an_error_with_the_nearest_one(inventory: str) -> None:
    with pytest.raises(InventoryError, match=r"no such host in .*: found 'gpu1'") as raised:
        resolve(hosts="gpu1", inventory=inventory, environ={})
    assert raised.value.hint == "did you mean 'gpu01'?"


@pytest.mark.parametrize(
    ("option", "expression", "expected"),
    [
        ("include", "a", [("a", 2, None)]),
        ("include", "b,a", [("a", 2, None), ("b", None, None)]),
        ("include", "a:1", [("a", 1, (1,))]),
        ("include", "a:0,1@b", [("a", 2, (0, 1)), ("b", None, None)]),
        ("include", "gpu01:0-2", [("gpu01", 3, (0, 1, 2))]),
        ("include", "gpu01:3,1", [("gpu01", 2, (1, 3))]),
        ("include", "n[9-10]", [("n9", None, None), ("n10", None, None)]),
        ("exclude", "@gpu,n*", [("a", 2, None), ("b", None, None)]),
        ("exclude", "@gpu,n*,a:0", [("a", 1, (1,)), ("b", None, None)]),
        ("exclude", "@gpu,n*,a:0,1", [("b", None, None)]),
        ("limit", "@odd!gpu01", [("gpu03", 4, None), ("a", 2, None)]),
    ],
)
def test_narrowing(
    option: str, expression: str, expected: list[tuple[str, int | None, tuple[int, ...] | None]], inventory: str
) -> None:
    narrowing: dict[str, Any] = {option: expression}
    selection = resolve(inventory=inventory, environ={}, **narrowing)
    assert [(host.name, host.slots, host.devices) for host in selection.hosts] == expected


@pytest.mark.parametrize(
    ("option", "expression", "message"),
    [
        ("include", "nope", "no such host"),
        ("include", "", "no hosts"),
        ("include", "a:7", "a has no device 7"),
        ("include", "me@a", "a user or port"),
        ("exclude", "b:0", "the devices of b are not known"),
        ("exclude", "@all", "no hosts are left"),
        ("exclude", "@nope", "no such group"),
        ("limit", "x*", "no host matches"),
    ],
)
def test_narrowing_that_cannot_be_is_told(option: str, expression: str, message: str, inventory: str) -> None:
    narrowing: dict[str, Any] = {option: expression}
    with pytest.raises(InventoryError, match=message) as raised:
        resolve(inventory=inventory, environ={}, **narrowing)
    assert str(raised.value.place) == f"--{option}"
