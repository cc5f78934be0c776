import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_agent.protocol import framing
from mnspawn_agent.protocol.framing import Decoder, Frame, FramingError

FIXED = settings(max_examples=100)

frames = st.lists(
    st.builds(Frame, st.sampled_from(sorted(framing.KINDS)), st.integers(0, 2**32 - 1), st.binary(max_size=40)),
    max_size=8,
)


def wire(*sent: Frame) -> bytes:
    return b"".join(framing.encode(*frame) for frame in sent)


def test_a_frame_is_length_kind_and_number_then_its_body() -> None:
    assert framing.encode(framing.CONTROL, 7, b"{}") == b"\0\0\0\x02\x01\0\0\0\x07{}"


def test_kinds_keep_their_numbers() -> None:
    numbers = (framing.CONTROL, framing.BLOB, framing.OUTPUT, framing.BEAT, framing.SYNC)
    assert numbers == (1, 2, 3, 4, 5)
    assert set(numbers) == framing.KINDS


@FIXED
@given(frames, st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_frames_come_out_as_they_went_in_however_the_bytes_arrive(sent: list[Frame], pieces: list[int]) -> None:
    decoder, stream, turn = Decoder(), wire(*sent), 0
    came: list[Frame] = []
    while stream:
        count = pieces[turn % len(pieces)]
        came += decoder.feed(stream[:count])
        stream, turn = stream[count:], turn + 1
    assert came == sent


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_frame_comes_only_when_its_last_byte_does(cut: int) -> None:
    frame = Frame(framing.CONTROL, 1, b"x" * 21)
    decoder = Decoder()
    assert list(decoder.feed(wire(frame)[:cut])) == []
    assert list(decoder.feed(wire(frame)[cut:])) == [frame]


def test_an_empty_body_is_a_frame() -> None:
    assert list(Decoder().feed(framing.encode(framing.BEAT, 0, b""))) == [Frame(framing.BEAT, 0, b"")]


@pytest.mark.parametrize("kind", [0, 6, 255])
def test_an_unknown_kind_is_no_frame_of_ours(kind: int) -> None:
    with pytest.raises(FramingError, match="expected a frame"):
        list(Decoder().feed(framing.HEADER.pack(0, kind, 0)))


def test_a_length_over_the_bound_is_refused_before_any_of_the_body_is_kept() -> None:
    with pytest.raises(FramingError):
        list(Decoder().feed(framing.HEADER.pack(framing.MAX_BODY + 1, framing.CONTROL, 1)))


def test_text_in_the_stream_is_refused_and_shown() -> None:
    with pytest.raises(FramingError, match="Connection closed by remote host"):
        list(Decoder().feed(b"Connection closed by remote host\r\n"))


def test_frames_before_the_garbage_are_given_whether_it_comes_with_them_or_later() -> None:
    good = Frame(framing.CONTROL, 1, b"{}")
    frames = Decoder().feed(wire(good) + b"motd: reboot at noon")
    assert next(frames) == good
    with pytest.raises(FramingError):
        next(frames)


def test_a_body_that_no_peer_would_take_is_our_own_mistake() -> None:
    largest = framing.encode(framing.BLOB, 1, b"\0" * framing.MAX_BODY)
    assert len(largest) == framing.HEADER.size + framing.MAX_BODY
    with pytest.raises(ValueError, match="at most"):
        framing.encode(framing.BLOB, 1, b"\0" * (framing.MAX_BODY + 1))
