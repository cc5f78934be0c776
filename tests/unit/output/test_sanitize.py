"""Control sequences: which go, which stay, and that chunk borders make no difference."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnspawn.output.sanitize import PENDING_LIMIT, ColourFilter, Sanitizer

CONTROLS = (
    b"\x1b",
    b"\x07",
    b"\xc2",
    b"\x9b",
    b"\x9d",
    b"\x9c",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff",
    b"\x1b[1m",
    b"\x1b]0;x\x07",
)
TEXTS = (b"[", b"]", b"0;31", b"m", b"H", b"\\", b"text", b"\xc3\xa9", b"\xc2\xa9", b"P", b"(", b" ", b"?")
PIECES = st.lists(st.sampled_from(CONTROLS + TEXTS), max_size=25).map(b"".join)


def sanitized(*chunks: bytes, keeps_colours: bool = True) -> bytes:
    sanitizer = Sanitizer(keeps_colours=keeps_colours)
    return b"".join([*(sanitizer.feed(chunk) for chunk in chunks), sanitizer.flush()])


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b[2J",
        b"\x1b[10;20H",
        b"\x1b[?1049h",
        b"\x1b[>c",
        b"\x1b[4 q",
        b"\x1b[K",
        b"\x1b]0;a title\x07",
        b"\x1b]8;;http://example.org\x1b\\",
        b"\x1b]52;c;aGVsbG8=\x07",
        b"\x1bP1;2q#0~\x1b\\",
        b"\x1b_G\x1b\\",
        b"\x1b^x\x1b\\",
        b"\x1bXx\x1b\\",
        b"\x1bc",
        b"\x1b(0",
        b"\x1b#8",
        b"\x1b7",
        b"\x07",
        b"\x08",
        b"\x0e",
        b"\x00",
        b"\x7f",
        b"\xc2\x9b2J",
        b"\xc2\x9d0;title\xc2\x9c",
        b"\xc2\x85",
    ],
)
def test_what_a_terminal_would_obey_is_taken_out(sequence: bytes) -> None:
    assert sanitized(b"before" + sequence + b"after") == b"beforeafter"


@pytest.mark.parametrize(
    "text",
    [
        b"\x1b[31mred\x1b[0m",
        b"\x1b[38;5;196m.\x1b[m",
        b"\x1b[38:2::1:2:3m.",
        b"a\tb\r\n",
        b" 10%\r 20%",
        "é © 日本".encode(),
    ],
)
def test_colours_and_text_stay(text: bytes) -> None:
    assert sanitized(text) == text


def test_colours_go_where_they_are_not_wanted() -> None:
    assert sanitized(b"\x1b[1;31mred\x1b[0m\x1b[2J", keeps_colours=False) == b"red"


def test_a_sequence_that_never_ends_takes_no_line_with_it() -> None:
    assert sanitized(b"\x1b]0;never ended\nnext line\n") == b"\nnext line\n"
    assert sanitized(b"\x1b[31\nnext\n") == b"\nnext\n"


def test_a_sequence_cut_by_the_end_of_the_stream_is_none() -> None:
    assert sanitized(b"text\x1b[31") == b"text"
    assert sanitized(b"text\x1b]0;tit") == b"text"


def test_a_control_in_the_middle_of_a_sequence_does_not_let_it_through() -> None:
    assert b"\x1b" not in sanitized(b"\x1b\x07[2J\x1b\x00]0;x\x07")


def test_halves_of_a_character_do_not_join_into_a_control() -> None:
    assert sanitized(b"\xc2\x07\x9b2J") == "\ufffd".encode() + b"\x9b2J"


def test_what_is_held_is_bounded() -> None:
    sanitizer = Sanitizer()
    assert sanitizer.feed(b"\x1b[" + b"1" * PENDING_LIMIT) == b""
    assert sanitizer.feed(b"11text") == b"11text"
    image = Sanitizer()
    assert image.feed(b"\x1b]1337;File=:") == b""
    assert b"".join(image.feed(b"A" * 65536) for _ in range(16)) == b""
    assert image.feed(b"\x07text") == b"text"


@given(text=PIECES, cuts=st.lists(st.integers(0, 200)))
@example(text=b"\xc2", cuts=[])
@example(text=b"\x1b]\xc2", cuts=[])
@settings(max_examples=500)
def test_any_chunking_gives_the_same_and_nothing_obeyed_is_left(text: bytes, cuts: list[int]) -> None:
    whole = sanitized(text)
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    chunks = [text[a:b] for a, b in pairwise(borders)]
    assert sanitized(*chunks) == whole
    assert sanitized(*(bytes([byte]) for byte in text)) == whole
    assert sanitized(whole) == whole
    rest = re.sub(rb"\x1b\[[0-9;:]*m", b"", whole)
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]", rest)
    assert rest.count(b"\n") == text.count(b"\n")


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_text_without_controls_passes_unchanged(text: str) -> None:
    assert sanitized(text.encode()) == text.encode()


@given(text=PIECES)
@settings(max_examples=300)
def test_the_colour_filter_takes_colours_only(text: bytes) -> None:
    whole = ColourFilter()
    bytewise = ColourFilter()
    expected = re.sub(rb"\x1b\[[0-9;:]*m", b"", text)
    assert whole.feed(text) + whole.flush() == expected
    assert b"".join(bytewise.feed(bytes([byte])) for byte in text) + bytewise.flush() == expected
