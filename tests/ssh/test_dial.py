"""Dialling: everybody at once within bounds, again and again while the reason is transient, nobody forgotten."""

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.core.backoff import Backoff
from mnspawn.engine.link import dial as dialling
from mnspawn.engine.link.dial import dial, look_up
from mnspawn.errors import AuthRefused, ConnectionClosed, ConnectTimeout, HostError, UsageError
from mnspawn.transport import Connection, SshOptions, Target
from tests.ssh.places import shell
from tests.support.memory_transport import MemoryHost, MemoryTransport
from tests.support.waiting import PATIENCE

SHORT = 1.0  # seconds, where time must run out


def memory(*names: str) -> MemoryTransport:
    return MemoryTransport(hosts={name: MemoryHost(shell) for name in names})


async def collect(
    memory: MemoryTransport, *targets: Target, timeout: float = PATIENCE
) -> dict[str, Connection | HostError]:
    answers = {}
    async for index, answer in dial([memory] * len(targets), targets, connect_timeout=timeout):
        assert targets[index].name not in answers
        answers[targets[index].name] = answer
    return answers


def targets(*names: str) -> tuple[Target, ...]:
    return tuple(Target(name) for name in names)


async def test_each_host_answers_once() -> None:
    network = memory("a", "b", "c")
    network.hosts["b"].refusals = [AuthRefused("no", host="b")]
    answers = await collect(network, *targets("a", "b", "c"))
    assert isinstance(answers["b"], AuthRefused)
    assert Counter(network.attempts) == {"a": 1, "b": 1, "c": 1}
    await network.close()


async def test_what_is_transient_is_tried_again() -> None:
    network = memory("a")
    network.hosts["a"].refusals = [ConnectionClosed("hung up", host="a")] * 3
    answers = await collect(network, Target("a"))
    assert not isinstance(answers["a"], HostError)
    assert len(network.attempts) == 4
    await network.close()


async def test_the_last_refusal_is_told_when_time_is_up() -> None:
    network = memory("a")
    network.hosts["a"].refusals = [ConnectionClosed(f"number {number}", host="a") for number in range(1000)]
    answers = await collect(network, Target("a"), timeout=SHORT)
    refusal = answers["a"]
    assert isinstance(refusal, ConnectionClosed)
    assert refusal.message == f"number {len(network.attempts) - 1}"
    assert 2 <= len(network.attempts) < 40  # 0.05 s between the first two at least, ever more after them


async def test_a_host_that_never_answers_does_not_hold_up_the_others() -> None:
    network = MemoryTransport(SshOptions(connect_timeout=SHORT), memory("a", "b").hosts)
    network.hosts["a"].answers = False
    answers = await collect(network, *targets("a", "b"), timeout=SHORT)
    assert isinstance(answers["a"], ConnectTimeout)
    assert not isinstance(answers["b"], HostError)
    await network.close()


async def test_no_server_has_more_connections_waiting_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = memory(*(f"h{number}" for number in range(40)))
    waiting = most = 0
    full = asyncio.Event()
    connect = network.connect

    async def counted(target: Target) -> Connection:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == enough:
            full.set()
        await full.wait()  # nobody is let in before as many as may be stand at the door
        await asyncio.sleep(0)
        waiting -= 1
        return await connect(target)

    monkeypatch.setattr(network, "connect", counted)
    enough = dialling.PER_SERVER
    aliases = [Target(f"h{number}", address="10.0.0.1", port=22) for number in range(40)]
    answers = await collect(network, *aliases)
    assert (len(answers), most) == (40, dialling.PER_SERVER)
    waiting, most, enough = 0, 0, 40
    full.clear()
    answers = await collect(network, *(Target(f"h{number}") for number in range(40)))
    assert (len(answers), most) == (40, 40)
    await network.close()


async def test_giving_up_closes_what_nobody_took() -> None:
    network = memory("a", "b", "c")
    network.hosts["c"].answers = False
    asked = dial([network] * 3, targets("a", "b", "c"), connect_timeout=PATIENCE)
    _, first = await anext(asked)
    await asked.aclose()  # type: ignore[attr-defined]
    assert sorted(connection.is_closed for connection in network.connections) == [False, True]
    assert not isinstance(first, HostError)
    await first.close()


@given(chances=st.lists(st.floats(0, 1), min_size=1, max_size=50), deadline=st.floats(0.01, 100))
def test_pauses_grow_to_a_bound_and_end_before_the_deadline(chances: list[float], deadline: float) -> None:
    backoff = Backoff(deadline, first=0.1, longest=2.0)
    now, step = 0.0, 0.1
    for chance in chances:
        pause = backoff.next_pause(now, chance)
        assert pause is None or step / 2 <= pause <= step
        if pause is None:
            assert now + step >= deadline
            return
        now += pause
        assert now < deadline
        step = min(step * 2, 2.0)


class Slow(MemoryTransport):
    """Some hosts take long to be looked up, one is not written down right."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = threading.Event()

    def endpoint(self, target: Target) -> str:
        if target.name.startswith("slow"):
            self.answered.wait(PATIENCE)
        if target.name == "bad":
            raise UsageError("bad value", place="config:3")
        return target.name


async def test_bad_input_of_one_host_is_told_before_any_is_dialled() -> None:
    network = Slow()
    with pytest.raises(UsageError, match="config:3: bad value"):
        await look_up([network] * 3, targets("a", "bad", "b"))
    assert network.attempts == []


async def test_who_is_slow_to_be_looked_up_is_not_waited_for() -> None:
    network = Slow()
    async with asyncio.timeout(PATIENCE / 2):
        await look_up([network] * 2, targets("slow", "a"))
    network.answered.set()


async def test_thousands_are_looked_up_before_the_first_is_dialled() -> None:
    network = Slow()
    names = [*(f"h{number}" for number in range(2000)), "bad"]
    with pytest.raises(UsageError, match="bad value"):
        await look_up([network] * len(names), targets(*names))
