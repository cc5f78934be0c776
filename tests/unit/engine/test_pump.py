import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from mnspawn.core.session import Hello, HostSession, LinkLost, Remark, SessionEvent
from mnspawn.engine.link.pump import pump
from mnspawn_agent.protocol import channel, messages
from mnspawn_agent.protocol.channel import Channel, Received
from tests.support import wait_until_async
from tests.unit.said import FACTS, facts


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

    # -- what pump sees
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


class Pumped:
    """A session that is being pumped, and what it told."""

    def __init__(self, peer: Peer, silence_limit: float = 10.0, first: bytes = b"") -> None:
        self.peer = peer
        self.session = HostSession(asyncio.get_running_loop().time(), 1 << 20, silence_limit)
        self.told: list[SessionEvent] = []
        self.wake = asyncio.Event()
        self.task = asyncio.create_task(pump(peer, self.session, first, self.deliver, self.wake))

    def deliver(self) -> None:
        self.told += self.session.events()

    def send(self, kind: str, **fields: object) -> None:
        self.session.send(messages.make(kind, **fields))
        self.wake.set()

    async def until(self, condition: Callable[[], object]) -> None:
        await wait_until_async(condition)


async def test_bytes_move_both_ways_and_an_end_is_told_once() -> None:
    pumped = Pumped(peer := Peer())
    pumped.send(messages.STOP, grace=1.0)
    peer.sends(peer.says(messages.HELLO, protocol=1, version="x", facts=FACTS, cached=True))
    peer.sends(peer.says(messages.NOTICE, text="one"))
    peer.sends(peer.says(messages.NOTICE, text="two"))
    await pumped.until(lambda: len(pumped.told) == 3 and peer.heard() == ["stop"])
    peer.sends(b"")
    await pumped.task
    assert pumped.told[1:3] == [Remark("one"), Remark("two")]
    assert [event.kind for event in pumped.told[3:] if isinstance(event, LinkLost)] == ["eof"]
    assert len(pumped.told) == 4


async def test_bytes_that_came_with_the_handshake_come_first() -> None:
    peer = Peer()
    hello = peer.says(messages.HELLO, protocol=1, version="x", facts=FACTS, cached=True)
    pumped = Pumped(peer, first=hello)
    peer.sends(peer.says(messages.NOTICE, text="later"))
    peer.sends(b"")
    await pumped.task
    assert pumped.told[:2] == [Hello(facts(), True), Remark("later")]


async def test_the_first_thing_said_is_the_credit() -> None:
    pumped = Pumped(peer := Peer())
    await pumped.until(lambda: peer.agent.output_allowance(1) == 1 << 20)
    peer.sends(b"")
    await pumped.task


async def test_something_to_say_later_is_sent_at_once() -> None:
    pumped = Pumped(peer := Peer())
    await pumped.until(lambda: peer.written)
    before = len(peer.written)
    pumped.send(messages.FINISH, keep=True)
    await pumped.until(lambda: len(peer.written) > before)
    assert peer.heard() == ["finish"]
    peer.sends(b"")
    await pumped.task


async def test_silence_ends_the_pump() -> None:
    pumped = Pumped(Peer(), silence_limit=0.05)
    await pumped.task
    assert [event.kind for event in pumped.told if isinstance(event, LinkLost)] == ["silence"]


async def test_garbage_ends_the_pump() -> None:
    pumped = Pumped(peer := Peer())
    peer.sends(b"Connection to host closed.\r\n")
    await pumped.task
    assert [event.kind for event in pumped.told if isinstance(event, LinkLost)] == ["garbage"]


async def test_an_end_is_seen_while_a_write_hangs() -> None:
    pumped = Pumped(peer := Peer())
    peer.takes.clear()
    pumped.send(messages.STOP, grace=1.0)
    await pumped.until(lambda: peer.written)
    peer.sends(b"")
    await pumped.task
    assert pumped.session.is_lost


async def test_silence_is_seen_while_a_write_hangs_and_nobody_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BEAT_INTERVAL", 0.02)
    peer = Peer()
    peer.takes.clear()
    pumped = Pumped(peer, silence_limit=0.3)
    looks = 0
    on_time = pumped.session.on_time

    def counted(now: float) -> None:
        nonlocal looks
        looks += 1
        on_time(now)

    monkeypatch.setattr(pumped.session, "on_time", counted)
    await pumped.task
    assert [event.kind for event in pumped.told if isinstance(event, LinkLost)] == ["silence"]
    assert 2 <= looks <= 20


async def test_a_link_that_is_lost_already_is_not_pumped() -> None:
    pumped = Pumped(peer := Peer())
    pumped.session.receive(b"", 0.0)
    await pumped.task
    assert peer.written == b""


async def test_our_own_mistake_while_delivering_comes_out() -> None:
    peer = Peer()
    peer.sends(peer.says(messages.NOTICE, text="one"))
    session = HostSession(asyncio.get_running_loop().time(), 1 << 20)

    def deliver() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await pump(peer, session, b"", deliver, asyncio.Event())


async def test_cancelling_ends_all_of_it() -> None:
    pumped = Pumped(peer := Peer())
    await pumped.until(lambda: peer.written)
    pumped.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pumped.task
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("link ")] == []


async def test_a_session_goes_on_over_a_second_wire() -> None:
    pumped = Pumped(peer := Peer())
    await pumped.until(lambda: peer.written)
    peer.sends(b"")
    await pumped.task
    pumped.send(messages.STOP, grace=1.0)
    peer.agent.resume(0.0, {})
    pumped.session.resume(asyncio.get_running_loop().time())
    peer.sends(peer.agent.data_to_send(0.0))
    again = asyncio.create_task(pump(peer, pumped.session, b"", pumped.deliver, pumped.wake))
    await pumped.until(lambda: "stop" in peer.heard())
    peer.sends(b"")
    await again
