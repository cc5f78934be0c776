"""When output was seen, as the agent notes it: right to the documented resolution, in a file that does not grow."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnspawn_agent.posix.files import marks
from mnspawn_agent.posix.files.marks import FINENESS, MARK, MOST, Marks, MarkWriter

BEGAN = 1700000000.0
DAY = 86400


def five_a_second() -> Iterator[tuple[float, int]]:
    """(time, size) of a stream that gets 100 bytes five times a second, for a day."""
    for count in range(DAY * 5):
        yield BEGAN + count * 0.2, (count + 1) * 100


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool that grew for a day."""
    spool = tmp_path_factory.mktemp("marks") / "rank-0.out"
    writer = MarkWriter(str(spool))
    for when, size in five_a_second():
        writer.note(when, size)
    writer.close()
    return spool


def test_the_marks_of_a_long_run_stay_within_their_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 4096)
    monkeypatch.setattr(marks, "FINENESS", 100.0)
    spool = str(tmp_path / "rank-0.out")
    writer = MarkWriter(spool)
    largest = 0
    for count in range(100_000):
        writer.note(BEGAN + count * 10.0, count + 1)
        if count % 1000 == 0:
            largest = max(largest, os.path.getsize(spool + ".marks"))
    writer.close()
    assert largest <= (4096 + 1) * MARK.size
    assert os.listdir(tmp_path) == ["rank-0.out.marks"]


def test_a_day_of_steady_output_fits_with_room_to_spare(noted: Path) -> None:
    assert os.path.getsize(f"{noted}.marks") <= MOST * MARK.size == 512 << 10
    assert len(Marks(str(noted)).all()) > 1000


@pytest.mark.parametrize("age", [0.4, 10.0, 60.0, 600.0, 3600.0, 80000.0])
def test_times_are_right_to_a_thousandth_of_their_age(noted: Path, age: float) -> None:
    at = DAY - age
    seen, following = Marks(str(noted)).at(int(at * 5) * 100)
    assert 0 <= BEGAN + at - seen <= max(0.5, age / FINENESS + 0.2)
    assert following is None or following > int(at * 5) * 100


@pytest.mark.parametrize("age", [0.4, 10.0, 60.0, 600.0, 3600.0, 80000.0])
def test_since_leaves_nothing_out_and_shows_little_more(noted: Path, age: float) -> None:
    at = DAY - age
    offset = Marks(str(noted)).since(BEGAN + at)
    first = -(-at * 5 // 1) * 100  # the first byte that came then or later
    assert offset is not None
    assert 0 <= first - offset <= (2 * age / FINENESS + 0.4) * 500


def test_who_follows_the_marks_finds_their_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 64)
    spool = str(tmp_path / "rank-0.out")
    writer = MarkWriter(spool)
    writer.note(BEGAN, 100)
    follower = Marks(spool)
    for count in range(1, 200):
        writer.note(BEGAN + count, (count + 1) * 100)
        follower.refresh()
        assert follower.at(count * 100) == (BEGAN + count, None)
    writer.close()
    assert follower.generation >= 3
    assert follower.all() == Marks(spool).all()


def test_marks_before_the_hole_of_a_cap_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 64)
    spool = str(tmp_path / "rank-0.out")
    writer = MarkWriter(spool)
    for count in range(200):
        writer.note(BEGAN + count, (count + 1) * 100)
        assert writer.note_hole(count * 100)
    writer.close()
    read = Marks(spool)
    assert read.hole == 19900
    assert len(read.all()) <= 33
    assert read.at(19900) == (BEGAN + 199, None)


def test_a_clock_that_is_set_back_again_and_again_costs_no_space(tmp_path: Path) -> None:
    content = [(BEGAN + 1000.0 * (count % 2), count) for count in range(MOST)]
    assert len(marks.thin(content, BEGAN, 0)) <= MOST // 2


def test_a_disk_that_takes_no_new_file_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 64)
    spool = str(tmp_path / "rank-0.out")
    writer = MarkWriter(spool)
    tries: list[str] = []

    def replace(source: str, target: str) -> None:
        tries.append(target)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    for count in range(184):
        writer.note(BEGAN + count, (count + 1) * 100)
    writer.close()
    assert len(tries) == 2  # a minute lies between them
    assert os.path.getsize(f"{spool}.marks") == 64 * MARK.size
    assert os.listdir(tmp_path) == ["rank-0.out.marks"]
    assert Marks(spool).at(6300) == (BEGAN + 63, None)


def test_half_a_mark_on_a_full_disk_misplaces_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = str(tmp_path / "rank-0.out")
    writer = MarkWriter(spool)
    writer.note(BEGAN, 100)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, content: write(fd, content[:7]))
        writer.note(BEGAN + 1, 200)
    writer.note(BEGAN + 2, 300)
    writer.close()
    assert Marks(spool).all() == [(BEGAN, 0), (BEGAN + 2, 200)]
