"""A look at hosts that answer as a test wants them to: what they say is never trusted to make sense."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from mnspawn.bootstrap import stub
from mnspawn.engine.fleet.checkup import CLOCK_SAMPLES, Checkup, Examined
from mnspawn.engine.link.sites import Reached
from mnspawn.transport.base import Target
from mnspawn_inventory import Host
from tests.support import PATIENCE
from tests.unit import host_facts

NONCE = "0123"
FACTS: dict[str, Any] = {**host_facts.FACTS, **host_facts.CHECKED, "memory": {}}


class Agent:
    """A connection, and the process on it: an agent that says `facts` of itself."""

    def __init__(self, facts: object, reach: object) -> None:
        self._answers = {"clock": {"time": 1.0}, "host": facts, "reach": {"reach": reach}}
        self._said = b""
        self.asked: list[dict[str, Any]] = []

    async def run(self, command: str) -> "Agent":
        self._said = b"\n%s %s have\n" % (stub.MARK, NONCE.encode())
        return self

    async def read(self) -> bytes:
        said, self._said = self._said, b""
        return said

    async def read_diagnostics(self) -> bytes:
        return b""

    async def write(self, chunk: bytes) -> None:
        question = json.loads(chunk)
        self.asked.append(question)
        self._said = json.dumps(self._answers[question["ask"]]).encode() + b"\n"

    async def write_eof(self) -> None: ...

    async def wait(self) -> int | None:
        return 0

    async def close(self) -> None: ...


class Hosts:
    """A transport to agents by name."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self.agents = agents

    def endpoint(self, target: Target) -> str:
        return target.name

    async def connect(self, target: Target) -> Agent:
        return self.agents[target.name]

    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
def known_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stub, "make_nonce", lambda: NONCE)


async def look(agents: Mapping[str, Agent], transport: Hosts | None = None) -> list[Examined]:
    hosts = tuple(Host(name=name) for name in agents)
    transport = transport or Hosts(agents)
    reached = Reached(hosts, tuple(Target(name) for name in agents), (transport,) * len(hosts))
    return await Checkup(reached, PATIENCE).execute()


def facts_of(number: int, **changed: Any) -> dict[str, Any]:
    return {**FACTS, "netid": f"n{number}", "interfaces": [["e0", f"10.0.0.{number}"]], **changed}


async def test_every_host_tries_the_others_at_two_ports() -> None:
    agents = {f"h{n}": Agent(facts_of(n), []) for n in (1, 2, 3)}
    examined = await look(agents)
    assert [(one.host, one.address, [f.check for f in one.findings]) for one in examined] == [
        ("h1", "10.0.0.1", ["clock"]),
        ("h2", "10.0.0.2", ["clock"]),
        ("h3", "10.0.0.3", ["clock"]),
    ]
    assert agents["h2"].asked[-1]["targets"] == [
        ["10.0.0.1", 6070], ["10.0.0.1", 20000], ["10.0.0.3", 6070], ["10.0.0.3", 20000]
    ]  # fmt: skip


async def test_hosts_of_one_network_stack_try_nobody() -> None:
    agents = {
        f"h{n}": Agent({**FACTS, "own_name": {"name": "x", "addresses": ["::1"], "problem": ""}}, []) for n in (1, 2)
    }
    examined = await look(agents)
    assert [finding.check for one in examined for finding in one.findings] == ["clock", "clock"]
    assert all(question["ask"] != "reach" for agent in agents.values() for question in agent.asked)


async def test_a_port_that_is_shut_is_found_where_it_is() -> None:
    shut = [["10.0.0.2", 20000, "no answer within 3 s"]]
    agents = {f"h{n}": Agent(facts_of(n), [] if n == 2 else shut) for n in (1, 2, 3)}
    examined = await look(agents)
    network = [finding for one in examined for finding in one.findings if finding.check == "network"]
    assert [(finding.host, finding.detail) for finding in network] == [
        ("h2", "at 10.0.0.2: no answer within 3 s at port 20000, from h1, h3")
    ]


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {},
        facts_of(1, netid=[]),
        facts_of(1, interfaces=[1]),
        facts_of(1, interfaces=[["e0"]]),
        facts_of(1, limits={}),
        facts_of(1, limits={"nofile": ["a", "b"], "memlock": [1, 1]}),
        facts_of(1, runs={"place": "/x", "preferred": "/x"}),
        facts_of(1, own_name={"name": "h", "addresses": 7, "problem": ""}),
        facts_of(1, devices=7),
        facts_of(1, usable_cpus=float("nan")),
        facts_of(1, time=10**400),
    ],
)
async def test_facts_that_make_no_sense_are_a_finding(facts: object) -> None:
    examined = await look({"h1": Agent(facts, []), "h2": Agent(facts_of(2), [])})
    assert [finding.check for finding in examined[0].findings] == ["agent"]
    assert examined[1].facts is not None


@pytest.mark.parametrize(
    "reach", [7, [1], [["10.0.0.2"]], [[[], "x", 1]], [["a", 1e400, ""]], [["a", 1, ""]] * 99, None]
)
async def test_answers_that_make_no_sense_are_a_finding(reach: object) -> None:
    examined = await look({"h1": Agent(facts_of(1), reach), "h2": Agent(facts_of(2), [])})
    assert [finding.check for finding in examined[0].findings] == ["agent"]
    assert [finding.check for finding in examined[1].findings] == ["clock"]


class Crowd(Hosts):
    """Lets nobody in before all stand at the door."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        super().__init__(agents)
        self.dialled = asyncio.Barrier(len(agents))

    async def connect(self, target: Target) -> Agent:
        await self.dialled.wait()
        return await super().connect(target)


class Patient(Agent):
    """Answers when all hosts have been asked the same."""

    def __init__(self, facts: object, everybody: asyncio.Barrier) -> None:
        super().__init__(facts, [])
        self._everybody = everybody

    async def write(self, chunk: bytes) -> None:
        await self._everybody.wait()
        await super().write(chunk)


async def test_many_hosts_are_dialled_and_asked_at_the_same_time() -> None:
    """64 hosts wait no longer for their turn than 8: nobody is answered before all are asked."""
    everybody = asyncio.Barrier(64)
    agents = {f"h{n}": Patient(facts_of(n), everybody) for n in range(1, 65)}
    async with asyncio.timeout(PATIENCE):
        examined = await look(agents, Crowd(agents))
    assert {len(agent.asked) for agent in agents.values()} == {CLOCK_SAMPLES + 2}
    assert all(one.facts is not None for one in examined)
