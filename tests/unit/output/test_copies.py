"""Local copies: byte for byte, holes where bytes were lost, few files open, a full disk told once."""

import asyncio
import errno
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mnspawn.errors import UsageError
from mnspawn.events import Event, Notice, RunFinished, RunStarting, Stream, WorkerOutput, WorkerStarted
from mnspawn.output import copies
from mnspawn.output.copies import LocalCopies

OUT, ERR = Stream.STDOUT, Stream.STDERR


def output(rank: int, chunk: bytes, offset: int = 0, stream: Stream = OUT) -> WorkerOutput:
    return WorkerOutput(5.0, "a", rank, stream, offset, chunk)


def kept(folder: Path, events: Iterable[Event], world_size: int = 4) -> dict[str, bytes]:
    """The files of run r1 after these events."""
    listener = LocalCopies.open(folder)
    listener.on_event(Notice(1.0, None, "early"))
    listener.on_event(RunStarting(2.0, "r1", world_size, {}))
    for event in events:
        listener.on_event(event)
    asyncio.run(listener.aclose())
    assert listener.backlog == 0
    return {path.name: path.read_bytes() for path in (folder / "r1").iterdir()}


def test_every_stream_has_a_file_with_its_bytes(tmp_path: Path) -> None:
    raw = b"\xff\xfe\x00 10%\r20%\x1b[31m no end"
    files = kept(tmp_path / "logs" / "new", [output(3, raw[:7]), output(3, raw[7:], 7), output(0, b"e\n", 0, ERR)])
    assert files.pop("events.jsonl").count(b"\n") == 2
    assert files == {"rank-0003.out": raw, "rank-0000.err": b"e\n"}


def test_a_rank_that_says_nothing_has_empty_files(tmp_path: Path) -> None:
    files = kept(tmp_path, [WorkerStarted(3.0, "a", 2, 0, 102), output(2, b"x", 0, ERR)])
    assert (files["rank-0002.out"], files["rank-0002.err"]) == (b"", b"x")
    assert len(files) == 3


def test_file_names_sort_however_large_the_world_is(tmp_path: Path) -> None:
    assert "rank-000007.out" in kept(tmp_path, [output(7, b"x")], world_size=100_001)


def test_lost_bytes_are_a_hole_and_the_rest_stands_at_its_offset(tmp_path: Path) -> None:
    files = kept(tmp_path, [output(0, b"abc"), output(0, b"xyz", 10)])
    assert files["rank-0000.out"] == b"abc" + bytes(7) + b"xyz"


def test_looking_again_changes_nothing(tmp_path: Path) -> None:
    first = kept(tmp_path, [output(0, b"abc"), output(0, b"def", 3)])
    again = kept(tmp_path, [output(0, b"ef", 4)])
    assert again["rank-0000.out"] == first["rank-0000.out"] == b"abcdef"


def test_events_and_the_report_are_kept(tmp_path: Path) -> None:
    files = kept(tmp_path, [output(0, b"x"), RunFinished(9.0, "r1", 5, {"exit_status": 5})])
    events = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    assert [event["event"] for event in events] == ["notice", "run_starting", "run_finished"]
    assert json.loads(files["report.json"]) == {"exit_status": 5}


def test_many_ranks_need_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "OPEN_FILES", 3)
    chunks = [output(rank, b"%d;" % turn, 2 * turn) for turn in range(5) for rank in range(20)]
    files = kept(tmp_path, chunks, world_size=20)
    assert [files[f"rank-{rank:04d}.out"] for rank in range(20)] == [b"0;1;2;3;4;"] * 20


def test_files_are_their_owners_only(tmp_path: Path) -> None:
    kept(tmp_path, [output(0, b"x")])
    assert (tmp_path / "r1").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "r1").iterdir()} == {0o600}


def a_link(path: Path) -> None:
    path.symlink_to("precious")


def a_folder_of_anothers(path: Path) -> None:
    path.mkdir(mode=0o777)
    (path / "events.jsonl").symlink_to("../precious/notes")
    os.chown(path, 65534, 65534)


def an_open_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)
    (path / "events.jsonl").symlink_to("../precious/notes")


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (a_link, "Not a directory"),
        pytest.param(a_folder_of_anothers, "belongs to uid 65534", marks=pytest.mark.netns),
        (an_open_folder, r"can be written to by others \(mode 0777\)"),
    ],
)
def test_what_another_account_has_put_where_a_run_is_kept_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, plant: Callable[[Path], None], reason: str
) -> None:
    """DIR may be everybody's, and who is on a host sees there which runs it has."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "notes").write_text("mine")
    plant(tmp_path / "r1")
    kept(tmp_path, [WorkerStarted(3.0, "a", 0, 0, 102), output(0, b"x"), RunFinished(9.0, "r1", 0, {})])
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["notes"]
    assert (tmp_path / "precious" / "notes").read_text() == "mine"
    assert len(caplog.records) == 1
    assert re.search(reason, caplog.records[0].message)


def test_a_share_that_keeps_neither_owners_nor_modes_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There every folder looks like everybody's, and so does what we make in it, which tells such a share."""
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1").chmod(0o777)
    before = os.fstat

    def forgetful(fd: int) -> os.stat_result:
        found = list(before(fd))
        found[0] = int(found[0]) | 0o077
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", forgetful)
    kept(tmp_path, [output(0, b"x"), RunFinished(9.0, "r1", 0, {})])
    assert caplog.records == []
    assert {path.name for path in (tmp_path / "r1").iterdir()} == {"events.jsonl", "rank-0000.out", "report.json"}


@pytest.mark.parametrize("name", ["events.jsonl", "rank-0000.out"])
@pytest.mark.parametrize("plant", [Path.symlink_to, os.mkfifo])
def test_links_and_pipes_are_not_written_to_even_there(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    plant: Callable[..., None],
    name: str,
) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "precious").write_text("mine")
    plant(tmp_path / "r1" / name, *((tmp_path / "precious",) if plant is Path.symlink_to else ()))
    listener = LocalCopies.open(tmp_path)
    listener.on_event(RunStarting(2.0, "r1", 4, {}))
    listener.on_event(output(0, b"x"))
    asyncio.run(listener.aclose())
    assert len(caplog.records) == 1
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_run_is_kept_in_its_folder_whoever_renames_that(tmp_path: Path) -> None:
    listener = LocalCopies.open(tmp_path)
    listener.on_event(RunStarting(2.0, "r1", 4, {}))
    (tmp_path / "r1").rename(tmp_path / "renamed")
    (tmp_path / "precious").mkdir()
    (tmp_path / "r1").symlink_to("precious")
    for event in (WorkerStarted(3.0, "a", 1, 0, 102), output(0, b"x"), RunFinished(9.0, "r1", 0, {})):
        listener.on_event(event)
    asyncio.run(listener.aclose())
    assert list((tmp_path / "precious").iterdir()) == []
    assert {path.name for path in (tmp_path / "renamed").iterdir()} == {
        "events.jsonl", "rank-0000.out", "rank-0001.err", "rank-0001.out", "report.json"
    }  # fmt: skip


def test_a_disk_that_takes_no_more_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, block: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with caplog.at_level(logging.ERROR):
        kept_files = [output(0, b"x" * 1000, 1000 * n) for n in range(100)]
        listener = LocalCopies.open(tmp_path)
        listener.on_event(RunStarting(2.0, "r1", 4, {}))
        for event in [*kept_files, RunFinished(9.0, "r1", 0, {})]:
            listener.on_event(event)
        asyncio.run(listener.aclose())
    assert listener.backlog == 0
    assert [record.message for record in caplog.records] == [
        f"--log-dir: {tmp_path}: No space left on device: no more is kept there"
    ]


def test_a_folder_that_can_not_be_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^--log-dir: .*/file/below: Not a directory$"):
        LocalCopies.open(tmp_path / "file" / "below")
    with pytest.raises(UsageError, match=r"^--log-dir: .*/file: Not a directory$"):
        LocalCopies.open(tmp_path / "file")


def test_nothing_is_kept_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    kept(tmp_path, [output(rank, b"x") for rank in range(4)])
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 63])
def test_an_offset_that_no_file_has_costs_that_file_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    lies = [output(1, b"lie", offset), output(1, b"lie", offset - 100)]
    files = kept(tmp_path, [output(0, b"one"), *lies, output(0, b"two", 3)])
    assert files["rank-0000.out"] == b"onetwo"
    (told,) = [record.message for record in caplog.records if "rank-0001.out" in record.message]
    assert told.endswith("no more is written to it")
