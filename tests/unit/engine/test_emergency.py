"""A bug of ours ends the controller: every host gets its STOP first, and who has not confirmed is named."""

import asyncio
from typing import Any

import pytest

from mnspawn.api.background import _only
from mnspawn.core.run import RunMachine
from mnspawn.core.session import HostSession
from mnspawn.engine.request import Limits
from mnspawn.engine.run.control import Control
from mnspawn.events import Event, WorkerOutput, WorkerStarted
from mnspawn_agent.protocol import messages
from tests.support import wait_until_async
from tests.unit.engine.scripted import ScriptedAgent, Witness, drive, ended


class OurBugError(Exception):
    pass


def break_down(*_: Any) -> Any:
    raise OurBugError("can't be")


def on_second_start(event: Event) -> None:
    if isinstance(event, WorkerStarted) and event.rank == 1:
        break_down()


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


async def test_a_listener_that_raises_stops_every_host_first() -> None:
    agents = [ScriptedAgent(number) for number in range(3)]
    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(on_second_start)))
    assert caught.group_contains(OurBugError)
    assert [agent.heard[-2:] for agent in agents] == [
        [messages.make(messages.STOP, grace=0.2), messages.make(messages.FINISH, keep=True)]
    ] * 3
    assert notes(caught.value) == []


async def test_hosts_that_do_not_confirm_are_named() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1, silent=(messages.STOP,)), ScriptedAgent(2)]
    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(on_second_start), limits=Limits(emergency=0.15)))
    assert messages.STOP in agents[1].kinds
    assert notes(caught.value) == ["not confirmed stopped: h1"]
    assert str(_only(caught.value)) == "OurBugError: can't be; not confirmed stopped: h1"  # as Python callers see it


async def test_hosts_that_can_not_be_read_any_more_are_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken can be the reading itself; a host that gives no proof is named."""
    agents = [ScriptedAgent(number) for number in range(2)]

    def on(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.rank == 1:
            monkeypatch.setattr(ScriptedAgent, "read", break_down)
            break_down()

    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(on)))
    assert [messages.STOP in agent.kinds for agent in agents] == [True, True]
    assert notes(caught.value) == ["not confirmed stopped: h0, h1"]


@pytest.mark.parametrize(("owner", "method"), [(RunMachine, "started"), (HostSession, "_take_exit")])
async def test_a_machine_that_raises_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    monkeypatch.setattr(owner, method, break_down)
    agents = [ScriptedAgent(0), ScriptedAgent(1)]

    def end_first(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].end_rank(7)

    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(end_first)))
    assert caught.group_contains(OurBugError)
    assert [messages.STOP in agent.kinds for agent in agents] == [True, True]
    assert notes(caught.value) == []


async def test_a_bug_in_a_call_from_outside_ends_the_run_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal handlers and other threads: asyncio would only log it, and the run would never stop."""
    monkeypatch.setattr(RunMachine, "stop_asked", break_down)
    agents, control = [ScriptedAgent(0), ScriptedAgent(1)], Control()

    def order(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.rank == 1:
            control.stop(5.0, "the caller")

    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(order), control=control))
    assert caught.group_contains(OurBugError)
    assert [messages.STOP in agent.kinds for agent in agents] == [True, True]


async def test_a_listener_that_raises_while_it_catches_up_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [ScriptedAgent(0)]

    class Broken(Witness):
        is_behind = True

        def left(self) -> Any:
            return 1 << 30 if self.is_behind else break_down()

        backlog = property(left)

    broken = Broken()

    def catch_up() -> None:
        broken.is_behind = False
        broken.wake()

    def output(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            agents[0].write_out(b"x")
        elif isinstance(event, WorkerOutput):  # when that is paid for, no task of the run is at work
            asyncio.get_running_loop().call_soon(catch_up)

    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, broken, Witness(output)))
    assert caught.group_contains(OurBugError)
    assert messages.STOP in agents[0].kinds


async def test_before_the_start_there_is_nothing_to_stop() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1)]

    def on_connected(event: Event) -> None:
        break_down()

    with pytest.raises(BaseExceptionGroup) as caught:
        await ended(drive(agents, Witness(on_connected)))
    assert caught.group_contains(OurBugError)
    assert not [agent for agent in agents if messages.STOP in agent.kinds]


async def test_a_caller_that_cancels_a_run_stops_its_hosts() -> None:
    agents = [ScriptedAgent(0), ScriptedAgent(1)]
    running = asyncio.Event()

    def on_start(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            running.set()

    task = asyncio.create_task(ended(drive(agents, Witness(on_start))))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [messages.STOP in agent.kinds for agent in agents] == [True, True]


async def test_who_is_urged_kills_and_then_leaves() -> None:
    agents = [ScriptedAgent(0, silent=(messages.STOP,))]

    def break_at_start(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            break_down()

    run = drive(agents, Witness(break_at_start), grace=60.0)
    task = asyncio.create_task(ended(run))
    await wait_until_async(lambda: messages.STOP in agents[0].kinds)
    run._emergency.urge()
    await wait_until_async(lambda: agents[0].heard[-1] == messages.make(messages.STOP, grace=0.0))
    run._emergency.urge()
    with pytest.raises(BaseExceptionGroup) as caught:
        await task
    assert notes(caught.value) == ["not confirmed stopped: h0"]
