"""Progress bars of several lines end in the lines that a terminal keeps, however their bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.output.lines import LineAssembler, final_states
from mnspawn.output.rewind import MOST_ROWS, Rewinder


def shown(*chunks: bytes) -> list[bytes]:
    """The lines that a stream leaves."""
    rewinder, lines = Rewinder(), LineAssembler(keeps_states=False)
    blocks = [lines.feed(rewinder.feed(chunk, lines.flush)) for chunk in chunks]
    blocks += [lines.feed(rewinder.flush()), lines.flush()]
    return final_states(b"".join(blocks)).splitlines()


# as tqdm writes two bars, the second with position 1: each item is one write
TQDM = [b"\router:  0%", b"\n", b"\rinner:  0%", b"\x1b[A"]
for _step in range(1, 11):
    TQDM += [b"\n", b"\rinner: %d0%%" % _step, b"\x1b[A", b"\router: %d0%%" % _step]
TQDM += [b"\n", b"\rinner: done", b"\x1b[A", b"\router: done", b"\n\n", b"epoch 1\n"]
# as rich writes three bars, and a line above them
RICH = [b"\x1b[?25l\r\x1b[2Ka 0%\nb 0%\nc 0%"]
for _step in range(1, 10):
    _above = b"log\n" if _step == 5 else b""
    _up = b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K"
    RICH += [_up + _above + b"a %d0%%\nb %d0%%\nc %d0%%" % (_step, _step, _step)]
RICH += [b"\n\x1b[?25h", b"after\n"]


def test_tqdms_bars_at_two_positions_are_two_lines() -> None:
    assert shown(b"".join(TQDM)) == [b"outer: done", b"inner: done", b"epoch 1"]


def test_bars_that_come_write_by_write_leave_one_early_state_at_most() -> None:
    assert shown(*TQDM) == [b"outer:  0%", b"outer: done", b"inner: done", b"epoch 1"]


def test_richs_bars_keep_the_lines_that_were_printed_above_them() -> None:
    assert shown(b"".join(RICH)) == [b"log", b"a 90%", b"b 90%", b"c 90%", b"after"]
    assert shown(*RICH)[-5:] == [b"log", b"a 90%", b"b 90%", b"c 90%", b"after"]


@pytest.mark.parametrize("up", [b"\x1b[2A", b"\x1b[A\x1b[A", b"\x1b[1A\x1b[A", b"\x1bM\x1bM", b"\x1b[2F", b"\x1b[2A\r"])
def test_every_way_up_is_one(up: bytes) -> None:
    refreshes = [b"a %d\nb %d\n" % (step, step) for step in range(20)]
    whole = b"start\n" + up.join(refreshes) + b"end\n"
    assert shown(whole) == [b"start", b"a 19", b"b 19", b"end"]
    chunks = [b"start\n", refreshes[0], *(up + refresh for refresh in refreshes[1:]), b"end\n"]
    assert shown(*chunks) == [b"start", b"a 0", b"b 0", b"a 19", b"b 19", b"end"]


def test_lines_behind_bars_do_not_wait() -> None:
    rewinder = Rewinder()
    rewinder.feed(b"a 0\nb 0\n\x1b[2Aa 1\nb 1\n", bytes)
    assert rewinder.is_holding
    assert rewinder.feed(b"epoch 1 done\n", bytes) == b"a 1\nb 1\nepoch 1 done\n"
    assert not rewinder.is_holding
    assert rewinder.feed(b"plain\n", bytes) == b"plain\n"


def test_the_newest_state_is_known_meanwhile() -> None:
    rewinder = Rewinder()
    rewinder.feed(b"\ra 0%\n\rb 0%\x1b[A\ra 50%", bytes)
    assert rewinder.state == b"a 50%"


def test_bars_that_were_erased_leave_nothing() -> None:
    assert shown(b"a 0\nb 0\n\x1b[2A\x1b[2Ka 1\n\x1b[2Kb 1\n\x1b[2A\x1b[Jdone\n") == [b"done"]


def test_colours_stay_with_their_text() -> None:
    assert shown(b"a\n\x1b[A\x1b[32ma 1\x1b[0m\n", b"end\n") == [b"\x1b[32ma 1\x1b[0m", b"end"]


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\x1b[31m", b"\x1b[K", b"\x1b]0;t\x07", b"\xff", b"\x1b"])))
def test_a_stream_that_never_moves_up_keeps_every_byte(tokens: list[bytes]) -> None:
    rewinder = Rewinder()
    said = b"".join(rewinder.feed(token, bytes) for token in tokens) + rewinder.flush()
    assert said == b"".join(tokens)


@given(
    st.lists(
        st.sampled_from([b"a", b"bc\n", b"\r", b"\x1b[A", b"\x1b[9999999999A", b"\x1b[3B", b"\x1b[J", b"\n", b"\x1b["])
    )
)
def test_whatever_comes_little_is_held_and_plain_lines_are_not_lost(tokens: list[bytes]) -> None:
    rewinder = Rewinder()
    for token in tokens:
        rewinder.feed(token, bytes)
        assert len(rewinder._rows) <= 2 * MOST_ROWS + 1
    assert shown(*tokens, b"\x1b[999B\nlast line\n")[-1] == b"last line"
