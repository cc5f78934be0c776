"""What hosts say, in messages of ours: on one line, bounded, and nothing that a terminal would obey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.bootstrap.startup import hint_for, likely_file
from mnspawn.quoting import LONGEST, quoted, readable


@given(st.lists(st.binary(max_size=2000), max_size=4))
def test_whatever_was_said_is_printable_and_short(said: list[bytes]) -> None:
    text = quoted(*said)
    assert text.isprintable()
    assert len(text) < LONGEST + 50


def test_lines_stand_side_by_side_without_frames_and_colours() -> None:
    said = b"\x1b[1;31m*********\r\n*  closed\x1b[0m\tfor all *\r\n\r\n*********\n\x1b]0;title\x07bye\n"
    assert readable(said) == "* closed for all * | bye"


def test_the_last_words_are_kept_of_each_part() -> None:
    assert quoted("noise " * 1000 + "out", "noise " * 1000 + "err").count("...noise") == 2
    assert quoted("noise " * 1000 + "out", "noise " * 1000 + "err").endswith("noise err'")


def test_nothing_is_quoted_where_nothing_was_said() -> None:
    assert quoted("", b"\r\n", "-----\n") == ""


@pytest.mark.parametrize(
    ("said", "file"),
    [
        ("/root/.bashrc: line 3: module: command not found", "/root/.bashrc"),
        ("/etc/profile.d/lmod.sh: line 3: x", "/etc/profile.d/lmod.sh"),
        ("~/.config/fish/config.fish (line 1):", "~/.config/fish/config.fish"),
        ("bash: line 1: x: not found", "~/.bashrc"),
        ("welcome | fish: Unknown command", "~/.config/fish/config.fish"),
        ("-bash: x: not found", "~/.bashrc"),
    ],
)
def test_the_file_is_the_one_that_the_shell_speaks_of(said: str, file: str) -> None:
    assert likely_file(said) == file


@pytest.mark.parametrize("said", ["", "welcome to rbash", "see /var/www/profile.html"])
def test_without_a_word_of_it_all_are_named(said: str) -> None:
    for file in ("~/.bashrc (bash)", "~/.zshenv (zsh)", "~/.cshrc (tcsh)", "~/.config/fish/config.fish (fish)"):
        assert file in hint_for(said, has_ended=True)
        assert file in hint_for(said, has_ended=False)
