"""Line assembly: any chunking gives the same lines, no byte is lost, each line gets one prefix."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.output.lines import LINE_LIMIT, LineAssembler, final_states, prefix_lines, split_lines


def assemble(chunks: list[bytes], limit: int = LINE_LIMIT) -> list[bytes]:
    assembler = LineAssembler(limit)
    blocks = [assembler.feed(chunk) for chunk in chunks]
    return [block for block in [*blocks, assembler.flush()] if block]


def test_half_lines_wait_for_their_end() -> None:
    assembler = LineAssembler()
    assert assembler.feed(b"he") == b""
    assert assembler.feed(b"llo\nwor") == b"hello\n"
    assert assembler.half_line == b"wor"
    assert assembler.feed(b"ld\n") == b"world\n"
    assert assembler.flush() == b""


def test_a_tail_without_an_end_is_flushed_as_it_is() -> None:
    assembler = LineAssembler()
    assert assembler.feed(b"a\nno end") == b"a\n"
    assert assembler.flush() == b"no end"
    assert (assembler.flush(), assembler.pending) == (b"", 0)


@pytest.mark.parametrize(
    "line", [b"10%\r20%\r30%\n", b"dos\r\n", b"\x00\x00\n", b"\xff\xfe caf\xc3\n", b"\n", b"\x1b[31mred\x1b[0m\n"]
)
def test_bytes_inside_a_line_pass_unchanged(line: bytes) -> None:
    assert assemble([line[i : i + 1] for i in range(len(line))]) == [line]


def test_lines_of_64_kib_and_more_stay_whole() -> None:
    line = b"x" * (200 * 1024) + b"\n"
    assert assemble([line[i : i + 7001] for i in range(0, len(line), 7001)]) == [line]


def test_a_line_over_the_limit_passes_in_pieces_of_bounded_length() -> None:
    assembler = LineAssembler(limit=10)
    assert assembler.feed(b"0123456789") == b""
    assert assembler.feed(b"abcdefghijKLM") == b"0123456789abcdefghij"
    assert assembler.pending == 3
    assert assembler.feed(b"\n") == b"KLM\n"


def test_a_long_tail_behind_whole_lines_is_bounded_too() -> None:
    assembler = LineAssembler(limit=4)
    assert assembler.feed(b"a\n123456") == b"a\n1234"
    assert assembler.half_line == b"56"


@given(data=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xff", b"\x00", b"long" * 9])), cuts=st.data())
@settings(max_examples=200)
def test_any_chunking_gives_the_same_bytes_and_the_same_prefixed_lines(data: list[bytes], cuts: st.DataObject) -> None:
    whole = b"".join(data)
    points = sorted(cuts.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    chunks = [whole[a:b] for a, b in zip([0, *points], [*points, len(whole)], strict=True)]
    limit = cuts.draw(st.integers(1, 64))

    blocks = assemble(chunks, limit)
    assert b"".join(blocks) == whole

    shown, is_open = b"", False
    for block in blocks:  # as a console with only this stream shows them
        shown += prefix_lines(block, b"[a:0] ", is_continued=is_open)
        is_open = not block.endswith(b"\n")
    lines = whole.split(b"\n")
    expected = b"\n".join(b"[a:0] " + line for line in lines[:-1]) + (b"\n" if lines[:-1] else b"")
    assert shown == expected + (b"[a:0] " + lines[-1] if lines[-1] else b"")


@given(chunks=st.lists(st.binary(max_size=40)), limit=st.integers(1, 30))
def test_no_more_than_the_limit_is_ever_held(chunks: list[bytes], limit: int) -> None:
    assembler = LineAssembler(limit)
    for chunk in chunks:
        assembler.feed(chunk)
        assert assembler.pending <= limit


def test_prefixes_stand_once_in_front_of_every_line() -> None:
    assert prefix_lines(b"a\n\nb\n", b"> ") == b"> a\n> \n> b\n"
    assert prefix_lines(b"a\nb", b"> ") == b"> a\n> b"
    assert prefix_lines(b"b\nc\n", b"> ", is_continued=True) == b"b\n> c\n"
    assert prefix_lines(b"", b"> ") == b""
    assert prefix_lines(b"a\n", b"") == b"a\n"


def test_a_progress_bar_ends_in_its_final_state() -> None:
    assert final_states(b"\r10%\r20%\r100%\n") == b"100%\n"
    assert final_states(b"a\n 10%\r 20%\r\r\nb\r\n\n") == b"a\n 20%\r\r\nb\r\n\n"
    assert final_states(b"\r10%\r   \rdone") == b"done"
    assert final_states(b"10%\r20%\r") == b"20%\r"


def test_a_progress_bar_without_an_end_never_grows_to_the_limit() -> None:
    assembler = LineAssembler(limit=100, keeps_states=False)
    for percent in range(100_000):
        assert assembler.feed(b"\r%d" % percent) == b""
    assert final_states(assembler.feed(b" done\n")) == b"99999 done\n"


@given(st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bb", b"\xff"])).map(b"".join))
def test_final_states_are_what_a_terminal_shows_in_the_end(block: bytes) -> None:
    shown = []
    for line in block.split(b"\n"):
        states = [state for state in line.split(b"\r") if state]
        shown.append(states[-1] if states and line.strip(b"\r") else b"")
    assert [line.strip(b"\r") for line in final_states(block).split(b"\n")] == shown
    assert b"".join(split_lines(block)) == block
