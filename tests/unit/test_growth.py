"""What a run costs grows with its hosts, ranks and output, not with their product: in instructions, not in seconds."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Complete, Exited, Output, Started
from mnspawn.core.message_check import Speaker
from mnspawn.core.run import RunMachine, RunState
from mnspawn.core.session import HostSession
from mnspawn.engine.link.delivery import HIGH_WATER, Delivery
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.run.answers import Answers
from mnspawn.engine.run.prepare import Preparation
from mnspawn.errors import HostError
from mnspawn.events import Event, RunStarting, Stream, WorkerExited, WorkerOutput, WorkerStarted
from mnspawn.output.sinks import ConsoleSink
from mnspawn.plan.layout import ranks_of
from mnspawn.report import RankEnd
from mnspawn.spawning.ranks import Ranks
from mnspawn_agent.core.pod import PodMachine, PodState
from mnspawn_agent.posix.files.spool import Spool, Spools
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel
from mnspawn_inventory import Host
from tests.support.work import growth, steps
from tests.unit.engine.test_prepare import preparation

LINEAR = 2.2  # of twice the size; quadratic work takes 4


def life(hosts: int) -> Callable[[], object]:
    """A run of two ranks a host, from its first dial to its end."""

    def work() -> None:
        run = RunMachine("r", [f"h{number}" for number in range(hosts)], 10.0, now=0.0)
        for host in range(hosts):
            run.phase(host, "connected", 1.0)
            run.connected(host)
        run.laid_out(ranks_of([2] * hosts))
        for host in range(hosts):
            run.prepared(host, 2.0)
        for rank in range(2 * hosts):
            run.started(rank, 100 + rank)
        tell_the_end(run, hosts)

    return work


def tell_the_end(run: RunMachine, hosts: int) -> None:
    for rank in range(2 * hosts):
        run.exited(Exited(rank, 5.0, RankEnd(100 + rank, 0, 3.0)), now=5.0)
    for host in range(hosts):
        run.done(host, (), 0)
        run.settled(host, 6.0)
    assert run.state is RunState.DONE


def replay(hosts: int) -> Callable[[], object]:
    """The same run, told to somebody who looks at it later."""

    def work() -> None:
        names = [f"h{number}" for number in range(hosts)]
        run = RunMachine.adopt("r", names, ranks_of([2] * hosts), 10.0, 9.0, 0.0)
        for host in range(hosts):
            for name in ("prepared", "started", "ended"):
                run.phase(host, name, 1.0)
        tell_the_end(run, hosts)

    return work


def pod(ranks: int) -> Callable[[], object]:
    """A pod whose workers end one by one, each seen in a turn of the agent's loop of its own."""

    def work() -> None:
        machine = PodMachine(range(ranks), grace=10.0)
        machine.start()
        for rank in range(ranks):
            machine.spawned(rank, 100 + rank, 0.0)
            turn(machine, 1.0)
        for rank in range(ranks // 2):
            machine.exited(rank, 0)
            turn(machine, 2.0)
        machine.stop(3.0, 10.0)
        for rank in range(ranks // 2, ranks):
            machine.exited(rank, -15)
            turn(machine, 4.0)
        assert machine.state is PodState.SWEEPING

    return work


def turn(machine: PodMachine, now: float) -> None:
    machine.settle(now)
    machine.on_time(now)
    assert machine.deadline is None or machine.deadline >= now
    machine.actions()


def output_behind_the_end(ranks: int) -> Callable[[], object]:
    """Every rank has ended, and then all their output arrives."""
    session, agent = HostSession(0.0, 1 << 20, speaker=Speaker.WATCHER), Channel(0.0)
    sizes = [[rank, stream, 4] for rank in range(ranks) for stream in (1, 2)]
    agent.send(messages.make(messages.DONE, leftovers=[], reasons=[], swept=0, sizes=sizes, at=1.0))
    for rank, stream, _ in sizes:
        agent.send_output(rank, stream, 0, b"text", 0.0)
    wire = agent.data_to_send(0.0)

    def work() -> None:
        session.receive(wire, 1.0)
        assert [event for event in session.events() if isinstance(event, Complete)] == [Complete()]

    return work


def spawned(ranks: int) -> Callable[[], object]:
    """Ranks of a function that start and end, while somebody asks after each whether all run and whether one ended."""
    workers = [{"rank": rank, "local_rank": rank} for rank in range(ranks)]
    listener = Ranks(stops_on_failure=False)
    listener.on_event(RunStarting(0.0, "r", ranks, {"pods": [{"host": "a", "trainers": workers}]}))

    def work() -> None:
        for rank in range(ranks):
            listener.on_event(WorkerStarted(0.0, "a", rank, rank, 100 + rank))
            assert listener.has_started is (rank == ranks - 1)
        for rank in range(ranks):
            listener.on_event(WorkerExited(0.0, "a", rank, rank, 100 + rank, 0, 1.0, False, False))
            assert len(listener.ended) == rank + 1

    return work


def plans(hosts: int) -> Callable[[], object]:
    """What every host is asked for. Lists of all hosts are made once."""
    made: Preparation = preparation(hosts)

    def work() -> None:
        for index in range(hosts):
            made.message(index, ())

    return work


def answers(hosts: int) -> Callable[[], object]:
    """Every host can't be used, or refuses the plan; each time it is asked whether that is all."""

    def work() -> None:
        given = Answers([f"h{number}" for number in range(hosts)], "train.py")
        for host in range(hosts):
            given.failed(host, HostError("no answer"))
            assert given.are_unusable is (host == hosts - 1)
        for host in range(hosts):
            given.refused(host, ("no",))
            assert given.are_refusals is (host == hosts - 1)

    return work


def remembered_ranks(hosts: int) -> Callable[[], object]:
    known = KnownRun("1a2b3c4d", tuple(Host(name=f"h{number}") for number in range(hosts)), (8,) * hosts)
    return lambda: known.ranks


@pytest.mark.parametrize("work", [life, replay, pod, output_behind_the_end, spawned, plans, answers, remembered_ranks])
def test_twice_the_size_is_twice_the_work(work: Callable[[int], Callable[[], object]]) -> None:
    assert growth(work, 100) < LINEAR


# -- output


class Listener:
    """Has as much to write as it is told."""

    backlog = 0

    def bind(self, wake: Callable[[], None]) -> None:
        pass

    def on_event(self, event: Event) -> None:
        pass

    async def aclose(self) -> None:
        pass


class Link:
    """Counts how often it is visited."""

    def __init__(self) -> None:
        self.owed = 0
        self.paid: list[int] = []

    def pay(self) -> None:
        self.paid.append(self.owed)
        self.owed = 0


async def test_a_chunk_of_output_pays_its_own_link_and_visits_no_other() -> None:
    listener = Listener()
    delivery = Delivery([listener])
    links = [Link() for _ in range(100)]
    for offset in range(0, 50, 10):
        delivery.emit_of_agent("h0", Output(0, 1, offset, b"0123456789", 0.0), int, links[0])
    assert [link.paid for link in links] == [[10] * 5, *[[] for _ in range(99)]]
    delivery.emit_of_agent("h0", Started(0, 7, 0.0), int, links[0])
    assert len(links[0].paid) == 5

    listener.backlog = HIGH_WATER + 1  # who reads has stopped
    for link in links[:3]:
        for offset in range(50, 70, 10):
            delivery.emit_of_agent("h0", Output(0, 1, offset, b"0123456789", 0.0), int, link)
    assert len(links[0].paid) == 5
    listener.backlog = HIGH_WATER
    delivery.release_credit()
    delivery.release_credit()
    assert [link.paid[5 if link is links[0] else 0 :] for link in links[:4]] == [[20], [20], [20], []]


def ends(sink: ConsoleSink, ranks: int) -> Callable[[], object]:
    for rank in range(ranks):
        sink.on_event(WorkerOutput(0.0, "a", rank, Stream.STDOUT, 0, b"half a line"))

    def work() -> None:
        for rank in range(ranks):
            sink.on_event(WorkerExited(0.0, "a", rank, rank, 100 + rank, 0, 1.0, False, False))

    return work


def test_the_end_of_a_rank_is_shown_without_a_look_at_the_others() -> None:
    async def shown(ranks: int, fd: int) -> int:
        sink = ConsoleSink(stdout=fd, stderr=fd)
        count = steps(ends(sink, ranks))
        await sink.aclose()
        return count

    with Path(os.devnull).open("wb") as nowhere:
        assert asyncio.run(shown(200, nowhere.fileno())) / asyncio.run(shown(100, nowhere.fileno())) < LINEAR


def test_the_agent_finds_the_streams_of_a_rank_without_a_look_at_the_others(tmp_path: Path) -> None:
    def reading(ranks: int) -> Callable[[], object]:
        def work() -> None:
            for rank in range(ranks):
                for spool in spools.of(rank):
                    spools.queue(spool)
            assert spools.next_chunk(10, lambda stream: 10) is None

        return work

    counts = []
    for ranks in (50, 100):
        spools = Spools()
        for rank in range(ranks):
            for stream in (1, 2):
                path = tmp_path / f"rank-{rank}.{stream}"
                path.touch()
                spools.add(Spool(rank, stream, str(path)))
        counts.append(steps(reading(ranks)))
        spools.close()
    assert counts[1] / counts[0] < LINEAR
