import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from mnspawn.core.agent_events import Hello, LinkLost, Remark, SessionEvent
from mnspawn.engine.link.feed import WINDOW_MOST, Feed
from mnspawn.engine.link.join import Wire
from mnspawn.engine.link.sites import Reached
from mnspawn.engine.request import Limits
from mnspawn.errors import HostError
from mnspawn.transport.base import Target
from mnspawn_agent.protocol import channel, messages
from mnspawn_agent.protocol.channel import Channel, Received
from mnspawn_inventory import Host
from tests.support import wait_until_async
from tests.support.memory_transport import MemoryHost, MemoryTransport, Stdio
from tests.unit.host_facts import FACTS, facts


@pytest.fixture(autouse=True)
async def in_debug_mode() -> None:
    asyncio.get_running_loop().set_debug(True)


@pytest.fixture(autouse=True)
def nothing_complains(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio says in its log what nobody awaited and which errors nobody looked at."""
    yield
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


class Peer:
    """A remote process that does what the test says; its agent is a bare channel."""

    def __init__(self) -> None:
        self.agent = Channel(0.0)
        self.takes = asyncio.Event()
        self.takes.set()
        self.written = bytearray()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._is_closed = False

    # -- what a feed sees
    async def read(self) -> bytes:
        return await self._inbox.get()

    async def write(self, chunk: bytes) -> None:
        self.written += chunk
        self.agent.receive(chunk, 0.0)
        await self.takes.wait()

    async def read_diagnostics(self) -> bytes:
        return b""

    async def write_eof(self) -> None: ...

    async def wait(self) -> int | None:
        return None

    async def close(self) -> None: ...

    # -- what the test does
    def says(self, kind: str, **fields: object) -> bytes:
        self.agent.send(messages.make(kind, **fields))
        return self.agent.data_to_send(0.0)

    def sends(self, chunk: bytes) -> None:
        self._inbox.put_nowait(chunk)

    def heard(self) -> list[str]:
        return [event.message["type"] for event in self.agent.events() if isinstance(event, Received)]


REACHED = Reached((Host(name="h1"),), (Target("h1"),), (MemoryTransport(),))


class Followed(Feed):
    """A host that is followed over one wire, and what it told."""

    def __init__(self, peer: Peer, silence_limit: float = 10.0, first: bytes = b"") -> None:
        super().__init__(REACHED, 0, None, 10.0, Limits(silence=silence_limit), self.take)
        self.peer = peer
        self.told: list[SessionEvent] = []
        self.task = self.follow(first)

    def follow(self, first: bytes = b"") -> "asyncio.Task[LinkLost]":
        return asyncio.create_task(self.serve(Wire("h1", self.peer, first)))

    def take(self, events: list[SessionEvent]) -> None:
        self.told += events

    async def until(self, condition: Callable[[], object]) -> None:
        await wait_until_async(condition)


async def test_bytes_move_both_ways_and_an_end_is_told_once() -> None:
    feed = Followed(peer := Peer())
    feed.send(messages.STOP, grace=1.0)
    peer.sends(peer.says(messages.HELLO, protocol=1, version="x", facts=FACTS, cached=True))
    peer.sends(peer.says(messages.NOTICE, text="one"))
    peer.sends(peer.says(messages.NOTICE, text="two"))
    await feed.until(lambda: len(feed.told) == 3 and peer.heard() == ["stop"])
    peer.sends(b"")
    await feed.task
    assert feed.told[1:3] == [Remark("one"), Remark("two")]
    assert [event.kind for event in feed.told[3:] if isinstance(event, LinkLost)] == ["eof"]
    assert len(feed.told) == 4


async def test_bytes_that_came_with_the_handshake_come_first() -> None:
    peer = Peer()
    hello = peer.says(messages.HELLO, protocol=1, version="x", facts=FACTS, cached=True)
    feed = Followed(peer, first=hello)
    peer.sends(peer.says(messages.NOTICE, text="later"))
    peer.sends(b"")
    await feed.task
    assert feed.told[:2] == [Hello(facts(), True), Remark("later")]


async def test_the_first_thing_said_is_the_credit() -> None:
    feed = Followed(peer := Peer())
    await feed.until(lambda: peer.agent.output_allowance(1) == WINDOW_MOST)
    peer.sends(b"")
    await feed.task


async def test_something_to_say_later_is_sent_at_once() -> None:
    feed = Followed(peer := Peer())
    await feed.until(lambda: peer.written)
    before = len(peer.written)
    feed.send(messages.FINISH, keep=True)
    await feed.until(lambda: len(peer.written) > before)
    assert peer.heard() == ["finish"]
    peer.sends(b"")
    await feed.task


async def test_silence_ends_a_wire() -> None:
    feed = Followed(Peer(), silence_limit=0.05)
    await feed.task
    assert [event.kind for event in feed.told if isinstance(event, LinkLost)] == ["silence"]


async def test_garbage_ends_a_wire() -> None:
    feed = Followed(peer := Peer())
    peer.sends(b"Connection to host closed.\r\n")
    await feed.task
    assert [event.kind for event in feed.told if isinstance(event, LinkLost)] == ["garbage"]


async def test_an_end_is_seen_while_a_write_hangs() -> None:
    feed = Followed(peer := Peer())
    peer.takes.clear()
    feed.send(messages.STOP, grace=1.0)
    await feed.until(lambda: peer.written)
    peer.sends(b"")
    await feed.task
    assert feed.session.is_lost


async def test_silence_is_seen_while_a_write_hangs_and_nobody_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BEAT_INTERVAL", 0.02)
    peer = Peer()
    peer.takes.clear()
    feed = Followed(peer, silence_limit=0.3)
    looks = 0
    on_time = feed.session.on_time

    def counted(now: float) -> None:
        nonlocal looks
        looks += 1
        on_time(now)

    monkeypatch.setattr(feed.session, "on_time", counted)
    await feed.task
    assert [event.kind for event in feed.told if isinstance(event, LinkLost)] == ["silence"]
    assert 2 <= looks <= 20


async def test_a_link_that_is_lost_already_is_not_served() -> None:
    feed = Followed(peer := Peer())
    feed.give_up("it does not go on")
    await feed.task
    assert peer.written == b""


async def test_our_own_mistake_while_delivering_comes_out() -> None:
    peer = Peer()
    peer.sends(peer.says(messages.NOTICE, text="one"))
    feed = Followed(peer)

    def take(events: list[SessionEvent]) -> None:
        raise ZeroDivisionError

    feed._on_events = take
    with pytest.raises(ZeroDivisionError):
        await feed.task


async def test_cancelling_ends_all_of_it() -> None:
    feed = Followed(peer := Peer())
    await feed.until(lambda: peer.written)
    feed.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await feed.task
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("link ")] == []


async def test_a_session_goes_on_over_a_second_wire() -> None:
    feed = Followed(peer := Peer())
    await feed.until(lambda: peer.written)
    peer.sends(b"")
    await feed.task
    feed.send(messages.STOP, grace=1.0)
    peer.agent.resume(0.0, {})
    feed.session.resume(asyncio.get_running_loop().time())
    peer.sends(peer.agent.data_to_send(0.0))
    again = feed.follow()
    await feed.until(lambda: "stop" in peer.heard())
    peer.sends(b"")
    await again


# -- the way to a new wire


class Attempts:
    """Takes what it is given, up to a count."""

    def __init__(self, count: int) -> None:
        self.given: list[object] = []
        self._count = count

    async def __call__(self, outcome: object) -> bool:
        self.given.append(outcome)
        return len(self.given) == self._count


def reached(*refusals: HostError) -> tuple[MemoryTransport, Reached]:
    async def program(stdio: Stdio, command: str) -> int:
        return 0

    transport = MemoryTransport(hosts={"h1": MemoryHost(program, refusals=list(refusals))})
    return transport, Reached((Host(name="h1"),), (Target("h1"),), (transport,))


async def test_a_host_is_dialled_until_somebody_is_content_and_a_connection_that_stands_is_kept() -> None:
    refusals = [HostError("no", host="h1"), HostError("not yet", host="h1")]
    transport, hosts = reached(*refusals)
    feed = Feed(hosts, 0, None, 10.0, Limits(retry_first=0.0), lambda events: None)
    attempt = Attempts(4)
    await feed.persist(attempt)
    assert attempt.given == [*refusals, *transport.connections * 2]
    assert feed.connection is transport.connections[0]
    await feed.close()
    assert transport.connections[0].is_closed
    assert feed.connection is None


async def test_what_dialling_has_brought_already_is_the_first_attempt() -> None:
    transport, hosts = reached()
    feed = Feed(hosts, 0, None, 10.0, Limits(retry_first=0.0), lambda events: None)
    first = HostError("refused", host="h1")
    attempt = Attempts(2)
    await feed.persist(attempt, first=first)
    assert attempt.given == [first, *transport.connections]
    await feed.close()


async def test_a_host_that_never_answers_is_tried_no_longer_than_it_may() -> None:
    transport, hosts = reached()
    transport.hosts["h1"].answers = False
    feed = Feed(hosts, 0, None, 10.0, Limits(retry_first=0.0), lambda events: None)
    attempt = Attempts(1)
    await feed.persist(attempt, lambda: 0.01)
    assert [str(error) for error in attempt.given] == ["h1: no answer"]


async def test_an_agent_that_is_given_up_is_lost_for_that_reason() -> None:
    feed = Followed(peer := Peer())
    await feed.until(lambda: peer.written)
    feed.give_up("it answers, and does not go on")
    lost = await feed.task
    assert (lost.kind, lost.detail) == ("stuck", "it answers, and does not go on")
    assert feed.told == []
