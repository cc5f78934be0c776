"""Letting go of a run: remembered while it starts, told where it can't be, and who has not heard of it is named."""

import os
import signal
from typing import Any

from mnspawn.engine.request import Limits
from mnspawn.engine.run.detaching import Detached
from mnspawn.events import Event, HostConnected, Notice, RunStarting, RunStopping, WorkerStarted
from mnspawn_agent.protocol import messages
from tests.unit.engine.scripted import ScriptedAgent, Witness, drive, ended

LATER = "the run will be let go of as soon as all ranks run"


class Deaf(ScriptedAgent):
    """Says nothing any more, from the first DETACH on: nobody learns whether it was heard."""

    async def write(self, chunk: bytes) -> None:
        if b'"detach"' not in chunk and messages.DETACH not in self.kinds:
            await super().write(chunk)


def quit_at(kind: type[Event], count: int = 1) -> Witness:
    """Ctrl-\\ when the kind of event has come so often."""
    seen: list[Event] = []

    def on(event: Event) -> None:
        if isinstance(event, kind):
            seen.append(event)
            if len(seen) == count:
                os.kill(os.getpid(), signal.SIGQUIT)

    return Witness(on)


def notices(witness: Witness) -> list[str]:
    return [event.text for event in witness.events if isinstance(event, Notice)]


async def test_a_wish_to_detach_while_hosts_are_connected_is_remembered() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1)]
    witness = quit_at(HostConnected)
    outcome = await ended(drive(agents, witness, handle_signals=True, run="r1"))
    assert outcome == Detached("r1")
    assert notices(witness) == [LATER]
    assert [messages.DETACH in agent.kinds for agent in agents] == [True, True]
    assert not [agent for agent in agents if messages.STOP in agent.kinds]


async def test_a_wish_to_detach_while_ranks_start_is_remembered() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1, silent=(messages.START,))]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.rank == 0:
            os.kill(os.getpid(), signal.SIGQUIT)
        elif isinstance(event, Notice):
            agents[1].say(messages.STARTED, rank=1, pid=41, at=1.0)

    witness = Witness(on)
    assert await ended(drive(agents, witness, handle_signals=True, run="r1")) == Detached("r1")
    assert notices(witness) == [LATER]


async def test_the_wish_of_another_terminal_is_remembered_too() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1)]

    def on(event: Event) -> None:
        if isinstance(event, RunStarting):
            agents[0].say(messages.LET_GO)

    outcome = await ended(drive(agents, Witness(on), handle_signals=True, run="r1"))
    assert outcome == Detached("r1")


async def test_hosts_that_have_not_heard_of_it_are_named() -> None:
    agents = [ScriptedAgent(0), Deaf(1)]
    assert await ended(drive(agents, Witness(), is_detached=True, run="r1", limits=Limits(detach=0.3))) == Detached(
        "r1", ("h1",)
    )


class Slow(ScriptedAgent):
    """Acknowledges DETACH only with what comes behind it."""

    _kept = b""

    async def write(self, chunk: bytes) -> None:
        self._kept += chunk
        if b'"detach"' not in self._kept or b'"stop"' in self._kept:
            kept, self._kept = self._kept, b""
            await super().write(kept)


class Failing(ScriptedAgent):
    """Its rank fails when it hears that the run is let go of."""

    def _obey(self, message: dict[str, Any]) -> None:
        super()._obey(message)
        if message["type"] == messages.DETACH:
            self.end_rank(7)
            self.prove()


async def test_a_run_that_fails_while_it_is_let_go_of_is_seen_to_its_end() -> None:
    report = await ended(drive([Failing(0), Slow(1)], Witness(), is_detached=True))
    assert report.exit_status == 7


async def test_a_run_that_ends_already_is_not_let_go_of() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1, silent=(messages.STOP,))]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.rank == 1:
            agents[0].end_rank(7)
            agents[0].prove()
        elif isinstance(event, RunStopping):
            os.kill(os.getpid(), signal.SIGQUIT)
        elif isinstance(event, Notice):
            agents[1].end_rank(-15, stopped=True)
            agents[1].prove()

    witness = Witness(on)
    report = await ended(drive(agents, witness, handle_signals=True))
    assert report.exit_status == 7
    assert notices(witness) == ["the run is about to end: it is not let go of"]
