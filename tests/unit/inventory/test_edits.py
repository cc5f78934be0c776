"""Edits of TOML inventories and hostfiles: nothing that people wrote is lost, and what is written is read back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_inventory import Inventory, InventoryError, read_inventory
from mnspawn_inventory.assign import parse_settings
from mnspawn_inventory.editors import open_document
from mnspawn_inventory.editors.hostfile import HostfileDocument
from mnspawn_inventory.editors.toml import TomlDocument, shortened
from mnspawn_inventory.formats.own import expand
from mnspawn_inventory.toml_text import runs

TEXT = """\
# My cluster

# the first host
[hosts.a]   # behind the header
port = 22   # behind a value
colour = "red" # a key that nobody knows

# many
[hosts."gpu[01-04]"]
address = "10.0.0.[1-4]"   # all in one network
slots = 8

[hosts.b.env]
A = "1"   # inside

# groups from here
[groups]
short = ["a", "b"]  # the short form

[groups.gpu]
hosts = [
  "gpu[01-04]",   # the range
  "b",
]

[tool.other]
x = 1   # not ours
# the end
"""
COMMENTS = [line.partition("#")[2] for line in TEXT.splitlines() if "#" in line]


def document(text: str = TEXT) -> TomlDocument:
    return TomlDocument(text, "i.toml")


def read(text: str, source: str) -> Inventory:
    return TomlDocument("", source).read(text)


def hosts(text: str) -> list[str]:
    return [host.name for host in read(text, "i.toml").hosts]


def comments_lost(text: str) -> list[str]:
    return [comment for comment in COMMENTS if f"#{comment}" not in text]


def test_adding_keeps_everything_and_stands_among_its_like() -> None:
    edited = document()
    assert edited.add(["c", "d[1-2]"], parse_settings(["slots=2", "env.X=1"]), ["gpu", "new"]) == ["c", "d1", "d2"]
    text = edited.text()
    assert comments_lost(text) == []
    assert 'colour = "red" # a key that nobody knows' in text
    assert '\n\n[hosts.c]\nslots = 2\nenv = { X = "1" }\n\n[hosts."d[1-2]"]\n' in text
    assert text.index("[hosts.c]") < text.index("# groups from here") < text.index("[groups]")
    inventory = read(text, "")
    assert {group.name: group.hosts for group in inventory.groups}["new"] == ("c", "d1", "d2")
    assert "c" in {group.name: group.hosts for group in inventory.groups}["gpu"]


def test_setting_changes_the_value_and_nothing_else() -> None:
    edited = document()
    edited.set(["a"], parse_settings(["port=23"]))
    assert edited.text() == TEXT.replace("port = 22", "port = 23")


def test_setting_one_host_of_a_range_gives_it_a_table_of_its_own() -> None:
    edited = document()
    edited.set(["gpu02"], parse_settings(["slots=4"]))
    by_name = {host.name: host.slots for host in read(edited.text(), "").hosts}
    assert by_name == {"a": None, "gpu01": 8, "gpu02": 4, "gpu03": 8, "gpu04": 8, "b": None}
    assert comments_lost(edited.text()) == []
    assert hosts(edited.text()) == hosts(TEXT)


def test_setting_a_whole_range_a_group_and_taking_away() -> None:
    edited = document()
    edited.set(["gpu[01-04]", "@gpu", "@short", "@all"], parse_settings(["user=me"]))
    edited.set(["a"], parse_settings(["port="]))
    text = edited.text()
    assert 'slots = 8\nuser = "me"\n' in text
    assert all(host.user == "me" and host.port is None for host in read(text, "").hosts)
    assert "  # the short form" in text


def test_removing_from_a_range_keeps_order_addresses_and_overrides() -> None:
    edited = document()
    edited.set(["gpu02"], parse_settings(["slots=4"]))
    edited = document(edited.text())
    edited.remove(["gpu03"])
    text = edited.text()
    assert [(host.name, host.address, host.slots) for host in read(text, "").hosts][1:4] == [
        ("gpu01", "10.0.0.1", 8),
        ("gpu02", "10.0.0.2", 4),
        ("gpu04", "10.0.0.4", 8),
    ]
    assert '[hosts."gpu[01-02,04]"]\naddress = "10.0.0.[1-2,4]"   # all in one network\n' in text
    assert '"gpu[01-02,04]",   # the range' in text
    assert comments_lost(text) == []


def test_removing_a_host_keeps_the_comments_around_it() -> None:
    edited = document()
    edited.remove(["a", "@short"])
    text = edited.text()
    assert "[hosts.a]" not in text
    assert hosts(text) == ["gpu01", "gpu02", "gpu03", "gpu04", "b"]
    assert comments_lost(text) == [
        " behind the header",
        " behind a value",
        " a key that nobody knows",
        " the short form",
    ]


def test_removing_everything_leaves_a_file_that_can_be_read() -> None:
    edited = document()
    edited.remove(["a", "b", "gpu[01-04]", "@gpu", "@short"])
    assert read(edited.text(), "").hosts == ()
    assert "[tool.other]\nx = 1   # not ours\n" in edited.text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        'hosts = ["a", "b[1-2]"] # list\n',
        "hosts = { a = { port = 1 }, b1 = {}, b2 = {} }\n",
        "hosts.a.port = 1\nhosts.b1 = {}\nhosts.b2.slots = 1\n",
        "[hosts]\na = { port = 1 }\nb1 = {}\nb2 = {}\n",
        "[groups.g]\nhosts = ['a', 'b1', 'b2']\n",
        "[hosts.a]\n[groups.g]\nhosts = ['a', 'b1']\n[hosts.b1]\n[groups.h]\nhosts = ['b2']\n[hosts.b2]\n",
        "[hosts]\n'a' = {}\n\"b[1-2]\" = {}\n",
        "[hosts.a]\nport = 1",
    ],
)
def test_every_way_to_write_toml_can_be_edited(text: str) -> None:
    before = hosts(text)
    edited = TomlDocument(text, "i.toml")
    edited.add(["new[1-2]"], parse_settings(["slots=3"]), ["g", "fresh"])
    edited = TomlDocument(edited.text(), "i.toml")
    assert hosts(edited.text()) == [*before, "new1", "new2"] or set(hosts(edited.text())) == {*before, "new1", "new2"}
    edited.set(["new1"], parse_settings(["port=7", "labels.x=y"]))
    edited = TomlDocument(edited.text(), "i.toml")
    found = {host.name: host for host in read(edited.text(), "").hosts}
    assert (found["new1"].port, found["new1"].slots, found["new2"].port) == (7, 3, None)
    edited.remove(["new2", *before[:1]])
    assert set(hosts(edited.text())) == {*before[1:], "new1"}
    edited = TomlDocument(edited.text(), "i.toml")
    edited.add(["plain"], {})
    assert "plain" in hosts(edited.text())


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda edited: edited.add(["a"], {}), "the host is there already: found 'a'"),
        (lambda edited: edited.add(["c", "c"], {}), "the host is there already: found 'c'"),
        (lambda edited: edited.add(["c d"], {}), "not a host name"),
        (lambda edited: edited.add(["c"], {}, ["all"]), "every host is in the group all"),
        (lambda edited: edited.set(["gpu05"], {"slots": 1}), "no such host: found 'gpu05'"),
        (lambda edited: edited.set(["@nope"], {"slots": 1}), "no such group: found '@nope'"),
        (lambda edited: edited.remove(["nope"]), "no such host: found 'nope'"),
        (lambda edited: edited.remove(["a", "a"]), "no such host: found 'a'"),
        (lambda edited: (edited.set(["gpu[01-04]"], {"address": "10.0.0.[1-3]"}), edited.text()), "not as many"),
        (lambda edited: edited.set(["a", "gpu[01-02]"], {"address": "10.0.0.[1-3]"}), "not as many"),
    ],
)
def test_an_edit_that_cannot_be_is_refused(work: object, message: str) -> None:
    assert callable(work)
    with pytest.raises(InventoryError, match=message):
        work(document())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("slots=0", "slots: not a number of slots: found '0'"),
        ("slot=1", "slot: unknown key"),
        ("=1", "not a setting"),
        ("port=x", "port: not a port"),
        ("user=a;b", "user: not a user name"),
        ("env.=1", "env.: not a variable's name"),
        ("env.A.vault=1", "not a variable's name"),
        ("env.HF_TOKEN=hf_abc", "env.HF_TOKEN: secrets are referred to, not written down"),
        ("env.AWS_SECRET_ACCESS_KEY=x", "secrets are referred to"),
        ("labels.a b=1", "not a label's name"),
        ("devices=0,0", "not a list of devices"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_a_file_is_touched(word: str, message: str) -> None:
    with pytest.raises(InventoryError, match=message.replace(".", r"\.")):
        parse_settings([word])


def test_settings_have_the_types_of_their_fields() -> None:
    words = [
        "slots=8",
        "devices=0-2",
        "env.A=1",
        "env.HF_TOKEN.env=HF",
        "labels.rack=r1",
        "port=",
        "address=10.0.0.[1-2]",
    ]
    assert parse_settings(words) == {
        "slots": 8,
        "devices": [0, 1, 2],
        "env.A": "1",
        "env.HF_TOKEN": {"env": "HF"},
        "labels.rack": "r1",
        "port": None,
        "address": "10.0.0.[1-2]",
    }


@settings(max_examples=200)
@given(st.lists(st.sampled_from([f"n{i:02d}" for i in range(12)] + ["a", "b1c", "x-1.lan"]), min_size=1, unique=True))
def test_a_shortened_pattern_stands_for_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert expand(shortened(names), None) == names


TARGETS = ["n1", "n[1-3]", "n[2-5]", "n4", "m", "m[1-2]"]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "set", "remove"]), st.sampled_from(["n1", "n[1-3]", "n[2-5]", "n4", "m", "m[1-2]"])
        ),
        max_size=8,
    )
)
def test_any_sequence_of_edits_does_what_it_says_and_loses_no_comment(edits: list[tuple[str, str]]) -> None:
    text = TEXT
    expected = hosts(TEXT)
    for number, (kind, target) in enumerate(edits):
        edited = document(text)
        names = expand(target, None)
        try:
            if kind == "add":
                edited.add([target], {"slots": 1}, ["gpu"])
                expected += names
            elif kind == "set":
                edited.set([target], {"slots": number + 1})
            else:
                edited.remove([target])
                expected = [name for name in expected if name not in names]
        except InventoryError:
            continue
        text = edited.text()
        found = {host.name: host for host in read(text, "").hosts}
        assert set(found) == set(expected)
        if kind == "set":
            assert all(found[name].slots == number + 1 for name in names)
        assert comments_lost(text) == []


def test_merging_adds_what_is_new_and_keeps_what_is_there() -> None:
    other = read('[hosts."gpu[04-06]"]\naddress = "10.0.0.[4-6]"\nport = 9\n[groups.gpu]\nhosts = ["gpu[04-06]"]\n', "")
    edited = document()
    edited.merge(runs(other.hosts), other)
    found = {host.name: host for host in read(edited.text(), "").hosts}
    assert (found["gpu04"].slots, found["gpu04"].port, found["gpu06"].address) == (8, 9, "10.0.0.6")
    assert found["gpu05"].groups == ("gpu",)
    assert comments_lost(edited.text()) == []


HOSTFILE = "# mine\n\na slots=4  # first\n  u@b:2\ngpu[1-3] slots=8 port=2222 # range\nc\n"


def hostfile(text: str = HOSTFILE) -> HostfileDocument:
    return HostfileDocument(text, "hosts", "hostfile")


def read_back(document: HostfileDocument, folder: Path) -> Inventory:
    path = folder / "hosts"
    path.write_text(document.text())
    return read_inventory(path)


def test_hostfiles_are_edited_line_by_line(tmp_path: Path) -> None:
    edited = hostfile()
    edited.add(["d", "e[1-2]"], parse_settings(["slots=2", "user=x", "port=7"]))
    edited.set(["a"], {"slots": 5})
    edited.set(["b"], {"user": "v"})
    edited.set(["gpu[1-3]"], {"slots": 9})
    edited = hostfile(edited.text())
    edited.remove(["gpu2", "c"])
    assert edited.text() == (
        "# mine\n\na slots=5  # first\n  v@b slots=2\ngpu1 slots=9 port=2222 # range\ngpu3 slots=9 port=2222 # range\n"
        "ssh://x@d:7 slots=2\nssh://x@e1:7 slots=2\nssh://x@e2:7 slots=2\n"
    )
    assert [host.name for host in read_back(edited, tmp_path).hosts] == ["a", "b", "gpu1", "gpu3", "d", "e1", "e2"]


@pytest.mark.parametrize(
    ("format_name", "text", "targets", "words", "expected"),
    [
        (
            "hostfile",
            "n[1-3]-ib slots=8 # r\n",
            ["n2-ib"],
            ["slots=4"],
            "n1-ib slots=8 # r\nn2-ib slots=4 # r\nn3-ib slots=8 # r\n",
        ),
        ("hostfile", "n[1-2]:2\n", ["n[1-2]"], ["slots=3"], "n[1-2] slots=3\n"),
        ("hostfile", "n[1-2]:2\n", ["n1"], ["user=u"], "u@n1 slots=2\nn2:2\n"),
        ("openmpi", "a slots = 2 max_slots=4 # x\n", ["a"], ["slots=3"], "a slots = 3 max_slots=4 # x\n"),
        ("hostfile", "a slots=2 max-slots=4 # x\n", ["a"], ["max_slots=8"], "a slots=2 max-slots=8 # x\n"),
        ("hostfile", "a slots=2\n", ["a"], ["max_slots=8"], "a max_slots=8 slots=2\n"),
        (
            "openmpi",
            "// x\na // slots=9\nb//c\nb // d\n",
            ["a", "b"],
            ["slots=3"],
            "// x\na slots=3 // slots=9\nb slots=3//c\n// d\n",
        ),
        ("openmpi", "a username=x\n", ["a"], ["user=y"], "a username=y\n"),
        ("openmpi", "b\na\nb # again\nb\n", ["b"], ["slots=4"], "b slots=4\na\n# again\n"),
        ("openmpi", "b\nb\n", ["b"], ["user=u"], "u@b\nu@b\n"),
        ("mpich", "a:2 ifname=ib0\na # x\n", ["a"], ["slots=4"], "a:4 ifname=ib0\n# x\n"),
        ("mpich", "a:2 ifname=ib0\na\n", ["a"], ["user=u"], "a:2 user=u ifname=ib0\na user=u\n"),
        ("horovod", "a:2\n", ["a"], ["slots=4"], "a slots=4\n"),
        ("pbs", "a\nb # x\na\n", ["a"], ["slots=1"], "a\nb # x\n"),
        ("pbs", "a\nb # x\nb\n", ["b"], ["slots=3"], "a\nb # x\nb\nb\n"),
    ],
)
def test_each_dialect_of_hostfiles_is_edited_in_its_own_words(
    format_name: str, text: str, targets: list[str], words: list[str], expected: str
) -> None:
    edited = open_document(text, "hosts", format_name)
    edited.set(targets, parse_settings(words))
    assert edited.text() == expected


def test_a_short_list_gets_tables_when_one_of_its_hosts_gets_a_setting() -> None:
    edited = TomlDocument('hosts = ["a", "b[1-3]"] # mine\n', "i.toml")
    edited.set(["b2"], {"port": 5})
    text = edited.text()
    assert [(host.name, host.port) for host in read(text, "").hosts] == [
        ("a", None),
        ("b1", None),
        ("b2", 5),
        ("b3", None),
    ]
    assert "# mine" in text


@pytest.mark.parametrize(
    "text",
    [
        "[hosts.a]\n[groups.g]\nhosts = ['c', 'd[1-3]']\n",
        "hosts = ['a']\n[groups]\ng = ['c', 'd[1-3]']\n",
        "[hosts.a]\n[groups.h]\nhosts = ['c']\n[groups.g]\nhosts = ['d[1-3]']\n",
    ],
)
def test_a_group_goes_and_its_hosts_stay(text: str) -> None:
    edited = TomlDocument(text, "i.toml")
    edited.remove(["@g"])
    assert hosts(edited.text()) == ["a", "c", "d1", "d2", "d3"]
    assert "g" not in {group.name for group in read(edited.text(), "").groups}


@pytest.mark.parametrize("name", ["c", "d1", "d2", "d3"])
def test_hosts_that_only_groups_name_stay_in_order_when_they_get_settings(name: str) -> None:
    text = "[hosts.a]\n[groups.g]\nhosts = ['c', 'd[1-3]']\n"
    edited = TomlDocument(text, "i.toml")
    edited.set([name, "d3"], {"port": 5})
    assert hosts(edited.text()) == hosts(text)


@pytest.mark.parametrize(
    "work",
    [
        lambda edited: edited.add(["a"], {}),
        lambda edited: edited.add(["x"], {"address": "10.0.0.1"}),
        lambda edited: edited.add(["x"], {}, ["group"]),
        lambda edited: edited.set(["x"], {"slots": 1}),
        lambda edited: edited.set(["gpu4"], {"slots": 1}),
        lambda edited: edited.set(["a"], {"workdir": "/"}),
        lambda edited: edited.remove(["x"]),
    ],
)
def test_what_a_hostfile_cannot_hold_is_refused(work: object) -> None:
    assert callable(work)
    with pytest.raises(InventoryError, match=r"hosts"):
        work(hostfile())
