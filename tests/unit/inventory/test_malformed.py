"""Files that nobody can use: each is told with its place, what was found and what was expected, in one line."""

from pathlib import Path

import pytest

from mnspawn_inventory import InventoryError, read_inventory

# (name of the file, content, line and column that must be told (None: the file only), part of what was found)
BAD: list[tuple[str, str | bytes, tuple[int, int] | None, str]] = [
    # hostfiles
    ("hostfile", "a slots=4x\n", (1, 9), "4x"),
    ("hostfile", "a slots = 4\n", (1, 3), "slots"),
    ("hostfile", "a slots=0\n", (1, 9), "0"),
    ("hostfile", "a slots=\n", (1, 3), "slots="),
    ("hostfile", "a slots=-1\n", (1, 9), "-1"),
    ("hostfile", "a slots=4.0\n", (1, 9), "4.0"),
    ("hostfile", "a slots=٤\n", (1, 9), "٤"),
    ("hostfile", "a slots=99999999999999999999\n", (1, 9), "99999999999999999999"),
    ("hostfile", "a slots=4 slots=4\n", (1, 17), "4"),
    ("hostfile", "a slot=4\n", (1, 3), "slot"),
    ("hostfile", "a\nb\na\n", (3, 1), "a"),
    ("hostfile", "a slots=1\na slots=1\n", (2, 1), "a"),
    ("hostfile", "a b\n", (1, 3), "b"),
    ("hostfile", "a,b\n", (1, 1), "a,b"),
    ("hostfile", "slots=4\n", (1, 1), "slots=4"),
    ("hostfile", "=\n", (1, 1), "="),
    ("hostfile", "-oProxyCommand=x slots=1\n", (1, 1), "-oProxyCommand=x"),
    ("hostfile", "a;reboot\n", (1, 1), "a;reboot"),
    ("hostfile", "$(reboot)\n", (1, 1), "$(reboot)"),
    ("hostfile", "`x`\n", (1, 1), "`x`"),
    ("hostfile", "a'b\n", (1, 1), "a'b"),
    ("hostfile", "-l@a\n", (1, 1), "-l"),
    ("hostfile", "ro;ot@a\n", (1, 1), "ro;ot"),
    ("hostfile", "@a\n", (1, 1), ""),
    ("hostfile", "root@\n", (1, 6), ""),
    ("hostfile", "a:\n", (1, 3), ""),
    ("hostfile", "a:x\n", (1, 3), "x"),
    ("hostfile", "a:0\n", (1, 3), "0"),
    ("hostfile", "a:70000\n", (1, 3), "70000"),
    ("hostfile", "a:99999 slots=1\n", (1, 3), "99999"),
    ("hostfile", "[::1\n", (1, 1), "[::1"),
    ("hostfile", "[::g]\n", (1, 1), "[::g]"),
    ("hostfile", "gpu[1-\n", (1, 4), "gpu[1-"),
    ("hostfile", "gpu[3-1]\n", (1, 5), "3-1"),
    ("hostfile", "gpu[1-2,x]\n", (1, 9), "x"),
    ("hostfile", "gpu[1-999999999]\n", (1, 5), "1-999999999"),
    ("hostfile", "gpu]\n", (1, 1), "gpu]"),
    ("hostfile", "ssh://a:x\n", (1, 9), "x"),
    ("hostfile", "hôte\n", (1, 1), "hôte"),
    ("hostfile", "a" * 300 + "\n", (1, 1), "aaa"),
    ("hostfile", "# only\n\n", None, ""),
    ("hostfile", "", None, ""),
    ("hostfile", b"a\xff\n", (1, 2), "\\xff"),
    ("hostfile", b"\xff\xfea\x00\n\x00", (1, 1), ""),
    ("hostfile", b"a\nb\x00c\n", (2, 2), "\x00"),
    ("hostfile", b"\x1b[31ma\n", (1, 1), "\x1b"),
    ("hostfile.openmpi", "a slots=2\na slots=3\n", (2, 9), "3"),
    ("hostfile.openmpi", "a slots=2 max_slots=3x\n", (1, 21), "3x"),
    ("hostfile.openmpi", "a slots = 2 max_slots==3\n", (1, 23), "=3"),
    ("hostfile", "a max-slots=0\n", (1, 13), "0"),
    ("hostfile.deepspeed", "a slots=2 max_slots=3\n", (1, 11), "max_slots"),
    ("machinefile", "a:2 foo=1\n", (1, 5), "foo"),
    ("x.nodefile", "a b\n", (1, 3), "b"),
    # TOML
    ("i.toml", "[hosts.a\n", (1, 9), "[hosts.a"),
    ("i.toml", "[hosts.a]\nport = \n", (2, 8), "port ="),
    ("i.toml", "[hosts.a]\nport = 1\nport = 2\n", (3, 9), "port = 2"),
    ("i.toml", "[hosts.a]\n[hosts.a]\n", (2, 9), "[hosts.a]"),
    ("i.toml", "[hosts.a]\nslots = 0\n", (2, 9), "0"),
    ("i.toml", '[hosts.a]\nslots = "4x"\n', (2, 10), "4x"),
    ("i.toml", "[hosts.a]\nslots = true\n", (2, 9), "true"),
    ("i.toml", "[hosts.a]\nslots = 4.5\n", (2, 9), "4.5"),
    ("i.toml", "[hosts.a]\nslot = 4\n", (2, 1), "slot"),
    ("i.toml", "[hosts.a]\nport = 70000\n", (2, 8), "70000"),
    ("i.toml", '[hosts.a]\nuser = "a b"\n', (2, 9), "a b"),
    ("i.toml", '[hosts.a]\nuser = "-l"\n', (2, 9), "-l"),
    ("i.toml", "[hosts.a]\nuser = 5\n", (2, 8), "5"),
    ("i.toml", '[hosts.a]\naddress = ""\n', (2, 12), ""),
    ("i.toml", '[hosts.a]\naddress = "10.0.0.[1-2]"\n', (2, 12), "10.0.0.[1-2]"),
    ("i.toml", '[hosts."a[1-3]"]\naddress = "10.0.0.[1-2]"\n', (2, 12), "10.0.0.[1-2]"),
    ("i.toml", '[hosts.a]\nnetwork = "10.0.0.0/99"\n', (2, 12), "10.0.0.0/99"),
    ("i.toml", '[hosts.a]\ntransport = "telnet"\n', (2, 14), "telnet"),
    ("i.toml", '[hosts.a]\njump = "b;c"\n', (2, 9), "b;c"),
    ("i.toml", '[hosts.a]\nidentity = ""\n', (2, 13), ""),
    ("i.toml", "[hosts.a]\ndevices = [0, 0]\n", (2, 11), "[0, 0]"),
    ("i.toml", "[hosts.a]\ndevices = [-1]\n", (2, 11), "-1"),
    ("i.toml", '[hosts.a]\ndevices = "2-0"\n', (2, 12), "2-0"),
    ("i.toml", "[hosts.a]\nenv = 5\n", (2, 7), "5"),
    ("i.toml", '[hosts.a]\nenv = { "A B" = "x" }\n', (2, 18), "A B"),
    ("i.toml", "[hosts.a]\nenv = { A = [1] }\n", (2, 13), "[1]"),
    ("i.toml", '[hosts.a]\nenv = { A = { vault = "x" } }\n', (2, 13), "vault"),
    ("i.toml", "[hosts.a]\nlabels = []\n", (2, 10), "[]"),
    ("i.toml", "[hosts.a]\nprelude = [1]\n", (2, 11), "[1]"),
    ("i.toml", '[hosts."a b"]\n', (1, 8), "a b"),
    ("i.toml", '[hosts.""]\n', (1, 8), ""),
    ("i.toml", '[hosts."a[1-"]\n', (1, 9), "a[1-"),
    ("i.toml", "hosts = 5\n", (1, 9), "5"),
    ("i.toml", 'hosts = ["a", 5]\n', (1, 15), "5"),
    ("i.toml", 'hosts = ["a", "b", "a"]\n', (1, 21), "a"),
    ("i.toml", "[hosts]\na = 5\n", (2, 5), "5"),
    ("i.toml", '[hosts.a]\ngroups = "gpu"\n', (2, 11), "gpu"),
    ("i.toml", '[hosts.a]\ngroups = ["all"]\n', (2, 12), "all"),
    ("i.toml", "[host.a]\n", (1, 2), "host"),
    ("i.toml", "x" + ".a" * 200 + " = 1\n", (1, 201), "a"),
    ("i.toml", '[groups.g]\nhosts = "a"\n', (2, 10), "a"),
    ("i.toml", '[groups.g]\nhosts = ["#"]\n', (2, 11), "#"),
    ("i.toml", '[groups.g]\nchildren = ["nope"]\n', (2, 14), "nope"),
    ("i.toml", '[groups.g]\nchildren = ["g"]\n', (2, 14), "g"),
    ("i.toml", '[groups.g]\nchildren = ["h"]\n[groups.h]\nchildren = ["g"]\n', (4, 14), "g"),
    ("i.toml", '[groups."a b"]\n', (1, 9), "a b"),
    ("i.toml", '[groups.all]\nhosts = ["a"]\n', (2, 1), "hosts"),
    ("i.toml", "x = [" + "[" * 5000 + "\n", None, ""),
    # Ansible INI
    ("i.ini", "[gpu\na\n", (1, 1), "[gpu"),
    ("i.ini", "[gpu nodes]\na\n", (1, 1), "[gpu nodes]"),
    ("i.ini", "[gpu:kids]\na\n", (1, 6), "kids"),
    ("i.ini", "[gpu:vars]\nx=1\n", (1, 2), "gpu"),
    ("i.ini", "[a:children]\nnope\n", (2, 1), "nope"),
    ("i.ini", "[a:children]\nb\n[b:children]\na\n", (4, 1), "a"),
    ("i.ini", "a ansible_port=x\n", (1, 16), "x"),
    ("i.ini", "a ansible_host='x\n", (1, 1), "a ansible_host='x"),
    ("i.ini", "a ansible_user=a;b\n", (1, 16), "a;b"),
    ("i.ini", "b\n a x=" + "y" * 100_000 + "\n", (2, 2), "a x=y"),
    ("i.ini", "a novalue\n", (1, 3), "novalue"),
    ("i.ini", "web[1:x]\n", (1, 5), "1:x"),
    ("i.ini", "web[3:1]\n", (1, 5), "3:1"),
    ("i.ini", "web[01:100]\n", (1, 5), "01:100"),
    ("i.ini", "web[1-3]\n", (1, 1), "web[1-3]"),
    ("i.ini", "a\n[g]\na\n[g:vars]\nnoequals\n", (5, 1), "noequals"),
    ("i.ini", "a ansible_host=\"{{ hostvars['b'].x }}\"\n", (1, 16), "hostvars"),
    ("i.ini", 'a ansible_user="{{ nope }}"\n', (1, 16), "nope"),
    ("i.ini", 'a ansible_user="{{ ansible_user }}"\n', (1, 16), "ansible_user"),
    ("i.ini", "a mnspawn_slots=0\n", (1, 17), "0"),
    ("i.ini", "a mnspawn_slotz=1\n", (1, 17), "slotz"),
    # Ansible YAML
    ("i.yml", "all:\n  hosts:\n    a: {ansible_port: x}\n", (3, 23), "x"),
    ("i.yml", "all:\n  hosts: [a, b]\n", (2, 10), "sequence"),
    ("i.yml", "all:\n  hosts:\n    a: 5\n", (3, 8), "5"),
    ("i.yml", "all:\n  host:\n    a:\n", (2, 3), "host"),
    ("i.yml", "all:\n hosts:\n   a:\n  b:\n", (4, 3), "b:"),
    ("i.yml", "all:\n\thosts:\n", (2, 1), "hosts:"),
    ("i.yml", "- a\n- b\n", (1, 1), "sequence"),
    ("i.yml", "all: {hosts: {a: {}, a: {}}}\n", (1, 22), "a"),
    ("i.yml", "plugin: aws_ec2\n", (1, 1), "aws_ec2"),
    ("i.yml", "all:\n  hosts:\n    'a b':\n", (3, 5), "a b"),
    ("i.yml", "all:\n  hosts:\n    a:\n      ansible_user: !vault x\n", (4, 21), "!vault"),
    ("i.yml", "all: {children: {g: {children: {all: }}}}\n", None, "all"),
    ("i.yml", "", (0, 0), ""),
    ("i.yml", "a: &x {hosts: *x}\n", None, ""),
    # JSON
    ("i.json", "{", (1, 2), "{"),
    ("i.json", '{"a": {"hosts": "x"}}', (1, 17), "x"),
    ("i.json", '{"a": {"hosts": [5]}}', (1, 18), "5"),
    ("i.json", '{"a":\n 5}', (2, 2), "5"),
    ("i.json", "[1]", (1, 1), "list"),
    ("i.json", '{"a": {"children": ["b"], "vars": []}}', (1, 35), "[]"),
    ("i.json", '{"a": {"hosts": []},\n "a": {}}', (2, 2), "a"),
    ("i.json", '{"a": {"hosts": [\n"b c"]}}', (2, 1), "b c"),
    ("i.json", '{"g": {"hosts": ["a"]}, "_meta": {"hostvars": {"a": {"ansible_port": "x"}}}}', (1, 70), "x"),
    ("i.json", '{"g": {"children": ["g"], "hosts": ["a"]}}', (1, 21), "g"),
    ("i.json", '{"hosts": [{"address": "x"}]}', (1, 12), "null"),
    ("i.json", '{"hosts": ["a"]}', (1, 12), "a"),
    ("i.json", '{"hosts": [{"name": "a",\n"slots": 0}]}', (2, 10), "0"),
    ("i.json", '{"hosts": [{"name": "a", "colour": "x"}]}', (1, 26), "colour"),
    ("i.json", '{"hosts": [{"name": "a"}, {"name": "a"}]}', (1, 36), "a"),
    ("i.json", '{"hosts": [{"name": "a", "env": {"A": {"x": 1}}}]}', (1, 39), "x"),
    ("i.json", '{"hosts": [{"name": "a"}], "groups": [{"name": "g", "hosts": ["b"]}]}', (1, 63), "b"),
    ("i.json", '{"hosts": [{"name": "a", "labels": {"x": "\\ud800"}}]}', (1, 42), "\ud800"),
    ("i.json", '{"hosts": [{"name": "a", "workdir": "\\ud800"}]}', (1, 37), "\ud800"),
    ("i.json", "[" * 100_000, None, ""),
    # ssh_config
    ("ssh_config", "Host\n", (1, 1), "Host"),
    ("ssh_config", "Host a\n  Port x\n", (2, 8), "x"),
    ("ssh_config", "Host a\n  User\n", (2, 3), "User"),
    ("ssh_config", 'Host a\n  User "x\n', (2, 8), '"x'),
    ("ssh_config", "Host a\n  User a;b\n", (2, 8), "a;b"),
    ("ssh_config", "Host *\n  User x\n", None, ""),
    ("ssh_config", "=x\n", (1, 1), "=x"),
    ("ssh_config", "Host a\n  HostName -oX\n", (2, 12), "-oX"),
]


@pytest.mark.parametrize(("name", "content", "at", "found"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_told_with_place_found_and_expected(
    name: str, content: str | bytes, at: tuple[int, int] | None, found: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InventoryError) as raised:
        read_inventory(path)
    error = raised.value
    assert error.place is not None
    assert error.place.source == str(path)
    if at is not None:
        assert (error.place.line, error.place.column) == at, str(error)
    assert found in (error.found or ""), str(error)
    assert "\n" not in str(error)
    assert str(error).isprintable()
    assert (
        error.expected is not None
        or error.found is not None
        or "not valid" in error.message
        or "is UTF-16" in str(error)
    )


@pytest.mark.parametrize(
    ("format_name", "content", "at", "found"),
    [
        ("slurm", "gpu[01-03],\u00fc", (1, 12), "\u00fc"),
        ("slurm", "\n  a,gpu[3-1]\n", (2, 9), "3-1"),
        ("slurm", "a,b]", (1, 4), "b]"),
        ("ips", "10.0.0.1, 10.0.0.2 ,10.0.0.1\n", (1, 21), "10.0.0.1"),
        ("ips", "10.0.0.1,, 10.0.0.2", (1, 10), ""),
        ("ips", "\n a\n b;c", (3, 2), "b;c"),
    ],
)
def test_a_list_in_a_file_is_told_with_its_place(
    format_name: str, content: str, at: tuple[int, int] | None, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "list"
    path.write_text(content)
    with pytest.raises(InventoryError) as raised:
        read_inventory(path, format_name)
    place = raised.value.place
    assert place is not None
    assert at is None or (place.line, place.column) == at
    assert raised.value.found == found


def test_the_corpus_is_large_enough() -> None:
    assert len(BAD) >= 60


@pytest.mark.parametrize("kind", ["missing", "folder", "unreadable"])
def test_a_file_that_cannot_be_read_is_told(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    if kind == "folder":
        path.mkdir()
    if kind == "unreadable":
        path = path / "below"
        path.parent.write_text("a file")
    with pytest.raises(InventoryError) as raised:
        read_inventory(path)
    assert raised.value.place is not None
    assert raised.value.place.source == str(path)


def test_an_unknown_format_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="found 'tomll', expected one of toml, hostfile") as raised:
        read_inventory(tmp_path, "tomll")
    assert raised.value.hint == "did you mean 'toml'?"
