"""One followed file: its last lines, what comes, rotation and truncation."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn_agent.posix.files.spool import last_lines
from mnspawn_agent.posix.link import tailer
from mnspawn_agent.posix.link.loop import Wire
from mnspawn_agent.posix.link.tailer import FollowedFile


def opened(path: Path, content: bytes) -> FollowedFile:
    path.write_bytes(content)
    followed = FollowedFile(0, str(path))
    assert followed.open(0)
    return followed


LINES = st.lists(st.sampled_from([b"\n", b"a", b"bcd\n", b"x" * 9]), max_size=30).map(b"".join)


@given(gone=LINES, content=LINES, count=st.integers(0, 12), block=st.integers(1, 20))
def test_the_last_lines_begin_where_tail_says(
    gone: bytes, content: bytes, count: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(gone + content)
    with path.open("rb") as file:
        start = last_lines(file.fileno(), len(gone + content), count, len(gone), block) - len(gone)
    lines = content.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    assert content[start:] == b"".join(ended[max(0, len(ended) - count) :] if count else [])


def test_bytes_are_read_once_and_counted(tmp_path: Path) -> None:
    followed = opened(tmp_path / "f", b"abc")
    assert (followed.read(2), followed.read(9), followed.read(9)) == (b"ab", b"c", b"")
    with (tmp_path / "f").open("ab") as file:
        file.write(b"def")
    assert (followed.read(9), followed.offset, followed.position) == (b"def", 6, 6)
    followed.close()


def test_a_replaced_file_is_noticed_and_a_missing_one_awaited(tmp_path: Path) -> None:
    followed = opened(tmp_path / "f", b"old")
    os.rename(tmp_path / "f", tmp_path / "f.1")
    assert not followed.has_been_replaced()
    (tmp_path / "f").write_bytes(b"new")
    assert followed.has_been_replaced()
    assert followed.read(9) == b"old"
    assert followed.open(0)
    assert (followed.read(9), followed.offset, followed.position) == (b"new", 6, 3)
    followed.close()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "", "nothing"):
        assert not FollowedFile(0, str(tmp_path / name)).open(0)


def test_files_that_are_gone_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer, "MAX_FILES", 3)
    (theirs, ours), (nowhere_in, nowhere_out) = os.pipe(), os.pipe()
    following = tailer.Tailer(Wire(theirs, nowhere_out), {"version": "x", "facts": {}, "cached": True})
    following._wanted = {"patterns": [f"{tmp_path}/*.log"], "lines": None, "resume": []}
    for day in range(20):  # a log for each day, the last two are kept
        (tmp_path / f"day{day:02d}.log").write_bytes(b"text\n")
        if day >= 2:
            (tmp_path / f"day{day - 2:02d}.log").unlink()
        following._look_for_files()
        for followed in following._files.values():
            followed.read(100)
        assert str(tmp_path / f"day{day:02d}.log") in following._files
    numbers = [followed.number for followed in following._files.values()]
    assert len(set(numbers)) == len(numbers) <= 3
    assert not following._is_full
    for followed in following._files.values():
        followed.close()
    for fd in (theirs, ours, nowhere_in, nowhere_out):
        os.close(fd)
