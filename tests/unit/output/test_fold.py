"""Folding: what is shared, what never is, how long a line waits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.output import fold
from mnspawn.output.fold import Folded, LineFolder, rank_set


def told(lines: list[Folded]) -> list[tuple[str, bytes]]:
    return [(rank_set(line.ranks), line.text) for line in lines]


def fed(*said: tuple[int, bytes], stream: str = "out", expect: int | None = None) -> LineFolder:
    folder = LineFolder(window=1.0)
    if expect is not None:
        folder.expect(expect)
    for rank, line in said:
        folder.feed(rank, stream, [line], 0.0, now=10.0)
    return folder


def test_equal_lines_are_shown_once_with_their_ranks() -> None:
    folder = fed((0, b"hello\n"), (1, b"hello\n"), (3, b"hello\n"))
    assert told(folder.take(now=10.9)) == []
    assert folder.deadline == 11.0
    assert told(folder.take(now=11.0)) == [("0-1,3", b"hello\n")]
    assert folder.deadline is None
    assert folder.held == 0


def test_a_line_that_all_have_said_does_not_wait() -> None:
    assert told(fed((1, b"a\n"), (0, b"a\n"), expect=2).take(now=10.0)) == [("0-1", b"a\n")]


def test_numbers_that_differ_are_never_hidden() -> None:
    folder = fed((0, b"loss 0.51\n"), (1, b"loss 0.52\n"))
    assert told(folder.flush()) == [("0", b"loss 0.51\n"), ("1", b"loss 0.52\n")]


def test_what_a_rank_says_twice_is_shown_twice() -> None:
    folder = fed((0, b"again\n"), (0, b"again\n"), (1, b"again\n"), (1, b"again\n"), (1, b"again\n"))
    assert told(folder.flush()) == [("0-1", b"again\n"), ("0-1", b"again\n"), ("1", b"again\n")]


def test_every_ranks_lines_keep_their_order() -> None:
    folder = fed((0, b"a\n"), (0, b"b\n"), (1, b"b\n"), (1, b"a\n"))
    assert told(folder.flush()) == [("0", b"a\n"), ("0-1", b"b\n"), ("1", b"a\n")]


def test_streams_are_never_mixed() -> None:
    folder = LineFolder()
    folder.feed(0, "out", [b"x\n"], 0.0, now=0.0)
    folder.feed(1, "err", [b"x\n"], 0.0, now=0.0)
    assert [(line.stream, line.ranks) for line in folder.flush()] == [("out", {0}), ("err", {1})]


def test_a_line_said_after_the_window_is_a_new_one() -> None:
    folder = fed((0, b"x\n"))
    assert told(folder.take(now=11.0)) == [("0", b"x\n")]
    folder.feed(1, "out", [b"x\n"], 0.0, now=11.5)
    assert folder.deadline == 12.5
    assert told(folder.take(now=12.5)) == [("1", b"x\n")]


def test_tails_are_never_shared() -> None:
    assert told(fed((0, b"no end"), (1, b"no end")).flush()) == [("0", b"no end"), ("1", b"no end")]


def test_a_line_has_the_time_at_which_it_was_said_first() -> None:
    folder = LineFolder()
    folder.feed(0, "out", [b"x\n"], 100.0, now=0.0)
    folder.feed(1, "out", [b"x\n"], 99.0, now=0.0)
    assert [line.time for line in folder.flush()] == [100.0]


def test_what_waits_is_bounded() -> None:
    folder = LineFolder()
    folder.feed(0, "out", [b"x" * 65535 + b"%d\n" % n for n in range(32)], 0.0, now=0.0)
    assert folder.held > fold.HELD_LIMIT
    assert len(folder.take(now=0.0)) == 17
    assert folder.held <= fold.HELD_LIMIT


def test_ten_thousand_equal_lines_of_a_rank_cost_little() -> None:
    folder = LineFolder()
    for rank in range(4):
        folder.feed(rank, "out", [b"\n"] * 10_000, 0.0, now=0.0)
        folder.take(now=0.0)
    assert folder.held <= fold.HELD_LIMIT


SAID = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["out", "err"]), st.sampled_from([b"a\n", b"b\n", b"c"])))


@given(said=SAID, pauses=st.lists(st.booleans(), max_size=60), expects=st.booleans())
@settings(max_examples=400)
def test_every_line_of_every_rank_is_shown_once_and_in_order(
    said: list[tuple[int, str, bytes]], pauses: list[bool], expects: bool
) -> None:
    folder, now, shown = LineFolder(window=1.0), 0.0, []
    if expects:
        folder.expect(4)
    for index, (rank, stream, line) in enumerate(said):
        folder.feed(rank, stream, [line], 0.0, now)
        if index < len(pauses) and pauses[index]:
            now += 0.7
            shown += folder.take(now)
    shown += folder.flush()
    assert (folder.held, folder.deadline) == (0, None)
    for rank in range(4):
        for stream in ("out", "err"):
            own = [line.text for line in shown if rank in line.ranks and line.stream == stream]
            assert own == [line for one, where, line in said if (one, where) == (rank, stream)]


def test_ranks_in_words() -> None:
    assert [rank_set(ranks) for ranks in ([], [3], [2, 1, 0, 7], [0, 2, 4])] == ["", "3", "0-2,7", "0,2,4"]
