"""Edits of files in every format: what was asked for and nothing else, with every comment and every unknown key."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_inventory import Inventory, InventoryError, read_inventory
from mnspawn_inventory.assign import parse_settings
from mnspawn_inventory.editors import Document, open_document

INI = """\
# ## my cluster
lone ansible_user=me   # not in a group

[gpu]   # the fast ones
gpu[01:04] ansible_host=10.0.0.1 http=80  # many; "quotes' in a comment
; an old-style comment
special colour='deep red' ansible_port=2222	# mine

[gpu:vars]
# about all of them
ansible_user=train
ntp = a b

[cluster:children]
gpu   # first

[cluster:vars]
mnspawn_env={'A': '1'}
"""
YAML = """\
---
# my cluster
all:
  vars: {ntp: "a b"}   # for all
  hosts:
    lone: {ansible_user: me}   # not in a group
  children:
    cluster:
      vars:
        mnspawn_env:
          A: "1"   # inside
      children:
        gpu:   # the fast ones
          vars:
            # about all of them
            ansible_user: train
          hosts:
            gpu[01:04]:
              ansible_host: 10.0.0.1
              # many
              http: 80
            special: {colour: deep red, ansible_port: 2222}   # mine

            # behind a blank line
# the end
"""
SSH = """\
# my hosts
AddKeysToAgent yes   # global

Host lone   # not shared
    User me
    # in the middle
    LocalForward 8080 localhost:80
Host gpu01 gpu02 "gpu03" gpu04   # the fast ones
  HostName=10.0.0.1   # one gate
# special
Host special
\tPort 2222

# patterns
Host gpu*
    User train
Match host nobody
    User nobody
# the end
"""
OWN_JSON = """\
{
    "hosts": [
        {"name": "lone", "user": "me", "slots": null, "x-mine": [1.50, "é"]},
        {"name": "gpu01", "address": "10.0.0.1", "groups": ["cluster", "gpu"]},
        {"name": "gpu02", "address": "10.0.0.1", "groups": ["cluster", "gpu"]},
        {"name": "gpu03", "address": "10.0.0.1", "groups": ["cluster", "gpu"]},
        {"name": "gpu04", "address": "10.0.0.1", "groups": ["cluster", "gpu"]},
        {"name": "special", "port": 2222, "groups": ["cluster", "gpu"], "env": {"A": "1"}}
    ],
    "groups": [
        {"name": "gpu", "hosts": ["gpu01", "gpu02", "gpu03", "gpu04", "special"], "children": []},
        {"name": "cluster", "hosts": ["gpu01", "gpu02", "gpu03", "gpu04", "special"], "children": ["gpu"]}
    ]
}
"""
ANSIBLE_JSON = """\
{
\t"ungrouped": {"hosts": ["lone"]},
\t"gpu": {"hosts": ["gpu01", "gpu02", "gpu03", "gpu04", "special"], "vars": {"ansible_user": "train", "ntp": "a b"}},
\t"cluster": {"children": ["gpu"]},
\t"_meta": {"hostvars": {"lone": {"ansible_user": "me"}, "special": {"ansible_port": 2222, "colour": "deep red"}}}
}
"""
TEXTS = {
    "ansible-ini": INI,
    "ansible-yaml": YAML,
    "ssh-config": SSH,
    "json": OWN_JSON,
    "ansible-json": ANSIBLE_JSON,
}
NAMES = ["lone", "gpu01", "gpu02", "gpu03", "gpu04", "special"]


def edited(format_name: str, *edits: Sequence[object], text: str | None = None) -> str:
    """The text after edits, each with a document of its own: ("add", targets, words, groups)."""
    text = TEXTS[format_name] if text is None else text
    for kind, targets, *rest in edits:
        document = open_document(text, "file", format_name)
        words = [parse_settings(rest[0])] if rest else []  # type: ignore[arg-type]  # words
        getattr(document, str(kind))(str(targets).split(), *words, *rest[1:])
        text = document.text()
    return text


def read(format_name: str, text: str) -> Inventory:
    return open_document(text, "file", format_name).inventory


def hosts(format_name: str, text: str) -> dict[str, tuple[object, ...]]:
    return {
        host.name: (host.address, host.user, host.port, host.slots, dict(host.env), host.groups)
        for host in read(format_name, text).hosts
    }


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """What is gone and what is new, in order."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_an_ini_is_edited_in_its_lines_only() -> None:
    text = edited("ansible-ini", ("set", "special", ["port=22", "user=root", "env.B=2"]))
    assert changed_lines(INI, text) == (
        ["special colour='deep red' ansible_port=2222\t# mine"],
        ["special colour='deep red' ansible_port=22 ansible_user=root mnspawn_env=\"{'A': '1', 'B': '2'}\"\t# mine"],
    )
    text = edited("ansible-ini", ("set", "gpu[01-04]", ["address=", "slots=8"]))
    assert "gpu[01:04] http=80 mnspawn_slots=8  # many; \"quotes' in a comment\n" in text
    text = edited("ansible-ini", ("set", "gpu02", ["slots=4"]))
    assert changed_lines(INI, text) == ([], ["gpu02 mnspawn_slots=4"])
    text = edited("ansible-ini", ("set", "@gpu @cluster @all", ["user=x", "env.A="]))
    assert changed_lines(INI, text)[0] == ["ansible_user=train", "mnspawn_env={'A': '1'}"]
    assert set(changed_lines(INI, text)[1]) == {"ansible_user=x", "[all:vars]"}


def test_a_yaml_is_edited_in_its_lines_only() -> None:
    text = edited("ansible-yaml", ("set", "special", ["port=22", "user=root"]))
    assert changed_lines(YAML, text) == (
        ["            special: {colour: deep red, ansible_port: 2222}   # mine"],
        ["            special: {colour: deep red, ansible_port: 22, ansible_user: root}   # mine"],
    )
    text = edited("ansible-yaml", ("set", "gpu[01-04]", ["address=", "slots=8"]))
    assert changed_lines(YAML, text) == (["              ansible_host: 10.0.0.1"], ["              mnspawn_slots: 8"])
    text = edited("ansible-yaml", ("set", "gpu02", ["slots=4"]))
    assert changed_lines(YAML, text) == ([], ["            gpu02:", "              mnspawn_slots: 4"]) or changed_lines(
        YAML, text
    ) == ([], ["            gpu02: {mnspawn_slots: 4}"])
    text = edited("ansible-yaml", ("set", "@gpu", ["user=x"]), ("set", "@cluster", ["env.B=2"]))
    assert changed_lines(YAML, text)[0] == ["            ansible_user: train"] or "A:" in text


def test_an_ssh_config_is_edited_in_its_lines_only() -> None:
    text = edited("ssh-config", ("set", "special", ["port=22", "user=root"]))
    assert changed_lines(SSH, text) == (["\tPort 2222"], ["\tUser root", "\tPort 22"])
    text = edited("ssh-config", ("set", "lone", ["user="]))
    assert changed_lines(SSH, text) == (["    User me"], [])
    text = edited("ssh-config", ("set", "gpu02", ["port=5"]))
    assert changed_lines(SSH, text) == ([], ["Host gpu01", "Host gpu02", "    Port 5"])
    assert hosts("ssh-config", text)["gpu02"][:3] == ("10.0.0.1", "train", 5)
    text = edited("ssh-config", ("remove", "gpu03 lone"))
    assert "Host gpu01 gpu02 gpu04   # the fast ones\n  HostName=10.0.0.1   # one gate\n" in text
    text = edited("ssh-config", ("add", "new[1-2]", ["address=10.0.0.[8-9]", "user=u"]))
    assert "\tPort 2222\n\nHost new1\n    HostName 10.0.0.8\n    User u\nHost new2\n" in text


def test_json_keeps_keys_indentation_and_letters() -> None:
    text = edited("json", ("set", "lone", ["slots=4", "labels.rack=r1"]), ("set", "special", ["env.A="]))
    document = json.loads(text)
    assert document["hosts"][0] == {
        "name": "lone",
        "user": "me",
        "slots": 4,
        "x-mine": [1.5, "é"],
        "labels": {"rack": "r1"},
    }
    assert '\n            "x-mine": [\n' in text
    assert "é" in text
    text = edited("ansible-json", ("set", "@gpu gpu02", ["user=x"]))
    assert json.loads(text)["gpu"]["vars"] == {"ansible_user": "x", "ntp": "a b"}
    assert json.loads(text)["_meta"]["hostvars"]["gpu02"] == {"ansible_user": "x"}
    assert '\n\t\t"hosts": [\n' in text
    compact = '{"hosts":[{"name":"a"}]}'
    assert edited("json", ("add", "b", []), text=compact) == '{"hosts":[{"name":"a"},{"name":"b"}]}'


@pytest.mark.parametrize("format_name", TEXTS)
def test_the_same_edits_give_the_same_hosts_in_every_format(format_name: str) -> None:
    has_slots = format_name != "ssh-config"
    word = "slots=8" if has_slots else "port=8"
    text = edited(
        format_name,
        ("add", "new[1-3]", [word, "address=10.1.0.[1-3]"], *([["gpu", "fresh"]] if has_slots else [])),
        ("set", "new2 special", ["user=root"]),
        ("set", "new[1-3]", [word.split("=")[0] + "=4"]),
        ("remove", "new3 gpu02"),
        ("set", "gpu03", ["address=10.9.9.9"]),
    )
    found = hosts(format_name, text)
    assert sorted(found) == sorted([*(name for name in NAMES if name != "gpu02"), "new1", "new2"])
    assert [name for name in found if name in NAMES] == [name for name in NAMES if name != "gpu02"]
    assert (found["new1"][0], found["new2"][0], found["gpu03"][0]) == ("10.1.0.1", "10.1.0.2", "10.9.9.9")
    assert (found["new2"][1], found["special"][1]) == ("root", "root")
    assert found["new1"][3 if has_slots else 2] == 4
    if has_slots:
        groups = {group.name: group.hosts for group in read(format_name, text).groups}
        assert {"new1", "new2", "gpu01", "special"} <= set(groups["gpu"])
        assert set(groups["fresh"]) == {"new1", "new2"}
    assert "#" not in TEXTS[format_name] or comments_lost(TEXTS[format_name], text) == []


def comments_lost(before: str, after: str) -> list[str]:
    found = [line.partition("#")[2] for line in before.splitlines() if "#" in line]
    return [comment for comment in found if f"#{comment}" not in after]


@pytest.mark.parametrize("format_name", ["ansible-ini", "ansible-json", "json"])
def test_a_group_goes_and_its_hosts_stay_where_they_were(format_name: str) -> None:
    text = edited(format_name, ("remove", "@gpu"))
    found = hosts(format_name, text)
    assert list(found) == NAMES
    assert all("gpu" not in str(host[-1]) for host in found.values())


def test_hosts_of_a_yaml_group_are_not_lost_with_it() -> None:
    with pytest.raises(InventoryError, match="the hosts of this group are written nowhere else: found '@gpu'"):
        edited("ansible-yaml", ("remove", "@gpu"))
    text = edited("ansible-yaml", ("add", "x y", [], ["new", "gpu"]), ("remove", "@new"))
    assert "new:" not in text
    assert "x" in hosts("ansible-yaml", text)


@pytest.mark.parametrize(
    "format_name", ["ansible-ini", "ansible-yaml", "ssh-config", "json", "toml", "hostfile", "pbs"]
)
def test_a_new_file_is_begun(format_name: str) -> None:
    groups = [["g"]] if format_name in ("ansible-ini", "ansible-yaml", "json", "toml") else []
    text = edited(format_name, ("add", "b a", [], *groups), ("add", "c", []), text="")
    assert [host.name for host in read(format_name, text).hosts] in (["b", "a", "c"], ["c", "b", "a"])
    if groups:
        assert [(group.name, group.hosts) for group in read(format_name, text).groups] == [("g", ("b", "a"))]


REFUSED: list[tuple[str, str, Sequence[object], str]] = [
    # what comes from elsewhere
    ("ansible-ini", INI, ("set", "gpu01", ["address="]), r"address of gpu01 would not be .* it comes from file:5:"),
    ("ansible-ini", INI, ("set", "special", ["user="]), "user of special would not be .* it comes from file:11:14"),
    ("ansible-yaml", YAML, ("set", "special", ["user="]), "it comes from file:16:27"),
    ("ssh-config", SSH, ("set", "gpu01", ["user="]), "it comes from file:16:10"),
    ("ssh-config", "User all\nHost a\n", ("set", "a", ["user=b"]), "user of a would not be .* it comes from file:1:6"),
    # what the format can't hold
    ("ssh-config", SSH, ("set", "lone", ["slots=4"]), "can't hold slots"),
    ("ssh-config", SSH, ("add", "x", [], ["g"]), "can't hold groups"),
    ("json", OWN_JSON, ("set", "@gpu", ["user=x"]), "can't hold values of groups"),
    ("pbs", "a\n", ("set", "a", ["user=x"]), "can't hold user"),
    ("deepspeed", "a slots=2\n", ("set", "a", ["port=2222"]), "can't hold port"),
    # what would change more
    ("ansible-yaml", "g: {hosts: {a: &x {k: 1}, b: *x}}\n", ("set", "a", ["port=1"]), "port of b would change, too"),
    ("ansible-yaml", "g: {hosts: {a: &x {k: 1}, b: *x}}\n", ("set", "b", ["port=1"]), "alias|change"),
    ("ansible-yaml", "g: {hosts: a}\n", ("add", "b", [], ["g"]), "can't be edited as it is written"),
    # who is not there
    ("ansible-ini", INI, ("set", "nope", ["port=1"]), "no such host"),
    ("ansible-yaml", YAML, ("remove", "@nope"), "no such group"),
    ("ssh-config", SSH, ("add", "lone", []), "the host is there already"),
    ("ansible-ini", INI, ("add", "x", [], ["all"]), "every host is in the group all"),
    ("slurm", "a,b", ("add", "c", []), "are read, not edited"),
]


@pytest.mark.parametrize(("format_name", "text", "edit", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_edited_is_told(format_name: str, text: str, edit: Sequence[object], message: str) -> None:
    with pytest.raises(InventoryError, match=message) as raised:
        edited(format_name, edit, text=text)
    assert "\n" not in str(raised.value)


def test_a_value_of_host_vars_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "a.yml").write_text("ansible_user: x\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("ansible_port: 1\n")
    document = open_document("a\n", str(tmp_path / "hosts"), "ansible-ini")
    document.set(["a"], {"user": "y"})
    with pytest.raises(InventoryError, match=r"it comes from .*host_vars/a\.yml:1:15"):
        document.text()
    document = open_document("a\n", str(tmp_path / "hosts"), "ansible-ini")
    document.set(["@all"], {"port": 2})
    with pytest.raises(InventoryError, match=r"it comes from .*group_vars/all\.yml:1:15"):
        document.text()


def test_hosts_of_an_included_ssh_config_belong_to_that_file(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host far\n  Port 7\n")
    text = f"Include {tmp_path}/more\nHost near\n"
    with pytest.raises(InventoryError, match=r"more:1:6: the host is in a file that this one includes: found 'far'"):
        edited("ssh-config", ("set", "far", ["port=8"]), text=text)
    with pytest.raises(InventoryError, match=r"the host would still be there: it comes from .*more:1:6: found 'far'"):
        edited("ssh-config", ("remove", "far"), text=text)
    assert edited("ssh-config", ("set", "near", ["port=8"]), text=text).endswith("Host near\n    Port 8\n")


TARGETS = ["lone", "gpu01", "gpu[01-02]", "gpu[01-04]", "gpu[02,04]", "special", "new[1-2]", "new1", "x"]
WORDS = [["user=u1"], ["user=u2", "port=7"], ["port="], ["address=10.5.5.5"], ["jump=a,b:22"], ["identity=~/.ssh/a b"]]
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TARGETS), st.sampled_from(WORDS)),
        st.tuples(st.just("set"), st.sampled_from(TARGETS), st.sampled_from(WORDS)),
        st.tuples(st.just("remove"), st.sampled_from(TARGETS)),
    ),
    max_size=6,
)


@pytest.mark.parametrize("format_name", TEXTS)
@settings(max_examples=80)
@given(edits=EDITS)
def test_any_sequence_of_edits_does_what_it_says(format_name: str, edits: list[tuple[object, ...]]) -> None:
    text = TEXTS[format_name]
    for edit in edits:
        before = hosts(format_name, text)
        try:
            text = edited(format_name, edit, text=text)
        except InventoryError:
            continue
        after = hosts(format_name, text)
        names = Document("", "", "toml")._asked(str(edit[1]), {}).names
        assert isinstance(names, tuple)
        untouched = [name for name in before if name not in names]
        assert [name for name in after if name not in names] == untouched
        assert all(after[name] == before[name] for name in untouched)
        assert all((name in after) == (edit[0] != "remove") for name in names)
        assert comments_lost(kept_comments(format_name), text) == []


def kept_comments(format_name: str) -> str:
    """The comments that stand on lines of their own, outside of what is removed with a host."""
    lines = TEXTS[format_name].splitlines()
    inside = ("# many", "# in the middle")
    return "\n".join(line for line in lines if line.lstrip().startswith("#") and line.strip() not in inside)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.ini", "[g]\na ansible_port=1\n"),
        ("x.yml", "g:\n  hosts:\n    a: {ansible_port: 1}\n"),
        ("x.json", '{"hosts": [{"name": "a", "port": 1}]}\n'),
        ("ssh_config", "Host a\n  Port 1\n"),
        ("hosts", "ssh://a:1\n"),
        ("x.toml", "[hosts.a]\nport = 1\n"),
    ],
)
@pytest.mark.parametrize("way", ["crlf", "bom", "no newline", "all", "mixed"])
def test_line_ends_and_marks_stay_as_they_are(name: str, text: str, way: str, tmp_path: Path) -> None:
    from mnspawn_inventory.target import change

    content = text.encode()
    content = content.rstrip(b"\n") if way in ("no newline", "all") else content
    content = content.replace(b"\n", b"\r\n") if way in ("crlf", "all") else content
    content = b"\xef\xbb\xbf" + content if way in ("bom", "all") else content
    if way == "mixed":
        content = content.replace(b"\n", b"\r\n", 1) + b"\n"
    path = tmp_path / name
    path.write_bytes(content)
    assert change(path, lambda document: document.set(["a"], {"port": 2})) == ["a"]
    assert change(path, lambda document: document.add(["b"], {"port": 3})) == ["b"]
    after = path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf") == content.startswith(b"\xef\xbb\xbf")
    assert (b"\r\n" in after) == (b"\r\n" in content)
    assert b"\r" not in after.replace(b"\r\n", b"")
    if b"\r\n" in content and way != "mixed":
        assert after.count(b"\r\n") == after.count(b"\n")
    assert [(host.name, host.port) for host in read_inventory(path).hosts] == [("a", 2), ("b", 3)]
