"""Edits of TOML and of hostfiles: what was asked for and nothing else, with every comment."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_inventory import Inventory, InventoryError, read_inventory
from mnspawn_inventory.assign import parse_settings
from mnspawn_inventory.editors import EDITED, open_document
from mnspawn_inventory.formats import FORMATS
from mnspawn_inventory.formats.own import expand
from mnspawn_inventory.target import change

TOML = """\
# my cluster
[hosts.lone]   # not in a group
user = "me"

# many
[hosts."gpu[01-04]"]
# one gate
address = "10.0.0.1"
[hosts.special]   # mine
port = 2222

# the fast ones
[groups.gpu]
hosts = ["gpu[01-04]", "special"]   # all of them
[groups.cluster]
children = ["gpu"]
env = { A = "1" }
# the end
"""
HOSTFILE = """\
# my hosts
me@lone   # not shared

gpu[01-04] slots=8   # the fast ones
  # in the middle
special port=2222	# mine
# the end
"""
TEXTS = {"toml": TOML, "hostfile": HOSTFILE}
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


@pytest.mark.parametrize("format_name", TEXTS)
def test_the_same_edits_give_the_same_hosts_in_both_formats(format_name: str) -> None:
    is_toml = format_name == "toml"
    words, groups = (["address=10.1.0.[1-3]"], [["gpu", "fresh"]]) if is_toml else ([], [])
    text = edited(
        format_name,
        ("add", "new[1-3]", ["slots=8", *words], *groups),
        ("set", "new2 special", ["user=root"]),
        ("set", "new[1-3]", ["slots=4"]),
        ("remove", "new3 gpu02"),
        ("set", "gpu03", ["port=9"]),
    )
    found = hosts(format_name, text)
    assert list(found) == [*(name for name in NAMES if name != "gpu02"), "new1", "new2"]
    assert (found["new2"][1], found["special"][1], found["gpu03"][2]) == ("root", "root", 9)
    assert (found["new1"][3], found["new2"][3], found["gpu04"][2]) == (4, 4, None)
    if is_toml:
        members = {group.name: group.hosts for group in read(format_name, text).groups}
        assert (found["new1"][0], found["new2"][0]) == ("10.1.0.1", "10.1.0.2")
        assert {"new1", "new2", "gpu01", "special"} <= set(members["gpu"])
        assert set(members["fresh"]) == {"new1", "new2"}
    assert comments_lost(TEXTS[format_name], text) == []


def comments_lost(before: str, after: str) -> list[str]:
    found = [line.partition("#")[2] for line in before.splitlines() if "#" in line]
    return [comment for comment in found if f"#{comment}" not in after]


@pytest.mark.parametrize("format_name", ["toml", "hostfile", "pbs"])
def test_a_new_file_is_begun(format_name: str) -> None:
    groups = [["g"]] if format_name == "toml" else []
    text = edited(format_name, ("add", "b a", [], *groups), ("add", "c", []), text="")
    assert [host.name for host in read(format_name, text).hosts] == ["b", "a", "c"]
    assert [(group.name, group.hosts) for group in read(format_name, text).groups] == [("g", ("b", "a"))][: len(groups)]


REFUSED: list[tuple[str, str, Sequence[object], str]] = [
    # what comes from elsewhere
    (
        "toml",
        TOML,
        ("set", "special", ["env.A="]),
        r"env\.A of special would not be .* it comes from file:17:14: found '\*\*\*'",
    ),
    (
        "toml",
        TOML,
        ("set", "gpu01", ["address="]),
        "address of gpu01 would not be .* it comes from file:8:12: found '10",
    ),
    # what the format can't hold
    ("hostfile", HOSTFILE, ("set", "lone", ["address=b"]), "can't hold address"),
    ("hostfile", HOSTFILE, ("add", "x", [], ["g"]), "can't hold groups"),
    ("hostfile", HOSTFILE, ("set", "@all", ["user=x"]), "can't hold values of groups"),
    ("hostfile", HOSTFILE, ("remove", "@all"), "can't hold groups"),
    ("pbs", "a\n", ("set", "a", ["user=x"]), "can't hold user"),
    ("deepspeed", "a slots=2\n", ("set", "a", ["port=2222"]), "can't hold port"),
    # who is not there
    ("toml", TOML, ("set", "nope", ["port=1"]), "no such host"),
    ("toml", TOML, ("remove", "@nope"), "no such group"),
    ("hostfile", HOSTFILE, ("add", "lone", []), "the host is there already"),
    ("toml", TOML, ("add", "x", [], ["all"]), "every host is in the group all"),
]


@pytest.mark.parametrize(("format_name", "text", "edit", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_edited_is_told(format_name: str, text: str, edit: Sequence[object], message: str) -> None:
    with pytest.raises(InventoryError, match=message) as raised:
        edited(format_name, edit, text=text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("format_name", sorted({*FORMATS} - {*EDITED}))
def test_a_file_of_another_format_is_left_alone(format_name: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")
    with pytest.raises(
        InventoryError, match=f"hosts: files in the format {format_name} are read, not edited"
    ) as raised:
        change(path, lambda document: document.add(["b"], {}), format_name=format_name)
    assert f"mnspawn inventory import {path} --format {format_name} " in str(raised.value.hint)
    assert path.read_text() == "a\n"


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
        names = expand(str(edit[1]), None)
        untouched = [name for name in before if name not in names]
        assert [name for name in after if name not in names] == untouched
        assert all(after[name] == before[name] for name in untouched)
        assert all((name in after) == (edit[0] != "remove") for name in names)
        assert comments_lost(kept_comments(format_name), text) == []


def kept_comments(format_name: str) -> str:
    """The comments that stand on lines of their own, outside of what is removed with a host."""
    lines = TEXTS[format_name].splitlines()
    return "\n".join(line for line in lines if line.startswith("#") and line != "# one gate")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hosts", "ssh://a:1\n"),
        ("x.toml", "[hosts.a]\nport = 1\n"),
    ],
)
@pytest.mark.parametrize("way", ["crlf", "bom", "no newline", "all", "mixed"])
def test_line_ends_and_marks_stay_as_they_are(name: str, text: str, way: str, tmp_path: Path) -> None:
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
