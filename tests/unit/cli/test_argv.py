"""Which words are ours and which are the program's."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.cli.argv import read, split
from mnspawn.errors import UsageError
from mnspawn.settings.table import OPTIONS

TABLE = {
    "--hosts": True,
    "-H": True,
    "--nproc-per-node": True,
    "--env": True,
    "-x": True,
    "--verbose": False,
    "-v": False,
    "--module": False,
    "-m": False,
    "--dry-run": False,
    "--json": False,
    "--ssh-config": True,
    "--help": False,
}
COMMANDS = ("hosts", "inventory", "ps")


def parts(*argv: str) -> tuple[str, list[str], list[str]]:
    line = split(argv, TABLE, COMMANDS)
    return line.command, list(line.options), list(line.words)


def test_everything_behind_the_script_is_the_programs() -> None:
    assert parts("--hosts", "a,b", "train.py", "--hosts", "--help", "--", "-x", "") == (
        "run",
        ["--hosts=a,b"],
        ["train.py", "--hosts", "--help", "--", "-x", ""],
    )


@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\0"), max_size=5) | st.sampled_from(["--", "-x", "run", "hosts"])
    )
)
def test_no_word_of_the_program_is_ever_looked_at(words: list[str]) -> None:
    assert parts("-v", "train.py", *words) == ("run", ["-v"], ["train.py", *words])
    assert parts("run", "-v", "train.py", *words) == ("run", ["-v"], ["train.py", *words])
    assert parts("-v", "--", *words) == ("run", ["-v"], words)


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert parts("train.py", "\udcff\udcfe")[2] == ["train.py", "\udcff\udcfe"]


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["--hosts=a"], ["--hosts=a"]),
        (["--hosts", "a"], ["--hosts=a"]),
        (["--hosts="], ["--hosts="]),
        (["--hosts", ""], ["--hosts="]),
        (["--hosts", "--dry-run"], ["--hosts=--dry-run"]),
        (["-H", "a"], ["-H", "a"]),
        (["-Ha"], ["-H", "a"]),
        (["-vx", "A=1"], ["-v", "-x", "A=1"]),
        (["-xA=-v"], ["-x", "A=-v"]),
        (["-vvm"], ["-v", "-v", "-m"]),
        (["--nproc_per_node", "4"], ["--nproc-per-node=4"]),
        (["--nproc_per_node=4"], ["--nproc-per-node=4"]),
        (["--env", "a_b=c_d"], ["--env=a_b=c_d"]),
    ],
)
def test_options_and_their_values(argv: Sequence[str], options: list[str]) -> None:
    assert parts(*argv, "train.py") == ("run", options, ["train.py"])


def test_run_is_the_default_and_its_name_counts_once() -> None:
    assert parts("run", "--dry-run", "train.py") == ("run", ["--dry-run"], ["train.py"])
    assert parts("--dry-run", "run", "train.py") == ("run", ["--dry-run"], ["train.py"])
    assert parts("run", "run") == ("run", [], ["run"])
    assert parts("run", "hosts") == ("run", [], ["hosts"])
    assert parts("--", "hosts") == ("run", [], ["hosts"])
    assert parts() == ("run", [], [])


def test_options_may_stand_before_a_commands_name() -> None:
    assert parts("--ssh-config", "hosts", "hosts", "check") == ("hosts", ["--ssh-config=hosts"], ["check"])


def test_taken_options_are_read_by_name() -> None:
    option_of = {flag: option for option in OPTIONS for flag in option.flags}
    taken = parts("-vv", "-x", "A=-v", "--env", "B=x=y", "-H", "a", "--hosts", "b=c", "--json", "x.py")[1]
    assert read(taken, option_of) == {"verbose": 2, "env": ("A=-v", "B=x=y"), "hosts": "b=c", "json": True}


def test_a_lone_dash_is_a_word() -> None:
    assert parts("-v", "-", "x") == ("run", ["-v"], ["-", "x"])


@pytest.mark.parametrize(
    ("argv", "place", "hint"),
    [
        (["--nope", "x"], "--nope", "--help"),
        (["--nproc", "4", "x"], "--nproc", "--nproc-per-node"),
        (["--nproc-per-nod=4", "x"], "--nproc-per-nod", "--nproc-per-node"),
        (["-np", "4", "x"], "-np", "--nproc-per-node"),
        (["-vq", "x"], "-q", "--help"),
        (["--nnodes", "2"], "--nnodes", "hosts"),
    ],
)
def test_an_unknown_option_is_named_with_what_was_probably_meant(argv: list[str], place: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parts(*argv)
    assert caught.value.place == place
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("argv", "place"), [(["--hosts"], "--hosts"), (["-v", "-H"], "-H"), (["--dry-run=yes"], "--dry-run")]
)
def test_a_value_that_is_missing_or_too_much_is_told(argv: list[str], place: str) -> None:
    with pytest.raises(UsageError) as caught:
        parts(*argv)
    assert caught.value.place == place
