"""One pod's life on its host: first failure stops all, stop in stages, sweep, proof. Pure: no I/O, no clock."""

from enum import Enum
from typing import Container, Dict, List, NamedTuple, Optional, Sequence, Set, Union

from ..protocol.exits import KILL_LIMIT
from .worker import SendSignal, WorkerMachine, WorkerState

SCAN_FIRST = 0.01  # seconds to the second look at what is left; doubled up to SCAN_MOST
SCAN_MOST = 0.25


class PodState(Enum):
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"  # workers get TERM, grace, KILL
    SWEEPING = "sweeping"  # workers have ended: what else carries the run's tags?
    DONE = "done"


P = PodState
MOVES: Dict[PodState, Dict[str, PodState]] = {
    P.PREPARED: {"start": P.RUNNING, "stop": P.DONE},
    P.RUNNING: {"stop": P.STOPPING, "all_ended": P.SWEEPING},
    P.STOPPING: {"stop": P.STOPPING, "all_ended": P.SWEEPING},
    P.SWEEPING: {"stop": P.SWEEPING, "clean": P.DONE, "gave_up": P.DONE},
    P.DONE: {"stop": P.DONE},
}


class Sweep(NamedTuple):
    """Find what is left of the pod outside its workers, send it `signal` unless that is "", then call `swept`."""

    signal: str


class Ended(NamedTuple):
    """A worker ended: report it with its streams."""

    rank: int


class Finished(NamedTuple):
    """Nothing is left but `leftovers`, pids that would not die."""

    leftovers: List[int]
    swept: int


Action = Union[SendSignal, Sweep, Ended, Finished]


class PodMachine:
    """Supervises the workers of one host.

    Args:
        ranks: of this pod.
        grace: seconds between TERM and KILL when the pod stops itself because a worker failed.
        stops_on_failure: False leaves that decision to the controller.
    """

    def __init__(self, ranks: Sequence[int], grace: float, stops_on_failure: bool = True) -> None:
        self.state = P.PREPARED
        self.workers = {rank: WorkerMachine(rank) for rank in ranks}
        self._grace = grace
        self._stops_on_failure = stops_on_failure
        self._actions: List[Action] = []
        # kept so that no turn of the driver's loop looks at all workers
        self._alive = set(ranks)  # or not yet started
        self._has_failure = False
        self._workers_at: Optional[float] = None  # when the first of them needs `on_time`
        self._kill_at: Optional[float] = None
        self._killed_at: Optional[float] = None  # when the first KILL of all was sent
        self._give_up_at: Optional[float] = None  # on what the sweep has killed
        self._scan_at: Optional[float] = None
        self._scan_delay = SCAN_FIRST
        self._swept: Set[int] = set()

    def _move(self, fact: str) -> None:
        try:
            self.state = MOVES[self.state][fact]
        except KeyError:
            raise AssertionError("pod: %s in state %s" % (fact, self.state.value))

    def actions(self) -> List[Action]:
        """What the driver has to do, in order."""
        actions, self._actions = self._actions, []
        return actions

    # -- facts -----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self._move("start")

    def spawned(self, rank: int, pid: int, now: float) -> None:
        self.workers[rank].spawned(pid, now)

    def spawn_failed(self, rank: int) -> None:
        self.workers[rank].spawn_failed()
        self._alive.discard(rank)
        self._has_failure = True

    def exited(self, rank: int, code: int) -> None:
        self.workers[rank].exited(code)
        self._alive.discard(rank)
        self._has_failure = self._has_failure or code != 0
        if self.state is not P.DONE:  # else it was given up, which has been reported
            self._actions.append(Ended(rank))

    def settle(self, now: float) -> None:
        """Decide what follows from the exits since the last call.

        Apart from `exited`, so that workers that died together all count before the first death stops the rest:
        a death that our own stop did not cause must not be marked as if it had.
        """
        if self._stops_on_failure and self.state is P.RUNNING and self._has_failure:
            self.stop(now, self._grace)
        self._look_for_end(now)

    def stop(self, now: float, grace: float) -> None:
        """Stop every worker; asking again can shorten the grace but never lengthen it."""
        before = self.state
        self._move("stop")
        if self.state is P.DONE:
            if before is P.PREPARED:
                for worker in self.workers.values():
                    worker.stop(now, grace)
                self._finish([])
            return
        if self.state is P.SWEEPING:
            if self._kill_at is not None:
                self._kill_at = min(self._kill_at, now + grace)
            self._scan_at = now
            return
        for worker in self.workers.values():
            self._signal(worker.stop(now, grace), now)
        self._look_at_workers()
        self._kill_at = now + grace if self._kill_at is None else min(self._kill_at, now + grace)
        self._look_for_end(now)

    def _look_at_workers(self) -> None:
        """Time has passed for them, or they were stopped."""
        self._alive = {rank for rank in self._alive if not self.workers[rank].has_ended}
        times = [self.workers[rank].deadline for rank in self._alive]
        self._workers_at = min((time for time in times if time is not None), default=None)

    def _signal(self, signals: Sequence[SendSignal], now: float) -> None:
        self._actions.extend(signals)
        if self._killed_at is None and any(one.signal == "SIGKILL" for one in signals):
            self._killed_at = now

    def swept(self, left: Sequence[int], now: float, refused: Container[int] = ()) -> None:
        """The outcome of a Sweep.

        Args:
            left: pids that were seen alive.
            refused: those of them that may not be signalled. They have no more time than the workers had.
        """
        if self.state is not P.SWEEPING:
            return
        given_up = {t.pid for t in self.workers.values() if t.state is WorkerState.GIVEN_UP}
        self._swept.update(pid for pid in left if pid not in given_up)
        limit = self._give_up_at
        if limit is not None and self._killed_at is not None and all(p in refused or p in given_up for p in left):
            limit = self._killed_at + KILL_LIMIT
        if not left:
            self._move("clean")
            self._finish([])
        elif limit is not None and now >= limit:
            self._move("gave_up")
            self._finish(list(left))
        else:
            self._scan_at = now + self._scan_delay
            self._scan_delay = min(self._scan_delay * 2, SCAN_MOST)

    def _finish(self, leftovers: List[int]) -> None:
        self._scan_at = self._kill_at = self._give_up_at = None
        self._actions.append(Finished(leftovers, len(self._swept)))

    def _look_for_end(self, now: float) -> None:
        if self.state in (P.RUNNING, P.STOPPING) and not self._alive:
            self._move("all_ended")
            self._workers_at = None
            self._kill_at = now + self._grace if self._kill_at is None else max(now, self._kill_at)
            if self._kill_at <= now:
                self._note_kill(now)
            self._actions.append(Sweep("SIGTERM" if self._kill_at > now else "SIGKILL"))

    def _note_kill(self, now: float) -> None:
        """The sweep kills."""
        self._killed_at = now if self._killed_at is None else self._killed_at
        self._give_up_at = now + KILL_LIMIT if self._give_up_at is None else self._give_up_at

    # -- time ------------------------------------------------------------------------------------------------------
    @property
    def deadline(self) -> Optional[float]:
        """When to call `on_time`."""
        return self._scan_at if self.state is P.SWEEPING else self._workers_at

    def on_time(self, now: float) -> None:
        if self._workers_at is not None and now >= self._workers_at:
            for rank in sorted(self._alive):
                self._signal(self.workers[rank].on_time(now), now)
            self._look_at_workers()
            self._look_for_end(now)
        if self.state is P.SWEEPING and self._scan_at is not None and now >= self._scan_at:
            self._scan_at = None
            if self._kill_at is not None and now >= self._kill_at:
                self._note_kill(now)
                self._actions.append(Sweep("SIGKILL"))
            else:
                self._actions.append(Sweep(""))
