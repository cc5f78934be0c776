"""What may be said when; and that no sequence of messages, of whatever content, ever raises in a session."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.core import message_check
from mnspawn.core.agent_events import (
    Complete,
    Done,
    Exited,
    LinkLost,
    NotStarted,
    Remark,
    SessionEvent,
    Started,
    StopAsked,
)
from mnspawn.core.message_check import MOVES, Phase, Speaker
from mnspawn.core.run import RunMachine
from mnspawn.core.session import HostSession
from mnspawn_agent.protocol import framing, messages
from mnspawn_agent.protocol.channel import BEAT, OUTPUT_HEAD, Channel
from tests.unit.core.test_facts import odd
from tests.unit.protocol import conversation
from tests.unit.protocol.cable import Cable
from tests.unit.protocol.test_messages import GOOD

NONSENSE = "said something that makes no sense: "


def told_by(session: HostSession, *said: dict[str, Any], agent: Channel | None = None) -> list[SessionEvent]:
    agent = agent or Channel(0.0)
    for message in said:
        agent.send(message)
    Cable(session, agent).pass_on(0.0)
    return session.events()


def running(ranks: Sequence[int] = (0, 1)) -> tuple[HostSession, Channel]:
    session, agent = HostSession(0.0, 1000), Channel(0.0)
    conversation.begin(session, agent, lambda: Cable(session, agent).pass_on(0.0), ranks)
    session.events()
    return session, agent


def loss(events: list[SessionEvent]) -> str:
    """What a host said that ended its session."""
    assert isinstance(events[-1], LinkLost)
    assert events[-1].kind == "nonsense"
    assert events[-1].detail.startswith(NONSENSE)
    return events[-1].detail.removeprefix(NONSENSE)


# -- order


def test_every_phase_of_an_agent_can_be_reached_and_is_left_only_forwards() -> None:
    order = list(Phase)
    reached = {Phase.CALLED}.union(*(moves.values() for moves in MOVES.values()))
    assert reached == set(Phase)
    for phase, moves in MOVES.items():
        assert all(order.index(after) >= order.index(phase) for after in moves.values())


@pytest.mark.parametrize("kind", sorted(set(GOOD) - {messages.HELLO}))
def test_nothing_is_said_before_hello(kind: str) -> None:
    assert loss(told_by(HostSession(0.0, 1000), messages.make(kind, **GOOD[kind]))) == f"{kind} before hello"


def test_a_host_that_was_not_asked_has_nothing_to_answer() -> None:
    session = HostSession(0.0, 1000)
    events = told_by(session, conversation.hello(), conversation.prepared(), conversation.started(0))
    assert loss(events) == "prepared before it was asked to prepare"
    assert session.is_lost


def test_ranks_that_were_not_started_write_nothing() -> None:
    session, agent = HostSession(0.0, 1000), Channel(0.0)
    told_by(session, conversation.hello(), agent=agent)
    session.send(conversation.prepare())
    told_by(session, conversation.prepared(), agent=agent)
    agent.send_output(0, 1, 0, b"x", 1.0)
    assert loss(told_by(session, agent=agent)) == "output while it is prepared"


def test_an_agent_says_each_thing_once() -> None:
    session, agent = running()
    assert loss(told_by(session, conversation.hello(), agent=agent)) == "hello while it is started"
    session, agent = running()
    assert loss(told_by(session, conversation.started(0), agent=agent)) == "started: rank 0, which runs"


def test_what_is_told_before_the_nonsense_counts_and_nothing_behind_it_does() -> None:
    session, agent = running()
    notice = messages.make(messages.NOTICE, text="one")
    events = told_by(session, notice, {"type": "sing"}, notice, agent=agent)
    assert events[0] == Remark("one")
    assert loss(events[1:]) == "unknown message 'sing'"
    assert len(events) == 2
    agent.send(notice)
    session.receive(agent.data_to_send(1.0), 1.0)
    assert session.events() == []


def test_one_that_was_stopped_on_its_host_may_be_done_before_the_start() -> None:
    session, agent = HostSession(0.0, 1000), Channel(0.0)
    told_by(session, conversation.hello(), agent=agent)
    session.send(conversation.prepare())
    stopping = messages.make(messages.STOPPING, reason="SIGTERM", grace=1.0, is_orphaned=False)
    done = messages.make(messages.DONE, leftovers=[], swept=0, sizes=[], at=1.0)
    events = told_by(session, stopping, done, conversation.prepared(), agent=agent)
    assert not any(isinstance(event, LinkLost) for event in events)
    session.send(conversation.start())
    assert not session.is_lost


def test_a_flood_of_notices_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_check, "MAX_NOTICED", 100)
    session, agent = running()
    events = told_by(session, *[messages.make(messages.NOTICE, text="x" * 9) for _ in range(99)], agent=agent)
    assert len(events) == 11
    assert loss(events) == "notices of over 100 characters"


# -- answers


@pytest.mark.parametrize(
    ("asked", "answer", "words"),
    [
        ({}, {"ports": []}, "prepared: 0 ports, expected 1"),
        ({"extra_ports": 2}, {"extra_ports": [7000]}, "prepared: 1 extra_ports, expected 2"),
        ({"files": conversation.FILES}, {"files": ["/a"]}, "prepared: 1 files, expected 3"),
        ({}, {"run_dir": "/a\0b"}, "prepared: run_dir='/a\\x00b'"),
        ({}, {"python": ""}, "prepared: python=''"),
        ({}, {"ports": [0]}, "prepared: ports=[0]"),
        ({}, {"at": math.inf}, "prepared: at=inf"),
    ],
)
def test_an_answer_that_does_not_fit_what_was_asked(asked: Any, answer: Any, words: str) -> None:
    session, agent = HostSession(0.0, 1000), Channel(0.0)
    told_by(session, conversation.hello(), agent=agent)
    session.send(conversation.prepare(**asked))
    said = {**conversation.prepared(), "extra_ports": [7000, 7001][: asked.get("extra_ports", 0)], **answer}
    assert loss(told_by(session, said, agent=agent)) == words


@pytest.mark.parametrize("blobs", [[3], [0, 0], [0, 7]])
def test_files_that_are_none_are_not_sent(blobs: list[int]) -> None:
    session, agent = HostSession(0.0, 1000), Channel(0.0)
    told_by(session, conversation.hello(), agent=agent)
    session.send(conversation.prepare(files=conversation.FILES))
    assert "need: blobs=" in loss(told_by(session, {"type": messages.NEED, "blobs": blobs}, agent=agent))


# -- numbers


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (messages.EXITED, "code", 256),
        (messages.EXITED, "code", -128),
        (messages.EXITED, "seconds", math.nan),
        (messages.EXITED, "seconds", 1e300),
        (messages.EXITED, "at", 10**400),
        (messages.EXITED, "tail", ["x"] * 21),
        (messages.EXITED, "tail", ["x" * 65537]),
        (messages.EXITED, "sizes", [[4, 0]]),
        (messages.EXITED, "sizes", [[1, 1 << 63]]),
        (messages.LOST_OUTPUT, "offset", 1 << 63),
        (messages.LOST_OUTPUT, "stream", 0),
        (messages.STOPPING, "grace", -1),
        (messages.DONE, "sizes", [[9, 1, 0]]),
        (messages.DONE, "swept", 1 << 63),
    ],
)
def test_numbers_have_bounds(kind: str, field: str, value: object) -> None:
    session, agent = running()
    words = loss(told_by(session, {**GOOD[kind], "type": kind, field: value}, agent=agent))
    assert words.startswith(f"{kind}: {field}") or "none of this host's" in words


@pytest.mark.parametrize(
    "frame",
    [
        framing.encode(framing.BEAT, 0, BEAT.pack(0, math.nan, -1.0, 0.0, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(0, math.inf, -1.0, 0.0, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(0, 1e300, -1.0, 0.0, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(0, 0.0, 1.0, -5.0, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(0, 0.0, 1.0, math.nan, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(99, 0.0, -1.0, 0.0, 0)),
        framing.encode(framing.BEAT, 0, BEAT.pack(0, 0.0, -1.0, 0.0, 1 << 63)),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 4, 0, 1.0) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 1, (1 << 64) - 1, 1.0) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 1, 0, math.nan) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 1, 0, 1e300) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 1, 0, -1.0) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(7, 1, 0, 1.0) + b"x"),
        framing.encode(framing.OUTPUT, 0, OUTPUT_HEAD.pack(0, 1, 0, 1.0) + bytes(1 << 20)),
        framing.encode(framing.SYNC, 0, b'{"received":0}'),
    ],
)
def test_frames_with_numbers_that_can_not_be_end_the_session(frame: bytes) -> None:
    session, _ = running()
    session.receive(frame, 1.0)
    assert loss(session.events())
    assert session.to_local(5.0, 9.0) <= 9.0


# -- anything


def mutated(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """A message of a kind with some fields that may be anything."""
    fields = sorted(GOOD[kind])
    wrong = st.dictionaries(st.sampled_from(fields), odd, max_size=2) if fields else st.just({})
    return wrong.map(lambda change: {**GOOD[kind], **change, "type": kind})


anything = st.one_of(
    st.sampled_from(sorted(GOOD)).flatmap(mutated),
    st.sampled_from(sorted(GOOD)).map(lambda kind: {**GOOD[kind], "type": kind}),
    st.dictionaries(st.text(max_size=6), odd, max_size=3),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1 << 64 - 1), st.floats()),
    st.sampled_from(["prepare", "start"]),
)


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(st.sampled_from(list(Speaker)), st.booleans(), st.lists(anything, max_size=12))
def test_whatever_is_said_a_session_and_a_run_never_raise(speaker: Speaker, has_begun: bool, script: list[Any]) -> None:
    session, agent = HostSession(0.0, 1000, speaker=speaker), Channel(0.0)
    machine = RunMachine("r", ["a", "b"], 1.0, 0.0)
    machine.connected(0)
    machine.connected(1)
    machine.laid_out([[0], [1]])
    machine.prepared(0, 1.0)
    machine.prepared(1, 1.0)
    session.expect([0])
    if has_begun and speaker is Speaker.AGENT:
        conversation.begin(session, agent, lambda: Cable(session, agent).pass_on(0.0))
    for step in script:
        if step == "prepare":
            session.send(conversation.prepare([0], files=conversation.FILES))
        elif step == "start":
            session.send(conversation.start())
        elif isinstance(step, tuple):
            rank, stream, offset, time = step
            agent.send_output(rank, stream, offset, b"x", time)
        else:
            agent.send(step)
        now = 1.0
        session.receive(agent.data_to_send(now) or b"\0\0\0\0", now)
        session.data_to_send(now)
        for event in session.events():
            tell(machine, event, now)
        machine.actions()
    machine.report().describe()


def tell(machine: RunMachine, event: SessionEvent, now: float) -> None:
    """What the engine does with an event of the first host."""
    match event:
        case Started(rank, pid, at):
            machine.phase(0, "started", at)
            machine.started(rank, pid)
        case NotStarted(rank, at, error):
            machine.not_started(rank, at, error, now)
        case Exited():
            machine.exited(event, now)
        case StopAsked(reason, grace, is_orphaned):
            machine.stop_asked(now, grace, reason, is_orphaned)
        case Done(leftovers, swept):
            machine.phase(0, "ended", now)
            machine.done(0, leftovers, swept)
        case Complete():
            machine.settled(0, now)
        case LinkLost(_, detail, last_heard):
            machine.announce_loss(0, detail, last_heard, now)
            machine.lost(0, detail, last_heard, False, now)
        case _:
            pass
