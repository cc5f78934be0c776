"""Both halves of a link against each other, over wires that are cut at every byte."""

from mnspawn.core.agent_events import (
    Complete,
    Done,
    Drained,
    Exited,
    Gap,
    Hello,
    LinkLost,
    Output,
    Prepared,
    SessionEvent,
    Started,
)
from mnspawn.core.session import HostSession
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Received, Synced
from tests.unit.protocol import conversation
from tests.unit.protocol.cable import Cable

STAMP = 1700000000.5
CHUNK = 7
STREAMS = {(0, 1): b"rank 0 says a lot\n" * 3, (0, 2): b"oops\n", (1, 1): b"", (1, 2): bytes(range(60))}


class ModelAgent:
    """What posix/link/agent.py does with its channel, without a system: streams are bytes, a pod is three messages.

    Args:
        kept: offset of the oldest byte that is still there, by stream.
        offsets: where streams go on, for one who tells all from the beginning (a watcher).
    """

    def __init__(
        self, kept: dict[tuple[int, int], int] | None = None, offsets: dict[tuple[int, int], int] | None = None
    ) -> None:
        self.channel = Channel(0.0)
        self._offsets = dict.fromkeys(STREAMS, 0) | {key: at for key, at in (offsets or {}).items() if key in STREAMS}
        self._kept = kept or {}
        self.is_told_to_go = False
        self._has_started = False
        if offsets is None:
            self.channel.send(conversation.hello())
        else:
            self._start()

    def _start(self) -> None:
        self._has_started = True
        for rank in (0, 1):
            self.channel.send(messages.make(messages.STARTED, rank=rank, pid=100 + rank, at=0.0))
        for rank in (1, 0):
            self._end(rank)
        sizes = [[rank, stream, len(text)] for (rank, stream), text in STREAMS.items()]
        self.channel.send(messages.make(messages.DONE, leftovers=[], swept=0, sizes=sizes, at=2.0))

    def _end(self, rank: int) -> None:
        sizes = [[stream, len(text)] for (owner, stream), text in STREAMS.items() if owner == rank]
        self.channel.send(
            messages.make(
                messages.EXITED, rank=rank, pid=100 + rank, code=rank, at=0.0, seconds=1.0, stopped=False,
                killed=False, outlived_term=False, is_disk_full=False, sizes=sizes, tail=[],
                raised=None,
            )
        )  # fmt: skip

    # -- an End of a Cable
    def data_to_send(self, now: float) -> bytes:
        for (rank, stream), text in STREAMS.items() if self._has_started else ():
            offset = self._offsets[rank, stream]
            chunk = text[offset : offset + min(CHUNK, self.channel.output_allowance(1))]
            if chunk:
                self.channel.send_output(rank, stream, offset, chunk, STAMP)
                self._offsets[rank, stream] += len(chunk)
        return self.channel.data_to_send(now)

    def receive(self, chunk: bytes, now: float) -> None:
        self.channel.receive(chunk, now)
        for event in self.channel.events():
            if isinstance(event, Received):
                self.is_told_to_go = event.message["type"] == messages.FINISH
                if event.message["type"] == messages.PREPARE:
                    self.channel.send(conversation.prepared(ports=2))
                elif event.message["type"] == messages.START:
                    self._start()
            elif isinstance(event, Synced):
                self._rewind({(rank, stream): offset for rank, stream, offset in event.message["offsets"]})

    def _rewind(self, offsets: dict[tuple[int, int], int]) -> None:
        for key in STREAMS:
            wanted = offsets.get(key, 0)
            start = max(wanted, self._kept.get(key, 0))
            self._offsets[key] = start
            if start > wanted:
                rank, stream = key
                self.channel.send(
                    messages.make(messages.LOST_OUTPUT, rank=rank, stream=stream, offset=wanted, count=start - wanted)
                )


class Controller:
    """What the engine does with a session: passes events on, pays for output, says FINISH when all is there."""

    def __init__(self, window: int = 40, pays: bool = True) -> None:
        self.session = HostSession(0.0, window)
        self._pays = pays
        self.events: list[SessionEvent] = []

    def data_to_send(self, now: float) -> bytes:
        return self.session.data_to_send(now)

    def receive(self, chunk: bytes, now: float) -> None:
        self.session.receive(chunk, now)
        for event in self.session.events():
            self.events.append(event)
            if isinstance(event, Hello):
                self.session.send(conversation.prepare([0, 1]))
            elif isinstance(event, Prepared):
                self.session.send(conversation.start())
            elif isinstance(event, Output) and self._pays:
                self.session.consumed(len(event.chunk))
            elif isinstance(event, Complete):
                self.session.send(messages.make(messages.FINISH, keep=True))

    def text(self, rank: int, stream: int) -> bytes:
        return b"".join(e.chunk for e in self.events if isinstance(e, Output) and (e.rank, e.stream) == (rank, stream))

    def count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.events)


def reconnect(controller: Controller, agent: ModelAgent, now: float) -> None:
    controller.session.resume(now)
    agent.channel.resume(now, {})
    agent.channel.events()


def whole_run() -> int:
    cable = Cable(Controller(), ModelAgent())
    cable.pass_on(0.0)
    return cable.carried


def check(controller: Controller, agent: ModelAgent) -> None:
    assert {key: controller.text(*key) for key in STREAMS} == STREAMS
    kinds = (Started, Exited, Drained, Done, Complete, Gap)
    assert [controller.count(kind) for kind in kinds] == [2, 2, 2, 1, 1, 0]
    assert agent.is_told_to_go
    for rank in (0, 1):
        own: list[SessionEvent] = [e for e in controller.events if isinstance(e, Output) and e.rank == rank]
        started = next(e for e in controller.events if isinstance(e, Started) and e.rank == rank)
        drained = next(e for e in controller.events if isinstance(e, Drained) and e.exited.rank == rank)
        places = [controller.events.index(event) for event in (started, *own, drained)]
        assert places == sorted(places)


def test_a_whole_run_over_a_good_wire() -> None:
    controller, agent = Controller(), ModelAgent()
    Cable(controller, agent, piece=11, delay=0.01).pass_on(0.0)
    check(controller, agent)


def test_a_wire_cut_anywhere_costs_no_byte_and_repeats_none() -> None:
    for cut in range(whole_run()):
        controller, agent = Controller(), ModelAgent()
        Cable(controller, agent, budget=cut, piece=97).pass_on(0.0)
        reconnect(controller, agent, now=1.0)
        Cable(controller, agent, piece=97).pass_on(1.0)
        check(controller, agent)
        assert controller.count(LinkLost) == 1


def test_wires_that_break_again_and_again_only_take_longer() -> None:
    for budget in range(1000, 1500, 13):
        controller, agent = Controller(), ModelAgent()
        for attempt in range(100):
            cable = Cable(controller, agent, budget=budget, piece=5)
            cable.pass_on(float(attempt))
            if not cable.is_cut:
                break
            reconnect(controller, agent, now=attempt + 0.5)
        check(controller, agent)


def test_the_rest_can_be_read_from_a_watcher_and_nothing_is_told_twice() -> None:
    for cut in range(0, whole_run(), 7):
        controller, agent = Controller(), ModelAgent()
        controller.session.expect((0, 1))
        Cable(controller, agent, budget=cut, piece=97).pass_on(0.0)
        if controller.count(Complete):
            break  # all is known
        controller.receive(b"", 1.0)
        controller.session.read_again(1.0)
        watcher = ModelAgent(offsets=controller.session.offsets)
        Cable(controller, watcher, piece=97).pass_on(1.0)
        check(controller, watcher)


def test_a_tiny_window_only_takes_longer() -> None:
    controller, agent = Controller(window=4), ModelAgent()
    Cable(controller, agent).pass_on(0.0)
    check(controller, agent)


def test_nothing_is_sent_to_a_controller_that_does_not_pay() -> None:
    controller, agent = Controller(window=30, pays=False), ModelAgent()
    Cable(controller, agent).pass_on(0.0)
    assert sum(len(event.chunk) for event in controller.events if isinstance(event, Output)) == 30


def test_bytes_that_went_while_the_link_was_down_are_counted_and_the_rest_comes() -> None:
    controller, agent = Controller(window=0), ModelAgent(kept={(0, 1): 30, (1, 2): 60})
    Cable(controller, agent).pass_on(0.0)
    assert [controller.count(kind) for kind in (Exited, Output)] == [2, 0]
    controller.session.window = 40
    controller.receive(b"", 0.0)
    agent.receive(b"", 0.0)
    reconnect(controller, agent, now=1.0)
    Cable(controller, agent).pass_on(1.0)
    gaps = {(g.rank, g.stream): (g.offset, g.count) for g in controller.events if isinstance(g, Gap)}
    assert gaps == {(0, 1): (0, 30), (1, 2): (0, 60)}
    assert controller.text(0, 1) == STREAMS[0, 1][30:]
    assert controller.text(1, 2) == b""
    assert [controller.count(kind) for kind in (Drained, Done, Complete)] == [2, 1, 1]
    assert agent.is_told_to_go
