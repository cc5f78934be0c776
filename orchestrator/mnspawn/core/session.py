"""The controller's half of a link: what the agent says, checked, in order, each byte once. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from mnspawn.report import RankEnd
from mnspawn_agent.protocol import channel, messages
from mnspawn_agent.protocol.checks import STREAMS
from mnspawn_agent.protocol.version import PROTOCOL

from . import agent_events as agent
from .agent_events import SessionEvent
from .facts import HostFacts, Nonsense
from .message_check import MessageCheck, Speaker

ONCE = frozenset(  # a watcher repeats what we have
    (messages.HELLO, messages.PREPARED, messages.STARTED, messages.NOT_STARTED, messages.EXITED, messages.DONE)
)

NONSENSE = "said something that makes no sense"


class HostSession:
    """One host's session across any number of wires.

    Args:
        window: bytes of output that the agent may have on the way; what bounds our memory per host.
        offsets: by (rank, stream), where output goes on that an earlier session began.
        speaker: who is at the other end. What makes no sense from there ends the session.
    """

    def __init__(
        self,
        now: float,
        window: int,
        silence_limit: float = channel.SILENCE_LIMIT,
        offsets: Mapping[tuple[int, int], int] | None = None,
        speaker: Speaker = Speaker.AGENT,
    ) -> None:
        self._check = MessageCheck(speaker)
        self._channel = channel.Channel(now, silence_limit)
        self.window = window
        self._owed = 0
        self._heard = now
        self._next: dict[tuple[int, int], int] = dict(offsets or {})
        self._waiting: dict[int, tuple[agent.Exited, dict[int, int]]] = {}  # exits whose output is still on its way
        self._missing: dict[tuple[int, int], int] = {}  # once all has ended: the sizes of what is not yet here
        self._events: list[SessionEvent] = []
        self.progress = 0  # events that are progress; what a host may say at any time is not among them
        self._told: set[tuple[str, int | None]] = set()  # what comes once, by kind and rank
        self._clock_offset: float | None = None  # as an earlier channel had measured it
        self._silence_limit = silence_limit
        self._channel.grant(window)

    def expect(self, ranks: Iterable[int]) -> None:
        """Note which ranks the host has; PREPARE does it, too."""
        self._check.expect(ranks)

    # -- the wire --------------------------------------------------------------------------------------------------
    @property
    def is_lost(self) -> bool:
        return self._channel.is_lost

    @property
    def deadline(self) -> float | None:
        return self._channel.deadline

    @property
    def bare_channel(self) -> channel.Channel:
        """For use without this session."""
        return self._channel

    @property
    def is_proved(self) -> bool:
        """Whether the agent has reported that all is over on its host."""
        return (messages.DONE, None) in self._told

    def receive(self, chunk: bytes, now: float) -> None:
        if chunk:
            self._heard = now
        self._channel.receive(chunk, now)
        self._take()

    def on_time(self, now: float) -> None:
        self._channel.on_time(now)
        self._take()

    def data_to_send(self, now: float) -> bytes:
        return self._channel.data_to_send(now)

    def resume(self, now: float) -> None:
        """Take the session up on a new wire."""
        self._channel.resume(now, {"offsets": [[rank, stream, at] for (rank, stream), at in self._next.items()]})
        self._heard = now
        self._owed = 0
        self._channel.grant(self.window)
        self._take()

    def read_again(self, now: float) -> None:
        """Continue with a watcher, which reports all from the beginning. What is known already makes no new events."""
        if self._clock_offset is None:
            self._clock_offset = self._channel.clock_offset
        self._channel = channel.Channel(now, self._silence_limit)
        self._check.replay()
        self._heard = now
        self._owed = 0
        for rank in self._check.ranks:
            for stream in STREAMS:
                self._next.setdefault((rank, stream), 0)
        self._channel.grant(self.window)

    # -- what we say -----------------------------------------------------------------------------------------------
    def send(self, message: dict[str, Any]) -> None:
        self._check.we_said(message)
        if message["type"] == messages.PREPARE:
            self._channel.silence_limit = channel.limit_of(message["silence_limit"])
        self._channel.send(message)

    def send_blob(self, blob: int, offset: int, chunk: bytes) -> None:
        self._channel.send_blob(blob, offset, chunk)

    @property
    def offsets(self) -> dict[tuple[int, int], int]:
        """By (rank, stream), the offset after the last byte that was passed on."""
        return dict(self._next)

    @property
    def unacknowledged_bytes(self) -> int:
        return self._channel.unacknowledged_bytes

    def consumed(self, count: int) -> None:
        """Output bytes were written out; the agent may send as many more."""
        self._owed += count
        if self._owed * 4 >= self.window and not self._channel.is_lost:
            self._channel.grant(self._owed)
            self._owed = 0

    def to_local(self, at: float, now: float) -> float:
        """Return an agent's monotonic time on our clock, never in the future."""
        offset = self._channel.clock_offset if self._clock_offset is None else self._clock_offset
        return min(now, at - offset) if offset is not None else now

    # -- what the agent says ---------------------------------------------------------------------------------------
    def events(self) -> list[SessionEvent]:
        events, self._events = self._events, []
        self.progress += sum(not isinstance(event, agent.Remark | agent.LetGo | agent.StopAsked) for event in events)
        return events

    def _take(self) -> None:
        for event in self._channel.events():
            problem = None
            match event:
                case channel.Received(message):
                    problem = self._check.problem_of(message) or self._take_message(message)
                case channel.OutputChunk():
                    problem = self._check.problem_of_output(event.rank)
                    if problem is None:
                        self._take_output(event)
                case channel.Lost(kind, detail):
                    said = f"{NONSENSE}: {detail}" if kind == "nonsense" else detail
                    self._events.append(agent.LinkLost(kind, said, self._heard))
                case channel.Synced():
                    pass  # the agent goes on where our offsets are
                case channel.BlobChunk():
                    problem = "a file"
            if problem is not None:
                self._channel.lose("nonsense", problem)
                self._channel.events()  # nothing after it counts
                self._events.append(agent.LinkLost("nonsense", f"{NONSENSE}: {problem}", self._heard))
                return

    def _take_message(self, message: dict[str, Any]) -> str | None:
        """Return what makes no sense in a message, or None."""
        rank = message.get("rank")
        if message["type"] in ONCE:
            if (message["type"], rank) in self._told:
                return None
            self._told.add((message["type"], rank))
        try:
            self._tell(message)
        except Nonsense as exc:
            return f"{message['type']}: {exc}"
        return None

    def _tell(self, message: dict[str, Any]) -> None:
        """Raises Nonsense."""
        now = self._heard
        match message:
            case {"type": messages.HELLO, "protocol": version, "facts": facts, "cached": cached}:
                if version != PROTOCOL:
                    self._events.append(agent.Refused((f"expected protocol {PROTOCOL}, found {version}",)))
                elif self._check.speaker is Speaker.AGENT:
                    self._events.append(agent.Hello(HostFacts.read(facts), cached))
            case {"type": messages.NEED, "blobs": blobs}:
                self._events.append(agent.Need(tuple(blobs)))
            case {"type": messages.PREPARED}:
                self._events.append(
                    agent.Prepared(
                        tuple(message["ports"]),
                        tuple(message["extra_ports"]),
                        message["run_dir"],
                        message["workdir"],
                        message["python"],
                        tuple(message["files"]),
                        dict(message["reach"]),
                        self.to_local(message["at"], now),
                    )
                )
            case {"type": messages.REFUSED, "reasons": reasons}:
                self._events.append(agent.Refused(tuple(reasons)))
            case {"type": messages.STARTED, "rank": rank, "pid": pid, "at": at}:
                self._events.append(agent.Started(rank, pid, self.to_local(at, now)))
            case {"type": messages.NOT_STARTED, "rank": rank, "at": at, "error": error}:
                self._events.append(agent.NotStarted(rank, self.to_local(at, now), error))
            case {"type": messages.EXITED}:
                self._take_exit(message, now)
            case {"type": messages.LEFT, "rank": rank, "stream": stream, "offset": offset, "count": count}:
                if offset + count > self._next.get((rank, stream), 0):  # it stays on the host, as we asked
                    self.progress += 1
                    self._advance(rank, stream, offset + count)
            case {"type": messages.LOST_OUTPUT, "rank": rank, "stream": stream, "offset": offset, "count": count}:
                self._skip(rank, stream, offset + count)
            case {"type": messages.DONE, "leftovers": leftovers, "swept": swept, "sizes": sizes, "at": at}:
                final = {(rank, stream): size for rank, stream, size in sizes}
                self._missing = {key: size for key, size in final.items() if self._next.get(key, 0) < size}
                pids, reasons = tuple(pid for pid, _ in leftovers), tuple(reason for _, reason in leftovers)
                self._events.append(agent.Done(pids, swept, self.to_local(at, now), reasons))
                self._look_for_end()
            case {"type": messages.FROM, "rank": rank, "stream": stream, "offset": offset}:
                if (rank, stream) in self._next:
                    self._skip(rank, stream, offset)  # bytes that the cap took meanwhile
                else:
                    self._next[rank, stream] = offset
            case {"type": messages.STOPPING, "reason": reason, "grace": grace, "is_orphaned": is_orphaned}:
                self._events.append(agent.StopAsked(reason, grace, is_orphaned))
            case {"type": messages.LET_GO}:
                self._events.append(agent.LetGo())
            case {"type": messages.CAUGHT_UP}:
                self._events.append(agent.CaughtUp())
            case {"type": messages.GONE, "reason": reason, "leftovers": leftovers}:
                pids, reasons = tuple(pid for pid, _ in leftovers), tuple(reason for _, reason in leftovers)
                self._events.append(agent.AgentGone(reason, pids, reasons))
            case {"type": messages.FILE}:
                fields = (message[name] for name in ("number", "path", "inode", "at", "offset"))
                self._events.append(agent.FileOpened(*fields))
            case {"type": messages.NOTICE, "text": text}:
                self._events.append(agent.Remark(text))

    def _take_exit(self, message: dict[str, Any], now: float) -> None:
        exited = agent.Exited(message["rank"], self.to_local(message["at"], now), RankEnd.read(message))
        self._events.append(exited)
        self._waiting[exited.rank] = (exited, dict(message["sizes"]))
        self._look_for_drain(exited.rank)

    def _take_output(self, output: channel.OutputChunk) -> None:
        rank, stream, offset, chunk, time = output
        size = len(chunk)
        expected = self._next.get((rank, stream), 0)
        if offset > expected:
            self._skip(rank, stream, offset)
        elif offset < expected:  # sent again after a reconnect
            chunk = chunk[expected - offset :]
            offset = expected
        self.consumed(size - len(chunk))
        if chunk:
            self._events.append(agent.Output(rank, stream, offset, chunk, time))
            self._advance(rank, stream, offset + len(chunk))

    def _skip(self, rank: int, stream: int, offset: int) -> None:
        """Note that bytes before an offset will never come."""
        expected = self._next.get((rank, stream), 0)
        if offset > expected:
            self._events.append(agent.Gap(rank, stream, expected, offset - expected))
            self._advance(rank, stream, offset)

    def _advance(self, rank: int, stream: int, offset: int) -> None:
        """Note that all of a stream has come up to an offset."""
        self._next[rank, stream] = offset
        self._look_for_drain(rank)
        size = self._missing.get((rank, stream))
        if size is not None and offset >= size:
            del self._missing[rank, stream]
            self._look_for_end()

    def _look_for_drain(self, rank: int) -> None:
        if rank in self._waiting:
            exited, sizes = self._waiting[rank]
            if all(self._next.get((rank, stream), 0) >= size for stream, size in sizes.items()):
                del self._waiting[rank]
                self._events.append(agent.Drained(exited))

    def _look_for_end(self) -> None:
        if not self._missing:
            self._events.append(agent.Complete())
