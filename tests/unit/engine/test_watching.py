"""Looking at a run whose hosts answer strangely."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mnspawn.core import patience
from mnspawn.core.agent_events import AgentGone, CaughtUp, Done, Exited, LinkLost
from mnspawn.core.pods import OrderAnswer
from mnspawn.engine.link import join, stuck_agents
from mnspawn.engine.look import emergency, watching
from mnspawn.engine.look.ask import Answer
from mnspawn.engine.look.view import ViewOptions, ViewResult
from mnspawn.engine.look.viewed_host import Glance
from mnspawn.engine.look.watching import View
from mnspawn.engine.registry import KnownRun
from mnspawn.errors import HostError
from mnspawn.events import Event, HostLinkLost
from mnspawn.transport.base import SshOptions
from mnspawn_inventory import Host
from tests.support import PATIENCE
from tests.unit.engine.scripted import Witness

SHORT = 0.05  # seconds, where time must run out
KNOWN = KnownRun("1a2b3c4d", (Host(name="a"), Host(name="b")), (1, 1))


class Wire:
    """A connection to a host that does nothing by itself."""

    async def close(self) -> None:
        pass


class Hosts:
    """What `reach_hosts` gives."""

    async def dial(self, timeout: float) -> AsyncIterator[tuple[int, Wire]]:
        for index in (0, 1):
            yield index, Wire()

    async def connect(self, index: int) -> Wire:
        return Wire()


def look(
    monkeypatch: pytest.MonkeyPatch, options: ViewOptions, *, has_ended: bool
) -> tuple[ViewResult, list[tuple[str, ...]]]:
    """Host a knows the run, host b has lost its folder; gives what was seen and what was ordered."""
    orders: list[tuple[str, ...]] = []
    stopped = asyncio.Event()

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def ask_on(connection: Any, host: str, words: tuple[str, ...], *_: Any) -> OrderAnswer:
        orders.append((host, *words))
        stopped.set()
        return OrderAnswer(ok=True)

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        if glance.name == "b":
            raise watching.RunUnknown("knows nothing of run 1a2b3c4d", host="b")
        glance.connection = connection
        if not has_ended:
            await stopped.wait()
        view._take(glance, Exited(0, 7, 0 if has_ended else -15, 1.0, 1.0, not has_ended, False, False, ()))
        glance.has_ended = True
        view._settle(glance)
        return 0.0

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(watching, "ask_on", ask_on)
    monkeypatch.setattr(watching, "LOST_AFTER", 0.05)
    monkeypatch.setattr(watching, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(View, "_look", look_at)

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(KNOWN, (), options).execute()

    return asyncio.run(execute()), orders


def test_a_host_that_has_lost_its_part_of_a_run_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, orders = look(monkeypatch, ViewOptions(streams=(), is_in_charge=True), has_ended=False)
    assert orders == [("a", "order", "1a2b3c4d", "0", "stop", "10", "the keeper")]
    assert (sight.has_ended, sight.errors) == (True, {})
    assert (sight.report.exit_status, sight.report.hosts[1].lost) == (5, "it knows nothing of the run any more")


def test_of_a_run_that_has_ended_a_removed_folder_is_only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, orders = look(monkeypatch, ViewOptions(streams=(), is_in_charge=True), has_ended=True)
    assert (sight.has_ended, list(sight.errors), orders) == (False, ["b"], [])


def test_who_only_looks_waits_for_no_host_that_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, orders = look(monkeypatch, ViewOptions(streams=()), has_ended=True)
    assert (sight.has_ended, list(sight.errors), orders) == (False, ["b"], [])


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_an_agent_that_does_not_answer_is_ended_with_what_it_has(monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
    """A frozen one: the kernel takes connections to its socket, and its lock is held."""
    told: list[str] = []
    gone = asyncio.Event()

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def ask_on(connection: Any, host: str, words: tuple[str, ...], *_: Any) -> OrderAnswer:
        told.append(words[3])
        return OrderAnswer(ok=False, problem="the agent does not answer: timed out")

    async def reap(*_: Any) -> bool:
        told.append("reap")
        gone.set()
        return True

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        glance.connection = connection
        await gone.wait()
        view._take(glance, AgentGone("its agent died", ()))
        view._settle(glance)
        return 0.0

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(watching, "ask_on", ask_on)
    monkeypatch.setattr(join, "reap", reap)
    monkeypatch.setattr(watching, "LOST_AFTER", 0.05)
    monkeypatch.setattr(watching, "RETRY_FIRST", 0.02)
    monkeypatch.setattr(View, "_look", look_at)

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(KNOWN, (), ViewOptions(streams=(), stop=grace)).execute()

    sight = asyncio.run(execute())
    assert told.count("reap") == 2
    assert (told.count("stop") == 2) == (not grace)  # a kill waits for no second answer
    assert [host.lost for host in sight.report.hosts] == ["its agent died"] * 2


def test_a_stop_waits_no_longer_for_a_host_than_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    class HalfOfThem(Hosts):
        async def dial(self, timeout: float) -> AsyncIterator[tuple[int, Any]]:
            yield 0, Wire()
            yield 1, HostError("the host does not answer", host="b")

        async def connect(self, index: int) -> Wire:
            raise HostError("the host does not answer", host="b")

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield HalfOfThem()

    async def ask_on(*_: Any) -> OrderAnswer:
        return OrderAnswer(ok=True)

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        glance.connection = connection
        view._take(glance, Exited(0, 7, -15, 1.0, 1.0, True, False, False, ()))
        view._take(glance, Done((), 0, 1.0))
        view._settle(glance)
        return 0.0

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(watching, "ask_on", ask_on)
    monkeypatch.setattr(watching, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(View, "_look", look_at)
    known = replace(KNOWN, ssh=SshOptions(connect_timeout=SHORT))

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(known, (), ViewOptions(streams=(), stop=10.0)).execute()

    report = asyncio.run(execute()).report
    assert [(host.lost, host.is_confirmed) for host in report.hosts] == [
        (None, True),
        ("the host does not answer", False),
    ]
    assert (report.exit_status, report.reason) == (143, "stopped: asked for by mnspawn stop")


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_link_that_breaks_while_old_output_is_read_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """`mnspawn logs` without -f: half of the output is no answer."""
    looks: list[str] = []
    told: list[Event] = []

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        looks.append(glance.name)
        if glance.name == "a" and looks.count("a") == 1:
            view._take(glance, LinkLost("silence", "no heartbeat for 10 s", view._loop.time()))
        elif glance.name == "a" and not comes_back:
            raise HostError("no answer", host="a")
        else:
            view._take(glance, CaughtUp())
        return view._loop.time()

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(watching, "LOST_AFTER", PATIENCE if comes_back else 1.0)
    monkeypatch.setattr(watching, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(View, "_look", look_at)

    class Listening:
        backlog = 0

        def bind(self, wake: object) -> None:
            pass

        def on_event(self, event: Event) -> None:
            told.append(event)

        async def aclose(self) -> None:
            pass

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(KNOWN, [Listening()], ViewOptions(is_following=False)).execute()

    sight = asyncio.run(execute())
    assert looks.count("a") == 2 if comes_back else looks.count("a") > 2
    assert list(sight.errors) == ([] if comes_back else ["a"])
    assert [type(event) for event in told] == [HostLinkLost]


@pytest.mark.parametrize("is_in_charge", [True, False])
def test_a_host_that_says_nonsense_is_lost_for_who_is_in_charge_and_told_to_who_looks(
    monkeypatch: pytest.MonkeyPatch, is_in_charge: bool
) -> None:
    """What its folder says is read anew over every connection: no other one would be better."""
    orders: list[str] = []
    reaped: list[str] = []
    stopped = asyncio.Event()
    nonsense = "said something that makes no sense: exited: code=256"

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def ask_on(connection: Any, host: str, words: tuple[str, ...], *_: Any) -> OrderAnswer:
        orders.append(host)
        stopped.set()
        return OrderAnswer(ok=True)

    async def reap(connection: Any, host: str, *_: Any) -> bool:
        reaped.append(host)
        return True

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        glance.connection = connection
        if glance.name == "b":
            view._take(glance, LinkLost("nonsense", nonsense, view._loop.time()))
            return view._loop.time()
        if is_in_charge:
            await stopped.wait()
        view._take(glance, Exited(0, 7, -15 if is_in_charge else 0, 1.0, 1.0, is_in_charge, False, False, ()))
        view._take(glance, Done((), 0, 1.0))
        view._settle(glance)
        return 0.0

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(watching, "ask_on", ask_on)
    monkeypatch.setattr(join, "reap", reap)
    monkeypatch.setattr(View, "_look", look_at)

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(KNOWN, (), ViewOptions(streams=(), is_in_charge=is_in_charge)).execute()

    sight = asyncio.run(execute())
    if is_in_charge:
        assert (orders, reaped, sight.errors) == (["a"], ["b"], {})
        assert (sight.report.exit_status, sight.report.hosts[1].lost) == (5, nonsense)
        assert sight.report.hosts[1].is_confirmed
    else:
        assert (orders, reaped) == ([], [])
        assert {name: error.message for name, error in sight.errors.items()} == {"b": nonsense}


@pytest.mark.parametrize("is_clean", [True, False])
def test_to_stop_a_pod_whose_folder_is_gone_is_to_end_what_carries_its_mark(
    monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    reaped: list[tuple[str, int]] = []

    async def reap(connection: Any, host: str, run: str, node_rank: int, *_: Any) -> bool:
        reaped.append((host, node_rank))
        return is_clean

    monkeypatch.setattr(join, "reap", reap)
    sight, orders = look(monkeypatch, ViewOptions(streams=(), stop=3.0), has_ended=False)
    assert orders == [("a", "order", "1a2b3c4d", "0", "stop", "3", "mnspawn stop")]
    assert (reaped, sight.errors) == ([("b", 1)], {})
    assert sight.report.hosts[1].is_confirmed == is_clean


def watched(
    monkeypatch: pytest.MonkeyPatch,
    options: ViewOptions,
    listeners: tuple[Any, ...],
    reaped: list[str],
    lies: Sequence[str] = (),
) -> ViewResult:
    """Both hosts say that their rank has ended, and never that nothing is left; who is reaped is gone, and told so
    but on hosts that lie."""
    gone = {"a": asyncio.Event(), "b": asyncio.Event()}

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def reap(connection: Any, host: str, *_: Any) -> bool:
        reaped.append(host)
        if host not in lies:
            gone[host].set()
        return True

    async def look_at(view: View, glance: Glance, connection: Any) -> float:
        glance.connection = connection
        view._take(glance, Exited(glance.index, 7, 0, 1.0, 1.0, False, False, False, ()))
        view._audience.notice("its rank has ended")
        await gone[glance.name].wait()
        view._take(glance, AgentGone("its agent died", ()))
        view._settle(glance)
        return 0.0

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(join, "reap", reap)
    monkeypatch.setattr(patience, "PROOF_LIMIT", 0.1)
    monkeypatch.setattr(View, "_look", look_at)

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await View(replace(KNOWN, grace=0.1), listeners, options).execute()

    return asyncio.run(execute())


def test_who_is_in_charge_ends_agents_that_never_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    reaped: list[str] = []
    sight = watched(monkeypatch, ViewOptions(streams=(), is_in_charge=True), (), reaped)
    assert (sight.has_ended, sorted(reaped)) == (True, ["a", "b"])


def test_who_is_in_charge_loses_a_host_that_never_says_that_its_agent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LAST_WORDS", SHORT)
    sight = watched(monkeypatch, ViewOptions(streams=(), is_in_charge=True), (), [], lies=("b",))
    assert sight.has_ended
    assert [host.lost for host in sight.report.hosts] == ["its agent died", "its agent did not finish within 0 s"]


@pytest.mark.parametrize("beats", [True, False])
def test_a_look_waits_for_no_host_that_only_beats(monkeypatch: pytest.MonkeyPatch, beats: bool) -> None:
    """It is named; the others have said what they know. A slow reader here is no fault of a host."""
    looks = 0

    @contextlib.asynccontextmanager
    async def reach(*_: Any) -> AsyncIterator[Hosts]:
        yield Hosts()

    async def enter(*_: Any) -> Any:
        return Wire(), Wire(), b""

    async def serve(process: Any, session: Any, first: bytes, deliver: Any, wake: asyncio.Event) -> None:
        nonlocal looks
        glance = deliver.args[0]
        if beats and glance.name == "b":
            glance.owed = 1
            while glance.owed:
                looks += 1
                glance.owed = int(looks < 20)
                await asyncio.sleep(SHORT)
            while not session.is_lost:
                await wake.wait()
                wake.clear()
        else:
            view._take(glance, CaughtUp())

    monkeypatch.setattr(watching, "reach_hosts", reach)
    monkeypatch.setattr(join, "enter", enter)
    monkeypatch.setattr(watching, "pump", serve)
    monkeypatch.setattr(stuck_agents, "PROOF_LIMIT", 2 * SHORT)
    monkeypatch.setattr(stuck_agents, "LOOK", SHORT / 5)
    view = View(KNOWN, (), ViewOptions(streams=(), is_following=False))

    async def execute() -> ViewResult:
        async with asyncio.timeout(PATIENCE):
            return await view.execute()

    sight = asyncio.run(execute())
    told = {name: error.message for name, error in sight.errors.items()}
    assert told == ({"b": "it answers, but does not say what it knows"} if beats else {})
    assert looks == (20 if beats else 0)


def test_a_bug_of_ours_has_the_hosts_of_a_run_told_to_stop_by_who_is_in_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def ask_all(reached: Any, words: list[tuple[str, ...]], timeout: float) -> list[Answer]:
        asked.extend(words)
        return [Answer(0, "a", OrderAnswer(ok=True), None), Answer(1, "b", None, HostError("no answer", host="b"))]

    def break_down(event: Event) -> None:
        raise RuntimeError("can't be")

    monkeypatch.setattr(emergency, "ask_all", ask_all)
    options = ViewOptions(streams=(), is_in_charge=True, handle_signals=True)
    with pytest.raises(BaseExceptionGroup) as caught:
        watched(monkeypatch, options, (Witness(break_down),), [])
    assert asked == [("order", "1a2b3c4d", str(index), "stop", "0.1", "mnspawn attach") for index in (0, 1)]
    assert caught.value.__notes__ == ["not told to stop: b; mnspawn stop 1a2b3c4d tells them"]
    asked.clear()
    with pytest.raises(BaseExceptionGroup):
        watched(monkeypatch, replace(options, is_in_charge=False), (Witness(break_down),), [])
    assert asked == []  # who only looks disturbs no run
