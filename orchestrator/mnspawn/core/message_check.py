"""Checks what a host says: its fields, its order, and whether it answers what was asked. Pure.

Our own agent passes always. Another program in its place may say anything, and must not harm anything but its own host.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from mnspawn_agent.protocol import messages as m
from mnspawn_agent.protocol.checks import MAX_COUNT

Message = dict[str, Any]

MAX_NOTICED = 1 << 28  # characters for people in one session: our agents say some lines a minute at most, for a year


class Speaker(Enum):
    """Who is at the other end."""

    AGENT = "agent"  # runs the pod, and says each thing once
    WATCHER = "watcher"  # reads the pod's journal, from which a full disk may have taken lines
    TAILER = "tailer"


class Phase(Enum):
    """How far an agent is, by what we sent and what it answered."""

    CALLED = "called"
    PRESENT = "present"
    PREPARING = "preparing"
    PREPARED = "prepared"
    REFUSED = "refused"
    STARTED = "started"
    DONE = "done"


P = Phase
_ANY_TIME = {m.NOTICE}
_FROM_THE_HOST = {m.STOPPING, m.LET_GO, *_ANY_TIME}  # somebody there speaks to the agent of a pod
MOVES: dict[Phase, dict[str, Phase]] = {  # what we say (PREPARE, START) and what an agent may say
    P.CALLED: {m.HELLO: P.PRESENT},
    P.PRESENT: {m.PREPARE: P.PREPARING, **dict.fromkeys(_ANY_TIME, P.PRESENT)},
    P.PREPARING: {
        m.NEED: P.PREPARING,
        m.PREPARED: P.PREPARED,
        m.REFUSED: P.REFUSED,
        m.DONE: P.DONE,  # stopped on the host
        **dict.fromkeys(_FROM_THE_HOST, P.PREPARING),
    },
    P.REFUSED: {m.DONE: P.DONE, **dict.fromkeys(_FROM_THE_HOST, P.REFUSED)},
    P.PREPARED: {m.START: P.STARTED, m.DONE: P.DONE, **dict.fromkeys(_FROM_THE_HOST, P.PREPARED)},
    P.STARTED: {
        m.DONE: P.DONE,
        **dict.fromkeys((m.STARTED, m.NOT_STARTED, m.EXITED, m.LEFT, m.LOST_OUTPUT), P.STARTED),
        **dict.fromkeys(_FROM_THE_HOST, P.STARTED),
    },
    P.DONE: {
        m.START: P.DONE,  # said before we knew
        m.PREPARED: P.DONE,  # files were still on their way when it was stopped
        m.REFUSED: P.DONE,
        **dict.fromkeys((m.EXITED, m.LEFT, m.LOST_OUTPUT, m.LET_GO, *_ANY_TIME), P.DONE),
    },
}
OF_WATCHERS = frozenset((
    m.HELLO, m.PREPARED, m.STARTED, m.NOT_STARTED, m.EXITED, m.DONE, m.STOPPING, m.LOST_OUTPUT, m.FROM, m.CAUGHT_UP,
    m.GONE, m.NOTICE,
))  # fmt: skip
OF_TAILERS = frozenset((m.HELLO, m.FILE, m.NOTICE))

# a rank's life as an agent tells it
BEGINS = {m.STARTED: "runs", m.NOT_STARTED: "ended"}


class MessageCheck:
    """Checks what one host may send next in one session."""

    def __init__(self, speaker: Speaker = Speaker.AGENT) -> None:
        self.speaker = speaker
        self._phase = P.CALLED
        self._ranks: frozenset[int] | None = None
        self._asked: Message = {}  # PREPARE
        self._lives: dict[int, str] = {}  # ranks of an agent that have begun
        self._has_needed = False
        self._noticed = 0
        self._paths: dict[int, str] = {}  # of a tailer's files, by number

    @property
    def ranks(self) -> frozenset[int]:
        """Return the host's ranks, as far as they are known."""
        return self._ranks or frozenset()

    def expect(self, ranks: Iterable[int]) -> None:
        """Which ranks the host has."""
        self._ranks = frozenset(ranks)

    def replay(self) -> None:
        """Expect a watcher, which reports from the beginning what the agent has reported in part."""
        self.speaker = Speaker.WATCHER

    def we_said(self, message: Message) -> None:
        """Note what we send: it decides what may be answered."""
        kind = message["type"]
        self._phase = MOVES[self._phase].get(kind, self._phase)
        if kind == m.PREPARE:
            self._asked = message
            self.expect(message["ranks"])

    def problem_of(self, message: Message) -> str | None:
        """Return what is wrong with a message; None notes it as said."""
        problem = m.problem_of(message)
        if problem is not None:
            return problem
        kind, rank = message["type"], message.get("rank")
        if self._is_out_of_order(kind):
            return f"{kind} {self._when()}"
        if rank is not None and self.is_strange(rank):
            return f"{kind}: rank {rank}, which is none of this host's"
        return self._problem_of_numbers(message) or self._problem_in_life(message)

    def is_strange(self, rank: int) -> bool:
        return self._ranks is not None and rank not in self._ranks

    def problem_of_output(self, rank: int) -> str | None:
        """Return what is wrong with output of a rank, or None."""
        if self.speaker is Speaker.TAILER:
            return None if rank in self._paths else f"output of file {rank}, which was never opened"
        if self.speaker is Speaker.AGENT and self._phase not in (P.STARTED, P.DONE):
            return f"output {self._when()}"
        return f"output of rank {rank}, which is none of this host's" if self.is_strange(rank) else None

    def _is_out_of_order(self, kind: str) -> bool:
        if self.speaker is Speaker.AGENT:
            after = MOVES[self._phase].get(kind)
            if after is None or kind in (m.PREPARE, m.START):
                return True
            self._phase = after
            return False
        allowed = OF_WATCHERS if self.speaker is Speaker.WATCHER else OF_TAILERS
        return kind not in allowed

    def _when(self) -> str:
        if self.speaker is not Speaker.AGENT:
            return f"from a {self.speaker.value}"
        words = {P.CALLED: "before hello", P.PRESENT: "before it was asked to prepare", P.DONE: "after done"}
        return words.get(self._phase, f"while it is {self._phase.value}")

    def _problem_of_numbers(self, message: Message) -> str | None:
        """Return what contradicts other fields, or what was asked for."""
        kind = message["type"]
        if kind in (m.LEFT, m.LOST_OUTPUT) and message["offset"] + message["count"] >= MAX_COUNT:
            return f"{kind}: offset={message['offset']}, count={message['count']}"
        if kind == m.DONE and any(self.is_strange(rank) for rank, _, _ in message["sizes"]):
            return f"{kind}: sizes of ranks that are none of this host's"
        if kind == m.FILE and self._paths.setdefault(message["number"], message["path"]) != message["path"]:
            return f"{kind}: another path for number {message['number']}"
        if kind == m.NOTICE:
            self._noticed += 1 + len(message["text"])
            return f"notices of over {MAX_NOTICED} characters" if self._noticed > MAX_NOTICED else None
        if self._asked and kind == m.NEED:
            return self._problem_of_need(message["blobs"])
        return self._problem_of_answer(message) if self._asked and kind == m.PREPARED else None

    def _problem_of_need(self, blobs: list[int]) -> str | None:
        known = {file["blob"] for file in self._asked["files"]}
        if self._has_needed or not known.issuperset(blobs) or len(set(blobs)) != len(blobs):
            return f"need: blobs={blobs[:8]}, there are {len(known)}, each once"
        self._has_needed = True
        return None

    def _problem_of_answer(self, message: Message) -> str | None:
        asked = self._asked
        wanted = {"ports": len(asked["ranks"]), "extra_ports": asked["extra_ports"], "files": len(asked["files"])}
        for name, count in wanted.items():
            if len(message[name]) != count:
                return f"prepared: {len(message[name])} {name}, expected {count}"
        return None

    def _problem_in_life(self, message: Message) -> str | None:
        """Check that the start and end of every rank come once and in order."""
        kind, rank = message["type"], int(message.get("rank", -1))
        if self.speaker is not Speaker.AGENT:
            return None
        if kind in BEGINS:
            if rank in self._lives:
                return f"{kind}: rank {rank}, which {self._lives[rank]}"
            self._lives[rank] = BEGINS[kind]
        elif kind == m.EXITED:
            if self._lives.get(rank) != "runs":
                return f"{kind}: rank {rank}, which {self._lives.get(rank, 'never started')}"
            self._lives[rank] = "ended"
        return None
