"""Two channels and a wire that does anything: whatever happens, sequenced frames come in order, each once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_agent.protocol.channel import BlobChunk, Channel, Lost, Received
from tests.unit.protocol.cable import Cable

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["left says", "right says", "left sends a blob"]), st.just(0)),
        st.tuples(st.just("bytes arrive, then a cut"), st.integers(0, 400)),
        st.tuples(st.just("all arrives in pieces"), st.integers(1, 50)),
        st.tuples(st.just("seconds pass"), st.integers(1, 12)),
    ),
    max_size=30,
)


class Side:
    """A channel and all that it has told."""

    def __init__(self) -> None:
        self.channel = Channel(0.0)
        self.sent: list[object] = []
        self.came: list[object] = []
        self.losses = 0

    def say(self) -> None:
        message = {"n": len(self.sent)}
        self.sent.append(message)
        self.channel.send(message)

    def send_blob(self) -> None:
        chunk = b"%d" % len(self.sent)
        self.sent.append((1, 0, chunk))
        self.channel.send_blob(1, 0, chunk)

    def take(self) -> None:
        for event in self.channel.events():
            if isinstance(event, Received):
                self.came.append(event.message)
            elif isinstance(event, BlobChunk):
                self.came.append(tuple(event))
            elif isinstance(event, Lost):
                self.losses += 1
                assert self.channel.is_lost


@settings(max_examples=150)
@given(steps)
def test_whatever_the_wire_does_everything_comes_in_order_and_once(script: list[tuple[str, int]]) -> None:
    left, right = Side(), Side()
    now = 0.0

    def reconnect() -> None:
        for side in (left, right):
            side.take()
            losses = side.losses
            if not side.channel.is_lost:
                side.channel.receive(b"", now)
                side.take()
                assert side.losses == losses + 1
            side.channel.resume(now, {})

    for step, number in script:
        if step == "left says":
            left.say()
        elif step == "right says":
            right.say()
        elif step == "left sends a blob":
            left.send_blob()
        elif step == "seconds pass":
            now += number
            left.channel.on_time(now)
            right.channel.on_time(now)
            if left.channel.is_lost or right.channel.is_lost:
                reconnect()
        elif step == "all arrives in pieces":
            now = Cable(left.channel, right.channel, piece=number, delay=0.001).pass_on(now)
        else:
            Cable(left.channel, right.channel, budget=number, piece=9).pass_on(now)
            reconnect()
        left.take()
        right.take()
        assert right.came == left.sent[: len(right.came)]
        assert left.came == right.sent[: len(left.came)]
    reconnect()
    Cable(left.channel, right.channel, piece=3).pass_on(now)
    left.channel.beat()
    right.channel.beat()
    Cable(left.channel, right.channel, piece=3).pass_on(now)
    left.take()
    right.take()
    assert right.came == left.sent
    assert left.came == right.sent
    assert left.channel.unacknowledged_bytes == right.channel.unacknowledged_bytes == 0
