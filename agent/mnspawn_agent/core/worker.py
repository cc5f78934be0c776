"""One worker's life: what to do to its process group, and when. Pure: no I/O, no clock."""

from enum import Enum
from typing import Any, Dict, List, NamedTuple, Optional

from ..protocol.exits import KILL_LIMIT


class WorkerState(Enum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    GIVEN_UP = "given up"  # it outlived KILL and is no longer waited for
    NOT_STARTED = "not started"


S = WorkerState
MOVES: Dict[WorkerState, Dict[str, WorkerState]] = {
    S.PENDING: {"spawned": S.RUNNING, "spawn_failed": S.NOT_STARTED, "stop": S.NOT_STARTED},
    S.RUNNING: {"exited": S.EXITED, "stop": S.STOPPING},
    S.STOPPING: {"exited": S.EXITED, "stop": S.STOPPING, "outlived_kill": S.GIVEN_UP},
    S.GIVEN_UP: {"exited": S.EXITED, "stop": S.GIVEN_UP},
    S.EXITED: {"stop": S.EXITED},
    S.NOT_STARTED: {"stop": S.NOT_STARTED},
}

ENDED = frozenset((S.EXITED, S.NOT_STARTED, S.GIVEN_UP))


class SendSignal(NamedTuple):
    """Send a signal to a whole process group."""

    pgid: int
    signal: str


class WorkerMachine:
    """PENDING -> RUNNING -> (STOPPING ->) EXITED, or GIVEN_UP, or NOT_STARTED. Every state answers `stop`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state = S.PENDING
        self.pid = 0
        self.code: Optional[int] = None
        self.started_at = 0.0
        self.deadline: Optional[float] = None
        self.was_stopped = False  # our stop came before its end
        self.was_killed = False  # by us
        self.outlived_term = False  # TERM and the whole grace were not enough

    def _move(self, fact: str) -> None:
        try:
            self.state = MOVES[self.state][fact]
        except KeyError:
            raise AssertionError("worker %d: %s in state %s" % (self.rank, fact, self.state.value))

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def status(self) -> Dict[str, Any]:
        """The worker's part of status.json."""
        state, code, stopped = self.state.value, self.code, self.was_stopped
        return {"rank": self.rank, "pid": self.pid, "state": state, "code": code, "stopped": stopped}

    def end(self) -> Dict[str, Any]:
        """The worker's part of EXITED."""
        return {
            "pid": self.pid,
            "code": self.code,
            "stopped": self.was_stopped,
            "killed": self.was_killed,
            "outlived_term": self.outlived_term,
        }

    def spawned(self, pid: int, now: float) -> None:
        self._move("spawned")
        self.pid = pid
        self.started_at = now

    def spawn_failed(self) -> None:
        self._move("spawn_failed")

    def exited(self, code: int) -> None:
        self._move("exited")
        self.code = code
        self.deadline = None

    def stop(self, now: float, grace: float) -> List[SendSignal]:
        """TERM now and KILL after `grace` seconds; asking again can shorten the grace but never lengthen it."""
        before = self.state
        self._move("stop")
        if self.has_ended:
            self.was_stopped = self.was_stopped or before is S.PENDING
            return []
        if before is S.STOPPING:
            if not self.was_killed and self.deadline is not None and now + grace < self.deadline:
                if grace <= 0:
                    return self._kill(now)  # asked for: nobody knows what TERM alone would have done
                self.deadline = now + grace
            return self.on_time(now)
        self.was_stopped = True
        self.deadline = now + grace
        if grace <= 0:
            return self._kill(now)
        # a stopped (SIGSTOP) process gets its TERM only when it continues
        return [SendSignal(self.pid, "SIGTERM"), SendSignal(self.pid, "SIGCONT")]

    def on_time(self, now: float) -> List[SendSignal]:
        if self.deadline is None or now < self.deadline:
            return []
        if self.was_killed:
            self._move("outlived_kill")
            self.deadline = None
            return []
        self.outlived_term = True
        return self._kill(now)

    def _kill(self, now: float) -> List[SendSignal]:
        self.deadline = now + KILL_LIMIT
        self.was_killed = True
        return [SendSignal(self.pid, "SIGKILL")]
