"""Looking at a run whose hosts answer strangely: model agents in memory, over the real way in and the real link."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mnspawn.engine.link.sites import Reached
from mnspawn.engine.look.view import ViewOptions, ViewResult
from mnspawn.engine.look.watching import View
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.request import Limits, Listener
from mnspawn.errors import HostError
from mnspawn.events import Event, HostLinkBack, HostLinkLost
from mnspawn.transport.base import SshOptions, Target
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Lost, Received
from mnspawn_inventory import Host
from tests.support import PATIENCE
from tests.support.liar import exited
from tests.support.memory_transport import MemoryHost, MemoryTransport, Stdio
from tests.unit.engine.scripted import Witness

SHORT = 0.05  # seconds, where time must run out
CONNECTING = 1.0  # seconds, where connecting must take too long and the rest must not
KNOWN = KnownRun("1a2b3c4d", (Host(name="a"), Host(name="b")), (1, 1))
HASTY = Limits(lost=SHORT, retry_first=0.01)
GONE = {"type": messages.GONE, "reason": "its agent died", "leftovers": []}


class Watcher:
    """The host's end of a wire on which its pod's folder is read."""

    def __init__(self, stdio: Stdio) -> None:
        self._stdio = stdio
        self._now = asyncio.get_running_loop().time
        self.channel = Channel(self._now())

    async def say(self, *said: dict[str, Any]) -> None:
        for message in said:
            self.channel.send(message)
        await self.flush()

    async def beat(self) -> None:
        self.channel.beat()
        await self.flush()

    async def flush(self) -> None:
        if chunk := self.channel.data_to_send(self._now()):
            await self._stdio.stdout.write(chunk)

    async def listen(self) -> None:
        """Return when the controller lets the watcher go, or its link ends."""
        while True:
            self.channel.receive(await self._stdio.stdin.read(), self._now())
            for event in self.channel.events():
                if isinstance(event, Lost) or (
                    isinstance(event, Received) and event.message["type"] == messages.FINISH
                ):
                    return
            await self.flush()


Script = Callable[["Pod", Watcher], Awaitable[None]]


class Pod:
    """One host's share of the run: rank 0 on host a, rank 1 on host b.

    Args:
        script: what its watchers report, over every new wire; a wire ends when the script raises EOFError. None where
            the run's folder is gone.
        obey: the answer to an order.
        left: what is said to be left when its processes are ended.
    """

    def __init__(
        self, rank: int, script: Script | None, obey: dict[str, Any] | None = None, left: list[Any] | None = None
    ) -> None:
        self.rank = rank
        self.orders: list[tuple[str, ...]] = []
        self.stopped = asyncio.Event()
        self.reaped = asyncio.Event()
        self.let_go = asyncio.Event()
        self.looks = 0
        self._script = script
        self._obey = {"ok": True} if obey is None else obey
        self._left = left or []
        self.host = MemoryHost(self._talk)

    def ended(self, code: int = 0) -> tuple[dict[str, Any], ...]:
        """What the folder of a pod whose rank has ended says."""
        done = {"type": messages.DONE, "leftovers": [], "swept": 0, "sizes": [], "at": 1.0}
        return exited(self.rank, code=code, stopped=code < 0), done, {"type": messages.CAUGHT_UP}

    async def _talk(self, stdio: Stdio, command: str) -> int:
        nonce, _, _, _, mode, run, node_rank, *words = re.findall(r"'([^']*)'", command)[3:]
        assert (run, node_rank) == (KNOWN.run, str(self.rank))
        await stdio.stdout.write(b"\nMNSPAWN %s have\n" % nonce.encode())
        if mode == "order":
            self.orders.append(tuple(words))
            self.stopped.set()
            await stdio.stdout.write(json.dumps(self._obey).encode() + b"\n")
        elif mode == "reap":
            self.reaped.set()
            left = f"left {json.dumps(self._left) if self._left else ''}\n"
            await stdio.stdout.write(left.encode())
        elif self._script is None:
            await stdio.stdout.write(b"gone\n")
        else:
            await stdio.stdout.write(b"here\n")
            await self._watch(Watcher(stdio), self._script)
        return 0

    async def _watch(self, watcher: Watcher, script: Script) -> None:
        self.looks += 1
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell(watcher, script))
            listening = group.create_task(watcher.listen())
            await asyncio.wait([telling, listening], return_when=asyncio.FIRST_COMPLETED)
            if not (telling.done() and telling.result()):
                await listening
                self.let_go.set()
            telling.cancel()
            listening.cancel()

    async def _tell(self, watcher: Watcher, script: Script) -> bool:
        """Whether the wire ends with it."""
        try:
            await script(self, watcher)
        except EOFError:
            return True
        return False


async def view(pods: Sequence[Pod], options: ViewOptions, *listeners: Listener, known: KnownRun = KNOWN) -> ViewResult:
    hosts = dict(zip(("a", "b"), (pod.host for pod in pods), strict=True))
    transport = MemoryTransport(known.ssh, hosts)
    reached = Reached(known.hosts, tuple(Target(name) for name in hosts), (transport,) * len(hosts))
    try:
        async with asyncio.timeout(PATIENCE):
            return await View(reached, known, listeners, options).execute()
    finally:
        await transport.close()


async def has_ended(pod: Pod, watcher: Watcher) -> None:
    await watcher.say(*pod.ended())


async def ends_when_stopped(pod: Pod, watcher: Watcher) -> None:
    await pod.stopped.wait()
    await watcher.say(*pod.ended(-15))


def orders(pods: Sequence[Pod]) -> list[tuple[str, ...]]:
    return [(name, *order) for name, pod in zip("ab", pods, strict=True) for order in pod.orders]


async def look(options: ViewOptions, script: Script) -> tuple[ViewResult, list[tuple[str, ...]]]:
    """Host a knows the run, host b has lost its folder; returns what was seen and what was ordered."""
    pods = Pod(0, script), Pod(1, None)
    return await view(pods, replace(options, limits=HASTY)), orders(pods)


async def test_a_host_that_has_lost_its_part_of_a_run_stops_the_others() -> None:
    result, ordered = await look(ViewOptions(streams=(), is_in_charge=True), ends_when_stopped)
    assert ordered == [("a", "stop", "10", "the keeper")]
    assert (result.has_ended, result.errors) == (True, {})
    assert (result.report.exit_status, result.report.hosts[1].lost) == (5, "it knows nothing of the run any more")


@pytest.mark.parametrize("is_in_charge", [True, False])
async def test_of_a_run_that_has_ended_a_removed_folder_is_only_told(is_in_charge: bool) -> None:
    pods = Pod(0, has_ended), Pod(1, None)
    options = ViewOptions(streams=(), is_in_charge=is_in_charge, limits=Limits(retry_first=0.01))
    result = await view(pods, options)
    assert (result.has_ended, list(result.errors), orders(pods)) == (False, ["b"], [])
    assert not pods[1].reaped.is_set()


@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_an_agent_that_does_not_answer_is_ended_with_what_it_has(grace: float) -> None:
    """A frozen one: the kernel takes connections to its socket, and its lock is held."""

    async def dies_when_reaped(pod: Pod, watcher: Watcher) -> None:
        await pod.reaped.wait()
        await watcher.say(GONE, {"type": messages.CAUGHT_UP})

    answer = {"ok": False, "problem": "the agent does not answer: timed out"}
    pods = [Pod(rank, dies_when_reaped, answer) for rank in (0, 1)]
    result = await view(pods, ViewOptions(streams=(), stop=grace, limits=HASTY))
    assert all(pod.reaped.is_set() for pod in pods)
    assert [len(pod.orders) == 1 for pod in pods] == [not grace] * 2  # a kill waits for no second answer
    assert [host.lost for host in result.report.hosts] == ["its agent died"] * 2


async def test_a_stop_waits_no_longer_for_a_host_than_to_connect() -> None:
    pods = Pod(0, ends_when_stopped), Pod(1, None)
    pods[1].host.answers = False
    known = replace(KNOWN, ssh=SshOptions(connect_timeout=CONNECTING))
    options = ViewOptions(streams=(), stop=10.0, limits=Limits(retry_first=0.01))
    report = (await view(pods, options, known=known)).report
    assert [(host.lost, host.is_confirmed) for host in report.hosts] == [
        (None, True),
        ("the host does not answer", False),
    ]
    assert (report.exit_status, report.reason) == (143, "stopped: asked for by mnspawn stop")


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_link_that_breaks_while_old_output_is_read_is_dialled_again(comes_back: bool) -> None:
    """`mnspawn logs` without -f: half of the output is no answer."""

    async def breaks_once(pod: Pod, watcher: Watcher) -> None:
        if pod.looks == 1:
            if not comes_back:
                pod.host.refusals += [HostError("no answer", host="a")] * 10_000
            raise EOFError
        await watcher.say({"type": messages.CAUGHT_UP})

    async def has_nothing(pod: Pod, watcher: Watcher) -> None:
        await watcher.say({"type": messages.CAUGHT_UP})

    pods, witness = (Pod(0, breaks_once), Pod(1, has_nothing)), Witness()
    limits = Limits(lost=PATIENCE if comes_back else 1.0, retry_first=0.01)
    result = await view(pods, ViewOptions(is_following=False, limits=limits), witness)
    assert pods[0].looks == (2 if comes_back else 1)
    assert comes_back or len(pods[0].host.refusals) < 9_999  # it was dialled more than once
    assert list(result.errors) == ([] if comes_back else ["a"])
    assert [type(event) for event in witness.events] == [HostLinkLost, *[HostLinkBack] * comes_back]


@pytest.mark.parametrize("is_in_charge", [True, False])
async def test_a_host_that_says_nonsense_is_lost_for_who_is_in_charge_and_told_to_who_looks(
    is_in_charge: bool,
) -> None:
    """What its folder says is read anew over every connection: no other one would be better."""
    nonsense = "said something that makes no sense: exited: code=256"

    async def lies(pod: Pod, watcher: Watcher) -> None:
        await watcher.say(exited(1, code=256))

    pods = Pod(0, ends_when_stopped if is_in_charge else has_ended), Pod(1, lies)
    result = await view(pods, ViewOptions(streams=(), is_in_charge=is_in_charge))
    assert [(len(pod.orders), pod.reaped.is_set(), pod.looks) for pod in pods] == [
        (int(is_in_charge), False, 1),
        (0, is_in_charge, 1),
    ]
    if is_in_charge:
        assert result.errors == {}
        assert (result.report.exit_status, result.report.hosts[1].lost) == (5, nonsense)
        assert result.report.hosts[1].is_confirmed
    else:
        assert {name: error.message for name, error in result.errors.items()} == {"b": nonsense}


@pytest.mark.parametrize("left", [[], [[7, "hangs in the kernel"]]])
async def test_to_stop_a_pod_whose_folder_is_gone_is_to_end_what_carries_its_mark(left: list[Any]) -> None:
    pods = Pod(0, ends_when_stopped), Pod(1, None, left=left)
    result = await view(pods, ViewOptions(streams=(), stop=3.0))
    assert orders(pods) == [("a", "stop", "3", "mnspawn stop")]
    assert ([pod.reaped.is_set() for pod in pods], result.errors) == ([False, True], {})
    assert result.report.hosts[1].is_confirmed == (not left)
    assert result.report.hosts[1].leftovers == tuple(pid for pid, _ in left)


def unfinished(lies: bool = False) -> Script:
    """Its rank has ended, and nothing says that nothing is left; the agent that is ended is gone, unless that lies."""

    async def script(pod: Pod, watcher: Watcher) -> None:
        await watcher.say(exited(pod.rank))
        if not lies:
            await pod.reaped.wait()
            await watcher.say(GONE, {"type": messages.CAUGHT_UP})

    return script


IN_CHARGE = ViewOptions(streams=(), is_in_charge=True, limits=Limits(proof=0.1, last_words=SHORT, retry_first=0.01))
BRIEF = replace(KNOWN, grace=0.1)


async def test_who_is_in_charge_ends_agents_that_never_finish() -> None:
    pods = Pod(0, unfinished()), Pod(1, unfinished())
    options = replace(IN_CHARGE, limits=replace(IN_CHARGE.limits, last_words=PATIENCE))
    result = await view(pods, options, known=BRIEF)
    assert (result.has_ended, [pod.reaped.is_set() for pod in pods]) == (True, [True, True])
    assert [host.lost for host in result.report.hosts] == ["its agent died"] * 2


async def test_who_is_in_charge_loses_a_host_that_never_says_that_its_agent_is_gone() -> None:
    result = await view((Pod(0, has_ended), Pod(1, unfinished(lies=True))), IN_CHARGE, known=BRIEF)
    assert result.has_ended
    assert [host.lost for host in result.report.hosts] == [None, "its agent did not finish within 0 s"]


@pytest.mark.parametrize("beats", [True, False])
async def test_a_look_waits_for_no_host_that_only_beats(beats: bool) -> None:
    """It is named; the others have said what they know. A slow reader here is no fault of a host."""
    reader = Witness()
    count = 0

    async def only_beats(pod: Pod, watcher: Watcher) -> None:
        nonlocal count
        reader.backlog = 1 << 30
        watcher.channel.send_output(pod.rank, 1, 0, b"x", 1.0)
        for _ in range(20):
            await watcher.beat()
            await asyncio.sleep(SHORT)  # all of them together take ten times as long as a host may be idle
            count += 1
        reader.backlog = 0
        reader.wake()

    pods = Pod(0, has_ended), Pod(1, only_beats if beats else has_ended)
    limits = Limits(output=2 * SHORT, look=SHORT / 5)
    result = await view(pods, ViewOptions(is_following=False, limits=limits), reader)
    told = {name: error.message for name, error in result.errors.items()}
    assert told == ({"b": "it answers, but does not say what it knows"} if beats else {})
    assert count == (20 if beats else 0)


@pytest.mark.parametrize("is_in_charge", [True, False])
async def test_a_bug_of_ours_has_the_hosts_of_a_run_told_to_stop_by_who_is_in_charge(is_in_charge: bool) -> None:
    """Who only looks disturbs no run."""

    def break_down(event: Event) -> None:
        raise RuntimeError("can't be")

    pods = Pod(0, unfinished()), Pod(1, None)
    pods[1].host.refusals = [HostError("no answer", host="b")] * 10_000
    options = replace(IN_CHARGE, is_in_charge=is_in_charge, handle_signals=True)
    with pytest.raises(BaseExceptionGroup) as caught:
        await view(pods, options, Witness(break_down), known=BRIEF)
    assert orders(pods) == ([("a", "stop", "0.1", "mnspawn attach")] if is_in_charge else [])
    if is_in_charge:
        assert caught.value.__notes__ == ["not told to stop: b; mnspawn stop 1a2b3c4d tells them"]
