"""Agents that beat and do not do what they are told: the run ends all the same, and says which host it was."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mnspawn.engine.link import join, stuck_agents
from mnspawn.engine.request import Limits
from mnspawn.errors import MnspawnError
from mnspawn.events import Event, HostLost, Notice, WorkerStarted
from mnspawn.report import RunReport
from mnspawn_agent.protocol import messages
from tests.unit.engine.scripted import ScriptedAgent, Witness, drive, ended

LIMIT = 2.0  # seconds that a run may take; all that happens before it strikes takes a few milliseconds
SHORT = Limits(proof=0.3)
HASTY = Limits(hello=0.5, prepared=0.5, started=0.5, output=0.5, proof=0.3, look=0.05)


@pytest.fixture(autouse=True)
def reaped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hosts on which somebody ended what an agent had."""
    hosts: list[str] = []

    async def reap(connection: Any, host: str, *_: Any) -> join.Reaped:
        hosts.append(host)
        return join.Reaped(host != "h2")

    monkeypatch.setattr(join, "reap", reap)
    return hosts


def fails(agent: ScriptedAgent, code: int) -> Witness:
    """The agent's rank fails as soon as it has started."""

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.rank == agent.number:
            agent.end_rank(code)
            agent.prove()

    return Witness(on)


def outcome(report: RunReport) -> list[tuple[str, str | None, bool]]:
    return [(host.host, host.lost, host.is_confirmed) for host in report.hosts]


async def test_an_agent_that_never_finishes_its_stop_is_ended_and_counts_as_lost(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1, silent=(messages.STOP,)), ScriptedAgent(2, silent=(messages.STOP,))]
    witness = fails(agents[0], 7)
    report = await ended(drive(agents, witness, limits=SHORT))
    reason = "its agent did not finish within 0 s"
    assert report.exit_status == 7
    assert outcome(report) == [("h0", None, True), ("h1", reason, True), ("h2", reason, False)]
    assert sorted(reaped) == ["h1", "h2"]
    assert sorted(e.host for e in witness.events if isinstance(e, HostLost)) == ["h1", "h2"]


async def test_an_agent_that_never_proves_a_good_end_makes_it_a_lost_host(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0)]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].end_rank(0)

    report = await ended(drive(agents, Witness(on), limits=SHORT))
    assert (report.exit_status, reaped) == (5, ["h0"])


@pytest.mark.parametrize("kind", [messages.PREPARE, messages.START, messages.STOP])
async def test_a_timeout_ends_a_run_whatever_its_agents_do_not_answer(reaped: list[str], kind: str) -> None:
    agents = [ScriptedAgent(0, silent=(kind, messages.STOP)), ScriptedAgent(1)]
    report = await ended(drive(agents, Witness(), limits=SHORT, timeout=LIMIT))
    assert report.exit_status == 124
    assert [host.host for host in report.hosts if host.lost] == ([] if kind == messages.PREPARE else ["h0"])


# -- agents that answer and do not go on


@pytest.mark.parametrize(
    ("kind", "what", "ended_there"),
    [(messages.HELLO, "its first word", []), (messages.PREPARE, "its word that it is prepared", ["h0"])],
)
async def test_an_agent_that_only_beats_before_the_start_makes_its_host_unusable(
    reaped: list[str], kind: str, what: str, ended_there: list[str]
) -> None:
    agents = [ScriptedAgent(0, silent=(kind,)), ScriptedAgent(1)]
    with pytest.raises(MnspawnError, match=f"h0: its agent answers, but {what} did not come within 0 s") as caught:
        await ended(drive(agents, Witness(), limits=HASTY))
    assert (caught.value.exit_status, reaped) == (3, ended_there)


async def test_an_agent_that_never_says_that_its_ranks_have_started_is_lost(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0, silent=(messages.START,)), ScriptedAgent(1)]
    report = await ended(drive(agents, Witness(), limits=HASTY))
    assert report.exit_status == 5
    assert outcome(report) == [
        ("h0", "its agent answers, but the start of its ranks did not come within 0 s", True),
        ("h1", None, True),
    ]
    assert reaped == ["h0"]


async def test_output_that_an_agent_names_and_never_sends_is_not_waited_for(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0)]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].end_rank(0)
            agents[0].prove(sizes=[[0, 1, 1000]])

    report = await ended(drive(agents, Witness(on), limits=HASTY))
    reason = "its agent answers, but the rest of the output did not come within 0 s"
    assert (report.exit_status, outcome(report)) == (5, [("h0", reason, True)])


async def test_a_timeout_ends_a_run_whose_output_never_comes(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0, silent=(messages.STOP,))]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].end_rank(0)
            agents[0].prove(sizes=[[0, 1, 1000]])

    report = await ended(drive(agents, Witness(on), limits=SHORT, timeout=LIMIT))
    assert outcome(report) == [("h0", "its agent did not finish within 0 s", True)]


async def test_a_run_waits_for_ranks_and_for_readers_as_long_as_they_take(
    reaped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is an agent's fault: ranks that run say nothing, and who gets no credit sends nothing."""
    looked = asyncio.Event()
    looks = 0

    def look_at(self: Any, link: Any, now: float) -> None:
        nonlocal looks
        real(self, link, now)
        looks += 1
        if looks == 40:
            looked.set()

    real = stuck_agents.StuckAgentCheck.look_at
    monkeypatch.setattr(stuck_agents.StuckAgentCheck, "look_at", look_at)
    agents = [ScriptedAgent(0)]
    reader = Witness()

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].end_rank(0)
            agents[0].write_out(b"x" * 600)
            agents[0].prove(sizes=[[0, 1, 1000]])

    reader.backlog = 1 << 30
    run = asyncio.create_task(ended(drive(agents, Witness(on), reader, limits=HASTY)))
    await asyncio.wait([run, asyncio.create_task(looked.wait())], return_when=asyncio.FIRST_COMPLETED)
    agents[0].write_out(b"x" * 400, offset=600)
    report = await run
    assert (report.exit_status, outcome(report), reaped) == (0, [("h0", None, True)], [])


async def test_a_run_that_ends_before_its_start_is_not_said_to_be_missing_here(tmp_path: Path) -> None:
    """Its ranks are laid out by then, but nothing was to be remembered."""
    witness = Witness()
    agents = [ScriptedAgent(0, silent=(messages.PREPARE,)), ScriptedAgent(1)]
    report = await ended(drive(agents, witness, limits=SHORT, timeout=LIMIT, registry=tmp_path / "known"))
    assert (report.exit_status, len(report.ranks)) == (124, 2)
    assert [event.text for event in witness.events if isinstance(event, Notice)] == []
