"""What a spawn gives back: its ranks, their results, the way to wait for them and to end them."""

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Container
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from mnspawn.errors import MnspawnError
from mnspawn.report import RankOutcome

from .errors import ProcessException, ResultError
from .ranks import Ranks, SpawnedProcess
from .results import loading, outcomes

log = logging.getLogger("mnspawn.multiprocessing")

R = TypeVar("R")


class SpawnContext(Generic[R]):
    """The ranks of one spawn, in rank order. Made by `mnspawn.spawn` and `mnspawn.multiprocessing.start_processes`.

    R is what the function returns. In a `with` block the context is waited for at the end; an exception that leaves
    the block ends all ranks.

        with mnspawn.spawn(train, (100,), nprocs=4, hosts="a,b", join=False) as context:
            print(context.processes[3].host, context.result(3))

    Attributes:
        processes: a SpawnedProcess for each rank.
        return_queues, error_queues: one for each rank, as Paddle has them. `get()` gives what the rank returned, or the
            text of its traceback, once; EOFError when nothing will come.
        sentinels: {descriptor: rank} for `multiprocessing.connection.wait`, without the ranks that `join` has seen end.
    """

    def __init__(self, ranks: Ranks, dialect: outcomes.Dialect) -> None:
        self._run = ranks.run
        self._ranks = ranks
        self._dialect = dialect
        weakref.finalize(self, ranks.spill.close)  # results that nobody took
        weakref.finalize(self, ranks.sentinels.close)
        self._joined: set[int] = set()
        self._sentinels: dict[int, int] | None = None
        self._returns_taken: set[int] = set()
        self._errors_taken: set[int] = set()
        self._results: dict[int, R] = {}
        self._loading = threading.Lock()
        self._error: BaseException | None = None
        self._is_judged = False
        self._is_terminated = False

    def __repr__(self) -> str:
        return f"<SpawnContext: {len(self.processes)} ranks, {len(self._alive())} running>"

    # -- ranks -----------------------------------------------------------------------------------------------------
    @property
    def processes(self) -> list[SpawnedProcess]:
        return self._ranks.processes

    @property
    def return_queues(self) -> list[Any]:
        returned = self._ranks.returned
        return [_Queue(self, one.rank, self._returns_taken, returned, self.result) for one in self.processes]

    @property
    def error_queues(self) -> list[Any]:
        raised = self._ranks.raised
        return [_Queue(self, one.rank, self._errors_taken, raised, self.traceback_of) for one in self.processes]

    @property
    def sentinels(self) -> dict[int, int]:
        if self._sentinels is None:
            self._sentinels = {
                self.sentinel_of(one.rank): one.rank for one in self.processes if one.rank not in self._joined
            }
        return self._sentinels

    def pids(self) -> list[int]:
        """The process id of each rank, as its host numbers it; 0 for a rank that did not start."""
        return [process.pid or 0 for process in self.processes]

    def _alive(self) -> list[SpawnedProcess]:
        return [process for process in self.processes if process.is_alive()]

    # -- waiting ---------------------------------------------------------------------------------------------------
    def wait_started(self) -> None:
        """Wait until every rank runs or the run is over. Raises what prevented the start."""
        self._ranks.wait(self._is_started_or_over)
        if self._ranks.is_over and not self.processes:
            self._run.wait()
            report = self._run.outcome()
            raise outcomes.of_run(report) or MnspawnError(report.reason)

    def wait_for_caller(self, *, joins: bool) -> None:
        """Wait for the start, and then (`joins`) for the end, in a call that has not given the context away yet.

        Any exception that comes meanwhile, such as a signal handler's, ends all ranks: nobody else could.
        """
        try:
            self.wait_started()
            if joins:
                self._join_all()
        except KeyboardInterrupt:  # has ended them already
            raise
        except BaseException:
            if not self._ranks.is_over:
                self.terminate()
                self._wait_for_end()
            raise

    async def await_started(self) -> None:
        """Wait for the start in the caller's loop; a cancellation ends all ranks first."""
        try:
            await self._ranks.await_until(self._is_started_or_over)
        except asyncio.CancelledError:
            self.terminate()
            await self._ranks.await_until(lambda: self._ranks.is_over)
            raise
        self.wait_started()

    def _is_started_or_over(self) -> bool:
        return self._ranks.has_started or self._ranks.is_over

    async def ajoin(self) -> None:
        """Wait for the end of all ranks; raises as `join`. A cancellation ends all ranks first."""
        with contextlib.suppress(Exception):  # raised by raise_error, in the words of this context
            await self._run.ended()
        self.raise_error()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until another rank ends. When a rank failed, stop all others and raise its error.

        Args:
            timeout: seconds; 0 or less only looks. It does not limit the wait for others after a failure.
            grace_period: seconds that the others get after a failure to end by themselves, and again between SIGTERM
                and SIGKILL.

        Returns:
            True when all ranks have ended, False when some still run: call it again.

        Raises:
            ProcessRaisedException: the function raised in the rank that failed first.
            ProcessExitedException: the process of that rank ended without a result.
            HostLost: a host was lost.
            RunTimedOut: the run's `timeout` was over.
        """
        ranks = self._ranks
        deadline = None if timeout is None else time.monotonic() + timeout
        ranks.wait(lambda: ranks.has_failed or ranks.is_over or len(ranks.ended) > len(self._joined), timeout)
        if ranks.has_failed and not ranks.is_over:
            self._stop_others(grace_period)
        self._joined = set(ranks.ended)
        for rank in self._joined if self._sentinels else ():
            self.sentinels.pop(self.sentinel_of(rank), None)
        if len(self._joined) == len(self.processes):
            ranks.wait(lambda: ranks.is_over, None if deadline is None else deadline - time.monotonic())
        if not ranks.is_over:
            return False
        self.raise_error()
        return True

    def _join_all(self) -> None:
        while not self.join():
            pass

    def _stop_others(self, grace_period: float | None) -> None:
        """After a failure: let the others go, then make them."""
        ranks = self._ranks
        if not ranks.stops_on_failure:
            if grace_period:
                ranks.wait(lambda: ranks.is_over or not self._alive(), grace_period)
            for process in self._alive():
                log.warning("Terminating process %s via signal SIGTERM", process.pid)
            grace = self._run.grace if grace_period is None else min(max(0.0, grace_period), threading.TIMEOUT_MAX)
            self._run.control.stop(grace, "a rank failed")
        ranks.wait(lambda: ranks.is_over)

    def _wait_for_end(self) -> None:
        self._ranks.wait(lambda: self._ranks.is_over)
        self._run.wait()

    # -- results ---------------------------------------------------------------------------------------------------
    def results(self) -> list[R]:
        """Wait for all ranks and return what their functions returned, by rank.

        Raises:
            ResultError: a result can't be read here.
            Exception: as `join`.
        """
        self._join_all()
        return [self.result(process.rank) for process in self.processes]

    def result(self, rank: int) -> R:
        """Wait for one rank and return what its function returned, also while others still run. Raises as `results`."""
        self.wait_for_rank(rank, None)
        if not self.has_returned(rank):
            self.raise_error()
            raise ResultError(f"rank {rank} has no result")
        with self._loading:
            if rank not in self._results:
                self._results[rank] = self._load(rank)
            return self._results[rank]

    def _load(self, rank: int) -> Any:
        if not self._ranks.returned.get(rank):
            return None
        try:
            with self._ranks.spill.open(rank) as content:
                value = loading.load(content)
        except Exception as exc:  # unpickling runs the result's own code
            reason = f"the result of rank {rank} can't be read here: {type(exc).__name__}: {exc}"
            raise ResultError(reason, host=self.processes[rank].host) from exc
        self._ranks.spill.drop(rank)
        return value

    # -- one rank --------------------------------------------------------------------------------------------------
    def wait_for_rank(self, rank: int, timeout: float | None, is_end: bool = False) -> bool:
        """Wait until a rank has returned, or (`is_end`) its process has ended; False if neither came in time."""
        ranks, process = self._ranks, self.processes[rank]
        return ranks.wait(
            lambda: (not is_end and rank in ranks.returned) or process.exitcode is not None or ranks.is_over, timeout
        )

    def has_returned(self, rank: int) -> bool:
        return rank in self._ranks.returned

    def traceback_of(self, rank: int) -> str | None:
        raised = self._ranks.raised.get(rank)
        return None if raised is None else raised.traceback

    def sentinel_of(self, rank: int) -> int:
        return self._ranks.sentinels.of(rank)

    def is_over(self, rank: int) -> bool:
        return self._ranks.is_over

    def send_signal(self, rank: int, name: str) -> None:
        """Send a signal, such as "SIGUSR1", to the process of a rank and those that it started in its group."""
        self._run.control.signal_ranks(name, [rank])

    # -- the end ---------------------------------------------------------------------------------------------------
    def terminate(self) -> None:
        """End all ranks: SIGTERM, after the grace SIGKILL. Does not wait; `join` does."""
        self._is_terminated = True
        self._run.control.stop(self._run.grace, "terminated by the caller")

    def kill(self) -> None:
        """End all ranks by SIGKILL. Does not wait; `join` does."""
        self._is_terminated = True
        self._run.control.stop(0.0, "killed by the caller")

    def close(self) -> None:
        """Forget results that nobody took; the ranks must have ended."""
        self._ranks.spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._join_all()
            return
        self.terminate()
        self._wait_for_end()

    def raise_error(self) -> None:
        """Wait for the end and raise the error that the run ended in, if there is one."""
        self._wait_for_end()
        if not self._is_judged:
            self._error = self._find_error()
            self._is_judged = True
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _find_error(self) -> BaseException | None:
        try:
            report = self._run.outcome()
        except Exception as exc:  # noqa: BLE001 - what the run ended in, whatever it is, is the caller's to see
            return exc
        if report.first_failure is None and (error := outcomes.of_run(report)) is not None:
            return error
        bad = [one for one in report.ranks if one.code != 0 or one.rank not in self._ranks.returned]
        if not bad:
            return None if report.exit_status == 0 or self._is_terminated else MnspawnError(report.reason)
        by_themselves = [one for one in bad if not one.stopped]
        return self._error_of(outcomes.first_of(by_themselves or bad))

    def _error_of(self, outcome: RankOutcome) -> ProcessException:
        ranks, rank = self._ranks, outcome.rank
        raised = ranks.raised.get(rank)
        if raised is not None and not outcome.stopped:
            with ranks.spill.open(rank) as chain:
                return outcomes.raised(self._dialect, outcome, raised, chain if raised.is_pickled else None)
        error = outcomes.exited(self._dialect, outcome, ranks.statuses.get(rank))
        if rank in ranks.damaged:
            error.add_note(ranks.damaged[rank])
        return error


class _Queue:
    """Paddle's queue for what one rank sends, once.

    Args:
        taken: ranks whose item was taken, for all queues of the kind.
        there: ranks whose item is there.
        take: gives the item of a rank.
    """

    def __init__(
        self,
        context: SpawnContext[Any],
        rank: int,
        taken: set[int],
        there: Container[int],
        take: Callable[[int], Any],
    ) -> None:
        self._context = context
        self._rank = rank
        self._taken = taken
        self._there = there
        self._take = take

    def empty(self) -> bool:
        return self._rank in self._taken or self._rank not in self._there

    def get(self) -> Any:
        """Wait for the item.

        Raises:
            EOFError: nothing will come any more.
            Exception: the run ended in it before anything came.
        """
        if self._rank not in self._taken:
            self._context.wait_for_rank(self._rank, None)
            if self._rank in self._there:
                self._taken.add(self._rank)
                return self._take(self._rank)
            self._context.raise_error()
        raise EOFError(f"rank {self._rank} sends nothing more")
