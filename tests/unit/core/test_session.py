from collections.abc import Sequence
from typing import Any

import pytest

from mnspawn.core.agent_events import (
    Complete,
    Done,
    Drained,
    Exited,
    Gap,
    Hello,
    LinkLost,
    Need,
    NotStarted,
    Output,
    Prepared,
    Refused,
    Remark,
    SessionEvent,
)
from mnspawn.core.message_check import Speaker
from mnspawn.core.session import HostSession
from mnspawn.report import RankEnd
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Received
from tests.unit.host_facts import facts
from tests.unit.protocol import conversation
from tests.unit.protocol.cable import Cable

STAMP = 1700000000.5  # a wall-clock label
WINDOW = 1000
STDOUT, STDERR = 1, 2


class Pair:
    """A session and the channel of a scripted agent, on one good wire after another."""

    def __init__(self, skew: float = 0.0, ranks: Sequence[int] | None = (0, 1)) -> None:
        self.now = 0.0
        self.skew = skew
        self.session = HostSession(0.0, WINDOW)
        self.agent = Channel(skew)
        if ranks is not None:
            conversation.begin(self.session, self.agent, self.pass_on, ranks)
        self.pass_on()
        self.session.events()
        self.agent.events()

    def pass_on(self, **faults: Any) -> None:
        self.now = Cable(self.session, self.agent, skew=self.skew, **faults).pass_on(self.now)

    def says(self, kind: str, **fields: Any) -> list[SessionEvent]:
        self.agent.send(messages.make(kind, **fields))
        return self.events()

    def outputs(self, offset: int, chunk: bytes, stream: int = STDOUT, rank: int = 0) -> list[SessionEvent]:
        self.agent.send_output(rank, stream, offset, chunk, STAMP)
        return self.events()

    def exits(self, rank: int = 0, at: float = 5.0, **sizes: int) -> list[SessionEvent]:
        pairs = [[{"out": STDOUT, "err": STDERR}[name], size] for name, size in sizes.items()]
        return self.says(messages.EXITED, **{**EXITED, "rank": rank, "at": at, "sizes": pairs})

    def events(self) -> list[SessionEvent]:
        self.pass_on()
        return self.session.events()

    def breaks(self) -> None:
        self.session.receive(b"", self.now)
        self.agent.receive(b"", self.now + self.skew)

    def comes_back(self) -> None:
        self.session.resume(self.now)
        self.agent.resume(self.now + self.skew, {})
        self.agent.events()


EXITED: dict[str, Any] = {
    "rank": 0, "pid": 42, "code": 0, "at": 5.0, "seconds": 4.0, "stopped": False, "killed": False,
    "outlived_term": False, "is_disk_full": False, "sizes": [], "tail": ["bye"], "raised": None,
}  # fmt: skip


def text(events: list[SessionEvent]) -> bytes:
    return b"".join(event.chunk for event in events if isinstance(event, Output))


def kinds(events: list[SessionEvent]) -> list[type]:
    return [type(event) for event in events]


# -- messages


def test_messages_become_events_with_checked_fields() -> None:
    pair = Pair(ranks=None)
    pair.agent.send(conversation.hello(cpus=2))
    assert pair.events() == [Hello(facts(cpus=2), True)]
    pair.session.send(conversation.prepare([0], files=conversation.FILES[:2], extra_ports=2))
    assert pair.says(messages.NEED, blobs=[0, 1]) == [Need((0, 1))]
    answer = {"ports": [6070], "extra_ports": [7000, 7001], "run_dir": "/r", "workdir": "/w", "python": "/p"}
    assert pair.says(messages.PREPARED, **answer, files=["/f", "/g"], reach=[["10.0.0.2", ""]], at=1.0) == [
        Prepared((6070,), (7000, 7001), "/r", "/w", "/p", ("/f", "/g"), {"10.0.0.2": ""})
    ]
    assert pair.says(messages.NOTICE, text="the disk is full") == [Remark("the disk is full")]


def test_a_refusal_comes_with_its_reasons() -> None:
    pair = Pair(ranks=None)
    pair.agent.send(conversation.hello())
    pair.events()
    pair.session.send(conversation.prepare())
    assert pair.says(messages.REFUSED, reasons=["no script /x"]) == [Refused(("no script /x",))]


def test_another_protocol_is_refused_in_words() -> None:
    events = Pair(ranks=None).says(messages.HELLO, protocol=99, version="x", facts={}, cached=True)
    assert events == [Refused(("expected protocol 1, found 99",))]


# -- the agent's clock


def test_times_of_the_agent_are_told_on_our_clock() -> None:
    pair = Pair(skew=5000.0)
    pair.agent.beat()
    pair.pass_on(delay=0.01)
    pair.now = 100.0
    (event,) = pair.says(messages.EXITED, **{**EXITED, "at": 5090.0, "sizes": [[STDOUT, 1]]})
    assert isinstance(event, Exited)
    assert event.at == pytest.approx(90.0, abs=0.02)


def test_nothing_on_the_agents_side_happens_in_our_future() -> None:
    pair = Pair(ranks=None)
    conversation.begin(pair.session, pair.agent, pair.pass_on, [])
    pair.session.expect([0])
    pair.session.events()
    pair.now = 7.0
    (event,) = pair.says(messages.NOT_STARTED, rank=0, at=1e6, error="no such file")
    assert event == NotStarted(0, 7.0, "no such file")


# -- output


def test_output_is_passed_on_in_order_with_its_offsets() -> None:
    pair = Pair()
    assert pair.outputs(0, b"ab") == [Output(0, STDOUT, 0, b"ab", STAMP)]
    assert pair.outputs(2, b"c") == [Output(0, STDOUT, 2, b"c", STAMP)]
    assert pair.outputs(0, b"x", rank=1) == [Output(1, STDOUT, 0, b"x", STAMP)]
    assert pair.outputs(0, b"y", stream=STDERR) == [Output(0, STDERR, 0, b"y", STAMP)]
    assert pair.session.offsets == {(0, STDOUT): 3, (1, STDOUT): 1, (0, STDERR): 1}


def test_bytes_that_came_before_are_left_out_whole_or_in_part() -> None:
    pair = Pair()
    pair.outputs(0, b"abcdef")
    assert pair.outputs(0, b"abc") == []
    assert pair.outputs(3, b"defgh") == [Output(0, STDOUT, 6, b"gh", STAMP)]


def test_bytes_that_are_missing_are_counted_before_what_follows_them() -> None:
    pair = Pair()
    pair.outputs(0, b"ab")
    assert pair.outputs(10, b"k") == [Gap(0, STDOUT, 2, 8), Output(0, STDOUT, 10, b"k", STAMP)]


def test_output_that_the_agent_lost_is_a_gap_as_far_as_we_did_not_have_it() -> None:
    pair = Pair()
    pair.outputs(0, b"abcd")
    assert pair.says(messages.LOST_OUTPUT, rank=0, stream=STDOUT, offset=2, count=8) == [Gap(0, STDOUT, 4, 6)]
    assert pair.says(messages.LOST_OUTPUT, rank=0, stream=STDOUT, offset=0, count=10) == []
    assert pair.outputs(10, b"k") == [Output(0, STDOUT, 10, b"k", STAMP)]


def test_an_empty_chunk_is_no_event() -> None:
    assert Pair().outputs(0, b"") == []


# -- ends


def test_an_exit_is_drained_only_when_every_stream_has_reached_its_size() -> None:
    pair = Pair()
    exited = Exited(0, pair.now, RankEnd(42, 0, 4.0, tail=("bye",)))
    assert pair.exits(out=3, err=2) == [exited]
    assert kinds(pair.outputs(0, b"abc")) == [Output]
    assert kinds(pair.outputs(0, b"e", stream=STDERR)) == [Output]
    assert pair.outputs(1, b"f", stream=STDERR) == [Output(0, STDERR, 1, b"f", STAMP), Drained(exited)]


def test_an_exit_without_output_is_drained_at_once() -> None:
    assert kinds(Pair().exits(out=0, err=0)) == [Exited, Drained]


def test_lost_output_drains_an_exit_too() -> None:
    pair = Pair()
    pair.exits(out=5)
    events = pair.says(messages.LOST_OUTPUT, rank=0, stream=STDOUT, offset=0, count=5)
    assert kinds(events) == [Gap, Drained]


def test_the_session_is_complete_once_when_all_that_was_written_has_come() -> None:
    pair = Pair()
    assert kinds(pair.exits(out=2)) == [Exited]
    assert kinds(pair.says(messages.DONE, leftovers=[[7, "hangs"]], swept=1, sizes=[[0, STDOUT, 3]], at=6.0)) == [Done]
    assert kinds(pair.outputs(0, b"ab")) == [Output, Drained]
    assert kinds(pair.outputs(2, b"!")) == [Output, Complete]
    assert pair.outputs(3, b"late") == [Output(0, STDOUT, 3, b"late", STAMP)]


def test_a_pod_that_wrote_nothing_is_complete_with_its_done() -> None:
    done = Pair().says(messages.DONE, leftovers=[], swept=0, sizes=[[0, STDOUT, 0]], at=6.0)
    assert done == [Done((), 0), Complete()]


# -- a link that breaks


def test_a_break_is_told_with_the_last_sign_of_life() -> None:
    pair = Pair()
    pair.now = 3.0
    pair.says(messages.NOTICE, text="here")
    pair.now = 8.0
    pair.breaks()
    assert pair.session.events() == [LinkLost("eof", "the connection ended", 3.0)]
    assert pair.session.is_lost
    assert pair.session.deadline is None


def test_silence_is_a_break() -> None:
    session = HostSession(0.0, WINDOW)
    session.on_time(10.0)
    assert session.events() == [LinkLost("silence", "no heartbeat for 10 s", 0.0)]


@pytest.mark.parametrize(("limit", "last"), [(3.0, 3.0), (None, 1e9)])
def test_prepare_says_which_silence_is_a_break(limit: float | None, last: float) -> None:
    session = HostSession(0.0, WINDOW)
    session.send(conversation.prepare(silence_limit=limit))
    session.on_time(last - 0.1)
    assert not session.is_lost
    session.on_time(last)
    assert session.is_lost is (limit is not None)


def test_after_a_break_the_agent_is_told_where_every_stream_goes_on() -> None:
    pair = Pair(ranks=[0, 4])
    pair.outputs(0, b"abc")
    pair.outputs(0, b"e", stream=STDERR, rank=4)
    pair.breaks()
    pair.session.events()
    pair.comes_back()
    pair.pass_on()
    synced = pair.agent.events()[0]
    assert sorted(synced.message["offsets"]) == [[0, STDOUT, 3], [4, STDERR, 1]]  # type: ignore[union-attr]
    assert pair.outputs(0, b"abcd") == [Output(0, STDOUT, 3, b"d", STAMP)]


def test_what_was_said_while_there_was_no_link_arrives_once_it_is_back() -> None:
    pair = Pair()
    pair.breaks()
    pair.agent.events()
    pair.session.send(messages.make(messages.STOP, grace=1.0))
    assert pair.session.data_to_send(pair.now) == b""
    pair.comes_back()
    pair.pass_on()
    assert [event for event in pair.agent.events() if isinstance(event, Received)] == [
        Received({"type": "stop", "grace": 1.0})
    ]


def test_a_session_that_goes_on_from_an_earlier_one_leaves_out_what_that_one_had() -> None:
    session = HostSession(0.0, WINDOW, offsets={(0, STDOUT): 4}, speaker=Speaker.WATCHER)
    agent = Channel(0.0)
    agent.send_output(0, STDOUT, 0, b"abcdef", STAMP)
    Cable(session, agent).pass_on(0.0)
    assert text(session.events()) == b"ef"


# -- credit


def test_the_agent_may_send_a_window_and_gets_more_when_a_quarter_of_it_is_consumed() -> None:
    pair = Pair()
    assert pair.agent.output_allowance(1) == WINDOW
    pair.outputs(0, b"x" * 600)
    assert pair.agent.output_allowance(1) == 400
    pair.session.consumed(249)
    pair.pass_on()
    assert pair.agent.output_allowance(1) == 400
    pair.session.consumed(1)
    pair.pass_on()
    assert pair.agent.output_allowance(1) == 650


def test_bytes_that_are_left_out_cost_no_credit() -> None:
    pair = Pair()
    pair.outputs(0, b"x" * 300)
    pair.session.consumed(300)
    pair.outputs(0, b"x" * 300)
    pair.pass_on()
    assert pair.agent.output_allowance(1) == WINDOW


def test_a_new_wire_begins_with_a_whole_window() -> None:
    pair = Pair()
    pair.outputs(0, b"x" * 900)
    pair.breaks()
    pair.comes_back()
    pair.pass_on()
    assert pair.agent.output_allowance(1) == WINDOW
    assert text(pair.session.events()) == b""
