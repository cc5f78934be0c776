import json
from typing import Any

import pytest

from mnspawn_agent.protocol import framing
from mnspawn_agent.protocol.channel import (
    BEAT,
    BEAT_INTERVAL,
    BLOB_HEAD,
    OUTPUT_HEAD,
    SILENCE_LIMIT,
    STDERR_RESERVE,
    BlobChunk,
    Channel,
    Event,
    Lost,
    OutputChunk,
    Received,
    Synced,
)
from tests.unit.protocol.cable import Cable

STAMP = 1700000000.5  # a wall-clock label


def pair() -> tuple[Channel, Channel]:
    return Channel(0.0), Channel(0.0)


def messages_of(channel: Channel) -> list[int]:
    """The numbers of the control messages that came."""
    return [event.message["n"] for event in channel.events() if isinstance(event, Received)]


def control(seq: int, body: bytes) -> bytes:
    return framing.encode(framing.CONTROL, seq, body)


def beat(received: int = 0, clock: float = 0.0, echo: float = -1.0, held: float = 0.0, granted: int = 0) -> bytes:
    return framing.encode(framing.BEAT, 0, BEAT.pack(received, clock, echo, held, granted))


def kinds_in(chunk: bytes) -> list[int]:
    return [frame.kind for frame in framing.Decoder().feed(chunk)]


# -- what is on the wire


def test_bodies_keep_their_shape() -> None:
    assert (BEAT.format, BLOB_HEAD.format) == (">IdddQ", ">IQ")
    assert OUTPUT_HEAD.format.startswith(">IBQ")


def test_a_control_message_is_compact_json() -> None:
    channel = Channel(0.0)
    channel.send({"type": "notice", "text": "größer"})
    sent = list(framing.Decoder().feed(channel.data_to_send(0.0)))
    assert sent[0] == framing.Frame(framing.CONTROL, 1, b'{"type":"notice","text":"gr\\u00f6\\u00dfer"}')
    assert [frame.kind for frame in sent] == [framing.CONTROL, framing.BEAT]


def test_control_frames_go_before_output_that_was_queued_first() -> None:
    channel = Channel(0.0)
    channel.send_output(0, 1, 0, b"chatter", STAMP)
    channel.send({"n": 1})
    assert kinds_in(channel.data_to_send(0.0)) == [framing.CONTROL, framing.BEAT, framing.OUTPUT]
    assert channel.data_to_send(0.0) == b""


# -- order


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 1 << 20])
def test_messages_blobs_and_output_come_in_order_however_the_wire_splits_them(piece: int) -> None:
    left, right = pair()
    left.send({"n": 1})
    left.send_blob(3, 0, b"abc")
    left.send_blob(3, 3, b"\0\n\xff")
    left.send({"n": 2})
    left.send_output(5, 2, 100, b"said", STAMP)
    Cable(left, right, piece=piece).pass_on(0.0)
    assert right.events() == [
        Received({"n": 1}),
        BlobChunk(3, 0, b"abc"),
        BlobChunk(3, 3, b"\0\n\xff"),
        Received({"n": 2}),
        OutputChunk(5, 2, 100, b"said", STAMP),
    ]


def test_text_that_is_no_utf_8_survives() -> None:
    left, right = pair()
    left.send({"n": 1, "text": "caf\udce9 \U0001f600 \0"})
    Cable(left, right).pass_on(0.0)
    assert right.events() == [Received({"n": 1, "text": "caf\udce9 \U0001f600 \0"})]


# -- a wire that breaks


def total_of_a_session() -> int:
    cable = Cable(*talkative_pair())
    cable.pass_on(0.0)
    return cable.carried


def talkative_pair() -> tuple[Channel, Channel]:
    left, right = pair()
    for n in range(3):
        left.send({"n": n})
    left.send_blob(0, 0, b"blob")
    for n in range(2):
        right.send({"n": n})
    left.beat()
    return left, right


def test_a_wire_cut_anywhere_loses_and_repeats_nothing_that_is_sequenced() -> None:
    for cut in range(total_of_a_session() + 1):
        left, right = talkative_pair()
        Cable(left, right, budget=cut, piece=5).pass_on(0.0)
        at_left, at_right = left.events(), right.events()
        assert [event.kind for event in at_left + at_right if isinstance(event, Lost)] == ["eof", "eof"], cut
        left.send({"n": 3})  # said while there is no wire
        left.resume(1.0, {})
        right.resume(1.0, {})
        Cable(left, right, piece=5).pass_on(1.0)
        at_left += left.events()
        at_right += right.events()
        assert [e.message["n"] for e in at_right if isinstance(e, Received)] == [0, 1, 2, 3], cut
        assert [e for e in at_right if isinstance(e, BlobChunk)] == [BlobChunk(0, 0, b"blob")], cut
        assert [e.message["n"] for e in at_left if isinstance(e, Received)] == [0, 1], cut
        assert held_after_a_beat(left, right) == (0, 0), cut


def held_after_a_beat(left: Channel, right: Channel) -> tuple[int, int]:
    left.beat()
    right.beat()
    Cable(left, right).pass_on(9.0)
    return left.unacknowledged_bytes, right.unacknowledged_bytes


def test_a_second_cut_during_the_replay_loses_nothing_either() -> None:
    left, right = talkative_pair()
    Cable(left, right, budget=20).pass_on(0.0)
    came = right.events()
    for number, budget in enumerate((10, 90, 40, 150)):
        left.resume(number, {})
        right.resume(number, {})
        Cable(left, right, budget=budget, piece=7).pass_on(number)
        came += right.events()
    left.resume(9.0, {})
    right.resume(9.0, {})
    Cable(left, right).pass_on(9.0)
    came += right.events()
    assert [e.message["n"] for e in came if isinstance(e, Received)] == [0, 1, 2]


def test_a_loss_is_told_once_and_nothing_is_said_or_heard_after_it() -> None:
    left, right = pair()
    left.receive(b"", 1.0)
    left.receive(control(1, b"{}"), 2.0)
    left.receive(b"", 3.0)
    left.on_time(99.0)
    assert left.events() == [Lost("eof", "the connection ended")]
    left.send({"n": 1})
    left.beat()
    assert left.data_to_send(4.0) == b""
    assert left.deadline is None
    assert right.events() == []


def test_what_both_say_with_their_sync_reaches_the_other() -> None:
    left, right = pair()
    left.resume(1.0, {"offsets": [[0, 1, 512]]})
    right.resume(1.0, {})
    left.events()
    right.events()
    Cable(left, right).pass_on(1.0)
    assert right.events() == [Synced({"offsets": [[0, 1, 512]], "received": 0})]
    assert left.events() == [Synced({"received": 0})]


def test_nothing_is_replayed_before_the_peer_has_said_what_it_has() -> None:
    left, right = pair()
    left.send({"n": 1})
    left.resume(1.0, {})
    assert kinds_in(left.data_to_send(1.0)) == [framing.SYNC, framing.BEAT]
    left.send({"n": 2})
    assert left.data_to_send(1.0) == b""
    right.resume(1.0, {})
    left.receive(right.data_to_send(1.0), 1.0)
    assert kinds_in(left.data_to_send(1.0)) == [framing.CONTROL, framing.CONTROL, framing.BEAT]


def test_taking_a_new_wire_while_the_old_one_stands_is_a_loss_too() -> None:
    left, _ = pair()
    left.resume(1.0, {})
    assert left.events() == [Lost("replaced", "a new connection took the session over")]
    assert not left.is_lost


@pytest.mark.parametrize("received", [-1, 1, "0", None, 1.0, [], True])
def test_a_sync_that_claims_what_was_never_sent_is_garbage(received: Any) -> None:
    left, _ = pair()
    left.resume(1.0, {})
    left.events()
    left.receive(framing.encode(framing.SYNC, 0, json.dumps({"received": received}).encode()), 1.0)
    assert [event.kind for event in left.events() if isinstance(event, Lost)] == ["garbage"]


# -- a peer that speaks nonsense


@pytest.mark.parametrize(
    "nonsense",
    [
        b"Last login: Mon\n" * 3,
        control(1, b"[]"),
        control(1, b"no json"),
        control(1, b"\xff\xfe"),
        control(1, b"[" * 100_000),
        control(2, b"{}"),
        framing.encode(framing.BLOB, 1, b"short"),
        framing.encode(framing.BLOB, 7, b"\0" * 20),
        framing.encode(framing.OUTPUT, 0, b"short"),
        framing.encode(framing.BEAT, 0, b"short"),
        framing.encode(framing.BEAT, 0, b"\0" * 99),
        framing.encode(framing.SYNC, 0, b"17"),
    ],
    ids=[
        "text", "a list", "no json", "no utf-8", "deep json", "a gap", "a short blob", "a blob's gap", "a short output",
        "a short beat", "a long beat", "a sync that is no object",
    ],
)  # fmt: skip
def test_garbage_is_one_loss_and_never_an_exception(nonsense: bytes) -> None:
    channel = Channel(0.0)
    channel.receive(nonsense + control(1, b'{"n":1}') + beat(), 1.0)
    channel.receive(control(1, b'{"n":1}'), 1.0)
    assert [type(event) for event in channel.events()] == [Lost]
    assert channel.is_lost


@pytest.mark.parametrize("piece", [1, 10, 1000])
def test_what_came_before_the_garbage_counts_however_it_was_split(piece: int) -> None:
    channel = Channel(0.0)
    stream = control(1, b'{"n":1}') + b"garbage, and more of it"
    for start in range(0, len(stream), piece):
        channel.receive(stream[start : start + piece], 1.0)
    events: list[Event] = channel.events()
    assert events[0] == Received({"n": 1})
    assert [type(event) for event in events[1:]] == [Lost]


def test_a_frame_that_came_twice_counts_once() -> None:
    channel = Channel(0.0)
    channel.receive(control(1, b'{"n":1}') + control(1, b'{"n":1}') + control(2, b'{"n":2}'), 0.0)
    assert messages_of(channel) == [1, 2]


# -- acknowledgements


def test_frames_are_held_until_they_are_acknowledged() -> None:
    left, right = pair()
    left.send_blob(0, 0, b"x" * 1000)
    held = left.unacknowledged_bytes
    assert held == framing.HEADER.size + BLOB_HEAD.size + 1000
    right.receive(left.data_to_send(0.0), 0.0)
    assert left.unacknowledged_bytes == held
    right.beat()
    left.receive(right.data_to_send(0.0), 0.0)
    assert left.unacknowledged_bytes == 0


def test_what_came_is_acknowledged_with_the_next_bytes_sent() -> None:
    left, right = pair()
    Cable(left, right).pass_on(0.0)
    left.receive(beat(), 0.0)
    left.data_to_send(0.0)
    for n in range(1, 4):
        left.receive(control(n, b"{}"), 0.0)
    frame = next(iter(framing.Decoder().feed(left.data_to_send(0.0))))
    assert BEAT.unpack(frame.body)[0] == 3
    assert left.data_to_send(0.0) == b""


# -- time


def test_a_quiet_link_is_heard_every_two_seconds() -> None:
    left, _ = pair()
    assert left.deadline == BEAT_INTERVAL == 2.0
    left.on_time(1.9)
    assert left.data_to_send(1.9) == b""
    left.on_time(2.0)
    assert kinds_in(left.data_to_send(2.0)) == [framing.BEAT]
    assert left.deadline == 4.0


def test_ten_seconds_of_silence_are_a_loss() -> None:
    left, _ = pair()
    for second in range(1, 10):
        left.on_time(float(second))
        left.data_to_send(float(second))
    assert not left.is_lost
    assert left.deadline == SILENCE_LIMIT == 10.0
    left.on_time(10.0)
    assert left.events() == [Lost("silence", "no heartbeat for 10 s")]
    assert left.deadline is None


def test_a_short_limit_makes_beats_come_more_often() -> None:
    channel = Channel(0.0, silence_limit=1.0)
    assert channel.deadline == 0.2
    channel.on_time(0.2)
    assert kinds_in(channel.data_to_send(0.2)) == [framing.BEAT]
    assert channel.deadline == 0.4


def test_a_side_without_a_limit_takes_any_silence() -> None:
    left, _ = pair()
    left.silence_limit = float("inf")
    left.on_time(1e9)
    assert not left.is_lost
    assert left.deadline == 1e9 + 2.0
    left.receive(b"", 1e9)
    assert [event.kind for event in left.events() if isinstance(event, Lost)] == ["eof"]


def test_any_byte_is_a_sign_of_life() -> None:
    left, _ = pair()
    left.receive(control(1, b"{}")[:1], 9.0)
    left.on_time(18.9)
    assert not left.is_lost
    left.on_time(19.0)
    assert left.is_lost


def test_two_ends_that_only_beat_keep_each_other_alive() -> None:
    left, right = pair()
    cable = Cable(left, right)
    for second in range(1, 60):
        left.on_time(float(second))
        right.on_time(float(second))
        cable.pass_on(float(second))
    assert (left.events(), right.events()) == ([], [])


def test_a_beat_that_can_not_be_sent_does_not_wake_the_driver_again_and_again() -> None:
    left, _ = pair()
    left.on_time(2.0)  # a beat is due, but the driver is still busy writing what came before
    assert left.deadline == 4.0
    left.on_time(4.5)
    assert left.deadline == 6.5
    assert kinds_in(left.data_to_send(5.0)) == [framing.BEAT]
    assert left.deadline == 7.0


# -- the peer's clock


def test_the_offset_of_the_clocks_is_known_after_the_first_exchange_to_half_the_round_trip() -> None:
    left, right = Channel(0.0), Channel(1000.0)
    left.beat()
    Cable(left, right, delay=0.05, skew=1000.0).pass_on(0.0)
    assert left.clock_offset == pytest.approx(1000.0, abs=0.05)
    assert right.clock_offset == pytest.approx(-1000.0, abs=0.05)


def test_the_sample_with_the_shortest_round_trip_counts() -> None:
    left, _ = pair()
    left.receive(beat(clock=100.0, echo=0.0, held=0.0), 4.0)  # 4 s under way: 102 at 4
    assert left.clock_offset == 98.0
    left.receive(beat(clock=105.0, echo=5.0, held=0.0), 5.0)
    assert left.clock_offset == 100.0
    left.receive(beat(clock=100.0, echo=6.0, held=0.0), 9.0)
    assert left.clock_offset == 100.0


def test_time_that_the_peer_held_the_beat_is_not_time_under_way() -> None:
    left, _ = pair()
    left.receive(beat(clock=57.5, echo=1.0, held=6.0), 8.0)
    assert left.clock_offset == 50.0


def test_a_new_wire_keeps_the_offset_and_trusts_no_echo_of_the_old_one() -> None:
    left, right = Channel(0.0), Channel(500.0)
    left.beat()
    Cable(left, right, delay=0.01, skew=500.0).pass_on(0.0)
    known = left.clock_offset
    left.resume(100.0, {})
    assert left.clock_offset == known
    frames = list(framing.Decoder().feed(left.data_to_send(100.0)))
    assert BEAT.unpack(frames[-1].body)[2] == -1.0


# -- credit


def test_no_output_is_allowed_before_the_peer_grants_some() -> None:
    left, right = pair()
    assert left.output_allowance(1) == 0
    right.grant(100)
    Cable(left, right).pass_on(0.0)
    assert left.output_allowance(1) == 100
    left.send_output(0, 1, 0, b"x" * 60, STAMP)
    assert left.output_allowance(1) == 40


def test_stderr_may_go_a_little_beyond_the_credit() -> None:
    left, right = pair()
    assert left.output_allowance(2) == STDERR_RESERVE
    right.grant(100)
    Cable(left, right).pass_on(0.0)
    left.send_output(0, 1, 0, b"x" * 100, STAMP)
    left.send_output(0, 2, 0, b"x" * 60, STAMP)
    assert (left.output_allowance(1), left.output_allowance(2)) == (0, STDERR_RESERVE - 60)
    right.grant(50)  # the reserve that was used is repaid first
    Cable(left, right).pass_on(0.0)
    assert (left.output_allowance(1), left.output_allowance(2)) == (0, STDERR_RESERVE - 10)


def test_grants_add_up_and_one_that_comes_late_takes_nothing_back() -> None:
    left, _ = pair()
    left.receive(beat(granted=300), 0.0)
    left.receive(beat(granted=200), 0.0)
    assert left.output_allowance(1) == 300


def test_credit_belongs_to_one_wire() -> None:
    left, right = pair()
    right.grant(100)
    Cable(left, right).pass_on(0.0)
    left.send_output(0, 1, 0, b"x" * 80, STAMP)
    left.receive(b"", 1.0)
    right.receive(b"", 1.0)
    assert left.output_allowance(1) == 0
    left.resume(2.0, {})
    right.resume(2.0, {})
    right.grant(50)
    assert left.output_allowance(1) == 0
    Cable(left, right).pass_on(2.0)
    assert left.output_allowance(1) == 50


def test_output_queued_for_a_wire_that_broke_is_not_sent_on_the_next() -> None:
    left, right = pair()
    left.send_output(0, 1, 0, b"old", STAMP)
    left.receive(b"", 1.0)
    left.resume(2.0, {})
    right.resume(2.0, {})
    right.events()
    Cable(left, right).pass_on(2.0)
    assert [type(event) for event in right.events()] == [Synced]
