"""Files of variables, as `-x @FILE` reads them."""

from pathlib import Path

import pytest

from mnspawn.errors import UsageError
from mnspawn.plan.launch_plan import MASK, Forwarded, HostContext, LaunchSpec, Program, build
from mnspawn.plan.layout import Site, assign
from mnspawn.settings.table import resolve

CONTENT = """\ufeff# secrets
A=b
  export B = two words   # a comment
C='$as "it" is # here' # and there
D="a\\tb\\n\\"q\\" \\$x \\\\ \\d
second line"

E=
F=x#y=z "
EMPTY='' # nothing
HERE
A=last
pass.word-2=$ecret$
"""


def given(tmp_path: Path, content: str | bytes, **environ: str) -> dict[str, str]:
    path = tmp_path / "a.env"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return dict(resolve({"env": (f"@{path}", "Z=z")}, environ).env)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_says_what_env_files_say(tmp_path: Path, ends: str) -> None:
    found = given(tmp_path, CONTENT.replace("\n", ends), HERE="ours")
    assert found == {
        "A": "last", "B": "two words", "C": '$as "it" is # here', "D": 'a\tb\n"q" $x \\ \\d\nsecond line', "E": "",
        "F": 'x#y=z "', "EMPTY": "", "HERE": "ours", "pass.word-2": "$ecret$", "Z": "z",
    }  # fmt: skip
    assert isinstance(found["HERE"], Forwarded)


def test_values_arrive_byte_for_byte(tmp_path: Path) -> None:
    assert given(tmp_path, b"A='\xff\xe9'\nB=\xc3\xbc")["A"].encode("utf-8", "surrogateescape") == b"\xff\xe9"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("A=b\n  =x\n", "a.env:2:3: expected the name of a variable, found '='"),
        ("1A=b\n", "a.env:1:1: expected the name of a variable, found '1'"),
        ("A=b\nB c\n", "a.env:2:3: expected = after B, found something else"),
        ("A='x' y\n", "a.env:1:7: expected the end of the line after the value of A, found something else"),
        ("A=b\nB = \"x\n", "a.env:2:5: expected a \" at the end of the value of B, found the end of the file"),
        ("A=x${HOME}\n", "a.env:1:4: expected the value of A as it is: nothing in it is replaced, found ${"),
        ('A="x\ny$(pwd)"\n', "a.env:2:2: expected the value of A as it is: nothing in it is replaced, found $("),
        ("A=\0\n", "a.env:1:3: expected text without NUL characters as the value of A, found one"),
        ("A=b\nNOT_HERE\n", "a.env:2:1: expected NOT_HERE to be set in our own environment, found it unset"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_told_with_its_place_and_without_its_value(
    tmp_path: Path, content: str, told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        given(tmp_path, content)
    assert told in str(caught.value)
    assert caught.value.place == "--env"


@pytest.mark.parametrize("name", ["no-such-file", ""])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"can't read .*(No such file|Is a directory)"):
        resolve({"env": (f"@{tmp_path}/{name}",)}, {})


def test_a_settings_file_names_files_beside_it_and_arguments_win(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A=1\nB=2\n")
    (tmp_path / "s.toml").write_text('env = ["@a.env", "C=3"]\n')
    found = dict(resolve({"env": ("A=mine",)}, {}, tmp_path / "s.toml").env)
    assert found == {"A": "mine", "B": "2", "C": "3"}
    assert dict(resolve({}, {"MNSPAWN_ENV": f"@{tmp_path}/a.env C=3"}).env) == {"A": "1", "B": "2", "C": "3"}


def test_values_from_a_file_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("PLAIN=hidden\n")
    env = resolve({"env": (f"@{tmp_path}/a.env", "OPEN=seen")}, {}).env
    launch = build(
        LaunchSpec("r", Program("script", "t.py"), env=env), assign([Site("h", "1.2.3.4", "", (1,))], 2, 3),
        [HostContext("python3", "/r", "/")],
    )  # fmt: skip
    shown = launch.describe(reveal=False)["pods"][0]["trainers"][0]["env"]
    assert (shown["PLAIN"], shown["OPEN"]) == (MASK, "seen")
    assert launch.pods[0].env["PLAIN"] == "hidden"
