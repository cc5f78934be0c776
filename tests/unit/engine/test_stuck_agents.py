"""Agents that beat and do not do what they are told: the run ends all the same, and says which host it was."""

from typing import Any

import pytest

from mnspawn.core import patience
from mnspawn.engine import join
from mnspawn.events import Event, HostLost, TrainerStarted
from mnspawn.report import RunReport
from mnspawn_agent.protocol import messages
from tests.unit.engine.scripted import ScriptedAgent, Witness, drive, ended

LIMIT = 2.0  # seconds that a run may take; all that happens before it strikes takes a few milliseconds


@pytest.fixture(autouse=True)
def reaped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Little patience; hosts on which somebody ended what an agent had."""
    hosts: list[str] = []

    async def reap(connection: Any, host: str, *_: Any) -> bool:
        hosts.append(host)
        return host != "h2"

    monkeypatch.setattr(patience, "PROOF_LIMIT", 0.3)
    monkeypatch.setattr(join, "reap", reap)
    return hosts


def fails(agent: ScriptedAgent, code: int) -> Witness:
    """The agent's rank fails as soon as it has started."""

    def on(event: Event) -> None:
        if isinstance(event, TrainerStarted) and event.rank == agent.number:
            agent.end_rank(code)
            agent.prove()

    return Witness(on)


def outcome(report: RunReport) -> list[tuple[str, str | None, bool]]:
    return [(host.host, host.lost, host.is_confirmed) for host in report.hosts]


async def test_an_agent_that_never_finishes_its_stop_is_ended_and_counts_as_lost(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1, silent=(messages.STOP,)), ScriptedAgent(2, silent=(messages.STOP,))]
    witness = fails(agents[0], 7)
    report = await ended(drive(agents, witness))
    reason = "its agent did not finish within 0 s"
    assert report.exit_status == 7
    assert outcome(report) == [("h0", None, True), ("h1", reason, True), ("h2", reason, False)]
    assert sorted(reaped) == ["h1", "h2"]
    assert sorted(e.host for e in witness.events if isinstance(e, HostLost)) == ["h1", "h2"]


async def test_an_agent_that_never_proves_a_good_end_makes_it_a_lost_host(reaped: list[str]) -> None:
    agents = [ScriptedAgent(0)]

    def on(event: Event) -> None:
        if isinstance(event, TrainerStarted):
            agents[0].end_rank(0)

    report = await ended(drive(agents, Witness(on)))
    assert (report.exit_status, reaped) == (5, ["h0"])


@pytest.mark.parametrize("kind", [messages.PREPARE, messages.START, messages.STOP])
async def test_a_timeout_ends_a_run_whatever_its_agents_do_not_answer(reaped: list[str], kind: str) -> None:
    agents = [ScriptedAgent(0, silent=(kind, messages.STOP)), ScriptedAgent(1)]
    report = await ended(drive(agents, Witness(), timeout=LIMIT))
    assert report.exit_status == 124
    assert [host.host for host in report.hosts if host.lost] == ([] if kind == messages.PREPARE else ["h0"])
