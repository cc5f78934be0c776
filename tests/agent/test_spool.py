import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Complete, Done, Exited, Started
from mnspawn_agent.posix import libc
from mnspawn_agent.posix.files.marks import Marks, MarkWriter
from mnspawn_agent.posix.files.spool import TAIL_LINES, Spool, Spools, tail_of
from tests.agent.live import Account, Live
from tests.support import wait_until


class Written:
    """A spool file and what a worker does with it."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self.path = path
        self.spool = Spool(0, 1, str(path))

    def append(self, text: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text)

    def cut_to(self, size: int) -> None:
        os.truncate(self.path, size)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path / "rank-0.out")
    yield written
    written.spool.close()


@pytest.fixture
def spools() -> Iterator[Spools]:
    spools = Spools()
    yield spools
    spools.close()


# -- one stream


def test_bytes_come_in_order_as_they_are_written(written: Written) -> None:
    assert (written.spool.read(10), written.spool.size) == (b"", 0)
    written.append(b"abcdef")
    assert (written.spool.read(4), written.spool.offset) == (b"abcd", 4)
    written.append(b"gh")
    assert (written.spool.read(100), written.spool.offset, written.spool.size) == (b"efgh", 8, 8)


def test_what_a_worker_writes_after_it_truncated_its_output_follows_what_came_before(written: Written) -> None:
    written.append(b"0123456789")
    written.spool.read(100)
    written.cut_to(0)
    written.append(b"new")
    assert (written.spool.read(100), written.spool.offset, written.spool.size) == (b"new", 13, 13)


def test_the_size_of_a_truncated_file_counts_what_was_sent(written: Written) -> None:
    written.append(b"0123456789")
    written.spool.read(100)
    written.cut_to(0)
    assert written.spool.size == 10
    written.append(b"new")
    assert written.spool.size == 13  # before anybody has read it: an exit tells the size first


def test_going_back_gives_the_same_bytes_again(written: Written) -> None:
    written.append(b"abcdef")
    written.spool.read(100)
    assert written.spool.rewind(2) == 0
    assert written.spool.read(100) == b"cdef"


def test_going_back_to_what_was_truncated_counts_what_is_gone(written: Written) -> None:
    written.append(b"0123456789")
    written.spool.read(100)
    written.cut_to(0)
    written.append(b"new")
    assert written.spool.rewind(4) == 6
    assert (written.spool.read(100), written.spool.offset) == (b"new", 13)


def test_nobody_can_go_forward_past_the_end(written: Written) -> None:
    written.append(b"abc")
    assert written.spool.rewind(99) == 0
    assert written.spool.offset == 3


# -- a cap


def test_a_capped_file_gives_its_oldest_blocks_back_and_keeps_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.out"
    path.write_bytes(bytes(range(256)) * 16384)  # 4 MiB
    spool = Spool(0, 1, str(path), cap=1 << 20, marks=MarkWriter(str(path)))
    before = path.stat().st_blocks
    spool.note_growth(1700000000.0)
    if not spool.hole:
        spool.close()
        pytest.skip("this file system makes no holes")
    assert (spool.hole, spool.size) == (3 << 20, 4 << 20)
    assert path.stat().st_blocks < before
    assert spool.read(4) == bytes([0, 1, 2, 3])
    assert spool.offset == (3 << 20) + 4
    assert spool.rewind(100) == (3 << 20) - 100
    spool.close()


def test_a_hole_is_noted_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank-0.out"
    path.write_bytes(b"x" * (4 << 20))
    noted: list[tuple[int, int]] = []

    def punch_hole(_: str, offset: int, count: int) -> bool:
        noted.append((offset + count, Marks(str(path)).hole))
        return True

    monkeypatch.setattr(libc, "punch_hole", punch_hole)
    spool = Spool(0, 1, str(path), cap=1 << 20, marks=MarkWriter(str(path)))
    spool.note_growth(1700000000.0)
    spool.close()
    assert noted[1:] == [(3 << 20, 3 << 20)]
    assert noted[0][0] > 4 << 20  # the question whether there can be holes: far behind the end


def test_a_file_system_without_holes_is_asked_once_and_nothing_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rank-0.out"
    path.write_bytes(b"x" * (4 << 20))
    asked: list[str] = []

    def punch_hole(path: str, offset: int, count: int) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr(libc, "punch_hole", punch_hole)
    spool = Spool(0, 1, str(path), cap=1 << 20, marks=MarkWriter(str(path)))
    spool.note_growth(1700000000.0)
    spool.note_growth(1700000001.0)
    assert (len(asked), spool.hole, Marks(str(path)).hole) == (1, 0, 0)
    spool.close()


# -- all streams


def add(spools: Spools, folder: Path, rank: int, text: bytes = b"") -> Path:
    path = folder / f"rank-{rank}.out"
    path.write_bytes(text)
    spools.add(Spool(rank, 1, str(path)))
    return path


def read_all(spools: Spools, count: int = 100) -> list[tuple[int, int, bytes]]:
    found = []
    while chunk := spools.next_chunk(count, lambda stream: count):
        found.append((chunk[0].rank, chunk[1], chunk[2]))
    return found


def test_ranks_take_turns(spools: Spools, tmp_path: Path) -> None:
    add(spools, tmp_path, 0, b"aaaa")
    add(spools, tmp_path, 1, b"bb")
    assert read_all(spools, 2) == [(0, 0, b"aa"), (1, 0, b"bb"), (0, 2, b"aa")]
    assert not spools.has_more


def test_a_stream_that_may_not_go_waits_and_holds_no_other_back(spools: Spools, tmp_path: Path) -> None:
    add(spools, tmp_path, 0, b"aaaa")
    path = tmp_path / "rank-0.err"
    path.write_bytes(b"why")
    spools.add(Spool(0, 2, str(path)))
    left = {1: 1, 2: 100}
    found = []
    while chunk := spools.next_chunk(100, left.__getitem__):
        found.append((chunk[0].stream, chunk[2]))
        left[chunk[0].stream] -= len(chunk[2])
    assert found == [(1, b"a"), (2, b"why")]
    assert spools.has_more
    assert not spools.can_go(left.__getitem__)
    left[1] = 2
    assert spools.can_go(left.__getitem__)
    assert read_all(spools, 2) == [(0, 1, b"aa"), (0, 3, b"a")]


def test_the_system_says_which_files_grow(spools: Spools, tmp_path: Path) -> None:
    add(spools, tmp_path, 0)
    path = add(spools, tmp_path, 1)
    read_all(spools)
    assert spools.inotify is not None
    assert spools.poll_interval is None
    path.write_bytes(b"more")
    spools.read_inotify()
    assert spools.has_more
    assert read_all(spools) == [(1, 0, b"more")]
    spools.read_inotify()  # nothing there is no error
    assert not spools.has_more


def test_where_the_system_says_nothing_files_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(libc, "inotify_open", refuse)
    spools = Spools()
    assert spools.poll_interval is None  # nothing to look at yet
    path = add(spools, tmp_path, 0)
    assert spools.poll_interval == 0.05
    path.write_bytes(b"x")
    spools.queue_all()
    assert read_all(spools) == [(0, 0, b"x")]
    spools.close()


def test_a_host_that_runs_out_of_watches_is_polled(
    spools: Spools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(spools, tmp_path, 0)

    def refuse(fd: int, path: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(libc, "inotify_watch", refuse)
    add(spools, tmp_path, 1, b"x")
    assert (spools.inotify, spools.poll_interval) == (None, 0.05)
    assert read_all(spools) == [(1, 0, b"x")]


def test_after_a_break_every_stream_goes_on_where_the_controller_is(spools: Spools, tmp_path: Path) -> None:
    add(spools, tmp_path, 0, b"abcdef")
    path = add(spools, tmp_path, 1, b"0123456789")
    read_all(spools)
    os.truncate(path, 0)
    path.write_bytes(b"new")
    gone = spools.rewind_all({(0, 1): 4, (1, 1): 7})
    assert [(spool.rank, offset, count) for spool, offset, count in gone] == [(1, 7, 3)]
    assert read_all(spools) == [(0, 4, b"ef"), (1, 10, b"new")]
    assert spools.sizes() == [[0, 1, 6], [1, 1, 13]]


# -- the end of stderr


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n\n  \n", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b" 10%\r 50%\r100%\r\ndone\r\n", ["100%", "done"]),
        (b"caf\xe9\n", ["caf\\xe9"]),
        ("größer\n".encode(), ["größer"]),
    ],
)
def test_the_last_lines_as_a_person_saw_them(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    (tmp_path / "err").write_bytes(content)
    assert tail_of(str(tmp_path / "err")) == lines


def test_the_tail_is_bounded_in_lines_and_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "err"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(10_000)))
    assert tail_of(str(path)) == [f"line {n}" for n in range(10_000 - TAIL_LINES, 10_000)]
    path.write_bytes(b"x" * 100_000)
    assert tail_of(str(path)) == ["x" * 16384]


def test_a_worker_that_removes_its_file_has_no_tail(tmp_path: Path) -> None:
    assert tail_of(str(tmp_path / "gone")) == []


# -- in a real agent


def test_a_worker_that_truncates_its_output_loses_nothing_that_it_writes_later(account: Account) -> None:
    script = 'echo first; until [ -e "$HOME/go" ]; do sleep 0.02; done; : > /dev/stdout; echo 2'
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script)
        agent.until_said(b"first\n")
        (account.home / "go").touch()
        agent.until_drained(0)
        agent.until_a(Complete)
        assert agent.text() == b"first\n2\n"
        agent.finish()


def test_a_worker_that_removes_the_run_folder_harms_itself_only(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", 'echo out; rm -rf "$HOME/.local"; echo more')
        assert agent.until_drained(0) == {0: 0}
        assert agent.text() == b"out\nmore\n"
        assert not agent.until_a(Exited).end.is_disk_full
        assert agent.until_a(Done).leftovers == ()
        assert agent.finish() == 0


def test_output_that_was_truncated_while_the_link_was_down_is_left_out(account: Account) -> None:
    script = 'until [ -e "$HOME/go" ]; do sleep 0.02; done; printf 0123456789; : > /dev/stdout; echo new'
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, orphan_grace=600.0)
        agent.until_a(Started)
        agent.cut()
        (account.home / "go").touch()
        wait_until(lambda: (account.pod / "rank-0.out").read_bytes() == b"new\n")
        with agent.come_back() as again:
            assert again.until_drained(0) == {0: 0}
            assert again.text() == b"new\n"
            again.until_a(Complete)
            assert again.finish() == 0
        assert agent.wait() == 0
