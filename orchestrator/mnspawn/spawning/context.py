"""What a spawn gives back: its ranks, their results, the way to wait for them and to end them."""

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from mnspawn.api.background import Background
from mnspawn.errors import MnspawnError
from mnspawn.report import RankOutcome, RunReport

from .errors import ProcessException, ResultError
from .process import SpawnedProcess, error_queue, return_queue
from .results import loading, outcomes
from .watcher import Watcher

log = logging.getLogger("mnspawn.multiprocessing")

R = TypeVar("R")


def _deadline(timeout: float | None) -> float | None:
    """When a wait is over; one that begins in the past only looks, one without an end never is."""
    return None if timeout is None else time.monotonic() + min(max(0.0, timeout), threading.TIMEOUT_MAX / 2)


class SpawnContext(Generic[R]):
    """The ranks of one spawn, in rank order. Made by `mnspawn.spawn` and `mnspawn.multiprocessing.start_processes`.

    R is what the function returns.

    Attributes:
        processes: a SpawnedProcess per rank.
        return_queues, error_queues: per rank, as Paddle has them.
        sentinels: rank by descriptor, less the ranks that `join` has seen end, as both have them.
    """

    def __init__(self, run: Background, watcher: Watcher, wording: outcomes.Wording, *, stops_on_failure: bool) -> None:
        self._run = run
        self._watcher = watcher
        self._changed = watcher.changed
        self._wording = wording
        self._stops_on_failure = stops_on_failure
        self._grace = run.grace
        weakref.finalize(self, watcher.spill.close)  # results that nobody took
        weakref.finalize(self, watcher.sentinels.close)
        self._joined: set[int] = set()
        self._sentinels: dict[int, int] | None = None
        self._returns_taken: set[int] = set()
        self._errors_taken: set[int] = set()
        self._results: dict[int, R] = {}
        self._loading = threading.Lock()
        self._error: BaseException | None = None
        self._is_judged = False
        self._is_terminated = False
        self._interrupts = 0

    def __repr__(self) -> str:
        running = sum(process.is_alive() for process in self.processes)
        return f"<SpawnContext: {len(self.processes)} ranks, {running} running>"

    # -- ranks -----------------------------------------------------------------------------------------------------
    @property
    def processes(self) -> list[SpawnedProcess]:
        return self._watcher.processes

    @property
    def return_queues(self) -> list[Any]:
        return [return_queue(self, process.rank, self._returns_taken) for process in self.processes]

    @property
    def error_queues(self) -> list[Any]:
        return [error_queue(self, process.rank, self._errors_taken) for process in self.processes]

    @property
    def sentinels(self) -> dict[int, int]:
        if self._sentinels is None:
            waited_for = [process.rank for process in self.processes if process.rank not in self._joined]
            self._sentinels = {self.sentinel_of(rank): rank for rank in waited_for}
        return self._sentinels

    def sentinel_of(self, rank: int) -> int:
        return self._watcher.sentinels.of(rank)

    def pids(self) -> list[int]:
        """Of all ranks, each as its host numbers it."""
        return [process.pid or 0 for process in self.processes]

    # -- waiting ---------------------------------------------------------------------------------------------------
    def wait_started(self) -> None:
        """Wait until every rank runs, or it is clear that not all will; raises what hindered the start."""
        self._wait(lambda: self._watcher.has_started or self._watcher.is_over, None)
        if self._watcher.is_over and not self.processes:
            self._run.wait()
            report = self._run.outcome()
            raise outcomes.of_run(report) or MnspawnError(report.reason)

    def wait_for_caller(self, *, joins: bool) -> None:
        """Wait for the start, and then (`joins`) for the end, in a call that has not given the context away yet.

        So whatever exception comes meanwhile, such as a signal handler's, ends all ranks: nobody else could.
        """
        try:
            self.wait_started()
            while joins and not self.join():
                pass
        except KeyboardInterrupt:  # has ended them already
            raise
        except BaseException:
            if not self._watcher.is_over:
                self.terminate()
                self._wait(lambda: self._watcher.is_over, None)
                self._run.wait()
            raise

    async def await_started(self) -> None:
        """`wait_started` for asyncio; a cancellation ends all ranks first."""
        try:
            await self._watcher.wait_until(lambda: self._watcher.has_started or self._watcher.is_over)
        except asyncio.CancelledError:
            self.terminate()
            await self._watcher.wait_until(lambda: self._watcher.is_over)
            raise
        self.wait_started()

    async def ajoin(self) -> None:
        """Wait for the end of all ranks; raises as `join`. A cancellation ends all ranks first."""
        with contextlib.suppress(Exception):  # told by raise_error, in the words of this context
            await self._run.ended()
        self.raise_error()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a rank ends that had not ended before; True when all have.

        When a rank fails all others are stopped (SIGTERM, after a grace SIGKILL), then its error is raised.

        Args:
            timeout: seconds; less than 0 or 0 only looks.
            grace_period: seconds that the others get to end by themselves after a failure, and again after SIGTERM.

        Raises:
            ProcessRaisedException: the function raised in the rank that failed first.
            ProcessExitedException: that rank's process ended without a result.
            HostLost: a host was lost.
        """
        deadline = _deadline(timeout)
        grace_period = None if grace_period is None else min(max(0.0, grace_period), threading.TIMEOUT_MAX)
        self._wait(lambda: self._watcher.has_failed or self._watcher.is_over or self._has_new_ends(), deadline)
        if self._watcher.has_failed and not self._watcher.is_over:
            self._stop_others(grace_period)
            deadline = None
        self._joined = set(self._watcher.ended)
        for rank in self._joined if self._sentinels else ():
            self.sentinels.pop(self.sentinel_of(rank), None)
        if len(self._joined) == len(self.processes):
            self._wait(lambda: self._watcher.is_over, deadline)
        if not self._watcher.is_over:
            return False
        self._run.wait()
        self.raise_error()
        return True

    def _has_new_ends(self) -> bool:
        return len(self._watcher.ended) > len(self._joined)

    def _stop_others(self, grace_period: float | None) -> None:
        """A rank failed: let the others go, then make them."""
        if not self._stops_on_failure:
            if grace_period:
                patience = time.monotonic() + grace_period
                self._wait(lambda: self._watcher.is_over or not self._alive(), patience)
            for process in self._alive():
                log.warning("Terminating process %s via signal SIGTERM", process.pid)
            self._run.control.stop(self._grace if grace_period is None else grace_period, "a rank failed")
        self._wait(lambda: self._watcher.is_over, None)

    def _alive(self) -> list[SpawnedProcess]:
        return [process for process in self.processes if process.is_alive()]

    def _wait(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Wait for a condition; Ctrl-C meanwhile ends all ranks before it goes on its way."""
        try:
            with self._changed:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                return self._changed.wait_for(condition, remaining)
        except KeyboardInterrupt:
            self._end_interrupted()
            raise

    def _end_interrupted(self) -> None:
        while not self._watcher.is_over:
            self._interrupts += 1
            if self._interrupts > 2:
                return
            self._run.control.stop(self._grace if self._interrupts == 1 else 0.0, "KeyboardInterrupt")
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._watcher.is_over)
            except KeyboardInterrupt:
                continue
        self._run.wait()

    # -- results ---------------------------------------------------------------------------------------------------
    def results(self) -> list[R]:
        """What every rank's function returned, by rank; waits for all.

        Raises:
            Exception: as `join`; ResultError where a result can't be read here.
        """
        while not self.join():
            pass
        return [self.result(process.rank) for process in self.processes]

    def result(self, rank: int) -> R:
        """What one rank returned, also while others still run; waits for it."""
        if not self.has_returned(rank):
            self.wait_for_rank(rank, None)
            if not self.has_returned(rank):
                self.raise_error()
                raise ResultError(f"rank {rank} has no result")
        with self._loading:
            if rank not in self._results:
                self._results[rank] = self._load(rank)
            return self._results[rank]

    def _load(self, rank: int) -> Any:
        if not self._watcher.has_result(rank):
            return None
        try:
            with self._watcher.spill.open(rank) as content:
                value = loading.load(content)
        except Exception as exc:  # unpickling runs the result's own code
            process = self.processes[rank]
            raise ResultError(
                f"the result of rank {rank} can't be read here: {type(exc).__name__}: {exc}", host=process.host
            ) from exc
        self._watcher.spill.drop(rank)
        return value

    def has_returned(self, rank: int) -> bool:
        return self._watcher.has_returned(rank)

    def traceback_of(self, rank: int) -> str | None:
        said = self._watcher.raised.get(rank)
        return None if said is None else said.traceback

    def wait_for_rank(self, rank: int, timeout: float | None, is_end: bool = False) -> bool:
        """Wait until a rank has returned, or (`is_end`) its process has ended; False when neither came in time."""
        deadline = _deadline(timeout)

        def has_ended() -> bool:
            has_returned = not is_end and self.has_returned(rank)
            return has_returned or self.processes[rank].exitcode is not None or self._watcher.is_over

        return self._wait(has_ended, deadline)

    def is_over(self, rank: int) -> bool:
        return self._watcher.is_over

    # -- the end ---------------------------------------------------------------------------------------------------
    def terminate(self) -> None:
        """End all ranks: SIGTERM, after the grace SIGKILL. Does not wait: `join` does."""
        self._is_terminated = True
        self._run.control.stop(self._grace, "terminated by the caller")

    def kill(self) -> None:
        """End all ranks at once."""
        self._is_terminated = True
        self._run.control.stop(0.0, "killed by the caller")

    def send_signal(self, rank: int, name: str) -> None:
        self._run.control.signal_ranks(name, [rank])

    def close(self) -> None:
        """Forget results that nobody took; the ranks must have ended."""
        self._watcher.spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all; when the block is left by an exception, end all instead."""
        if kind is None:
            while not self.join():
                pass
            return
        self.terminate()
        self._wait(lambda: self._watcher.is_over, None)
        self._run.wait()

    # -- judgement -------------------------------------------------------------------------------------------------
    def raise_error(self) -> None:
        """Raise what the run ended in, if it ended badly; waits for its end."""
        self._wait(lambda: self._watcher.is_over, None)
        self._run.wait()
        if not self._is_judged:
            self._error = self._judge()
            self._is_judged = True
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _judge(self) -> BaseException | None:
        try:
            report = self._run.outcome()
        except Exception as exc:  # noqa: BLE001 - what the run ended in, whatever it is, is the caller's to see
            return exc
        bad = [rank for rank in report.ranks if not self._is_good(rank)]
        ours = outcomes.of_run(report)
        by_themselves = [rank for rank in bad if not rank.stopped]
        if ours is not None and report.first_failure is None:
            return ours
        if not bad:
            return None if report.exit_status == 0 or self._is_terminated else MnspawnError(report.reason)
        return self._first(by_themselves or bad, report)

    def _is_good(self, rank: RankOutcome) -> bool:
        return rank.code == 0 and self._watcher.has_returned(rank.rank)

    def _first(self, ranks: Sequence[RankOutcome], report: RunReport) -> ProcessException | MnspawnError:
        failures = [self._error_of(rank) for rank in ranks]
        return outcomes.first_of(failures, {rank.rank: rank.ended_at for rank in report.ranks})

    def _error_of(self, rank: RankOutcome) -> ProcessException:
        watcher = self._watcher
        said = watcher.raised.get(rank.rank)
        if said is not None and not rank.stopped:
            with watcher.spill.open(rank.rank) as chain:
                return outcomes.raised(self._wording, rank, said, chain if said.is_pickled else None)
        error = outcomes.exited(self._wording, rank, watcher.statuses.get(rank.rank))
        if rank.rank in watcher.damaged:
            error.add_note(watcher.damaged[rank.rank])
        return error
