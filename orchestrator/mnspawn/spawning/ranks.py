"""The ranks of one spawn: their state and what they have sent back. Written in the run's thread, read from any."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mnspawn.api.background import Background
from mnspawn.events import Event, OutputLost, RunStarting, Stream, WorkerExited, WorkerOutput, WorkerStarted

from .results import records
from .results.spill import Spill
from .sentinels import Sentinels


@dataclass(slots=True, eq=False)
class SpawnedProcess:
    """The process of a rank, here or on another host.

    Attributes:
        pid: on its host; None until it runs.
        exitcode: None while it runs; negative for a signal.
        stopped: it was ended because of others.
    """

    rank: int
    local_rank: int
    host: str
    _ranks: "Ranks" = field(repr=False)
    pid: int | None = None
    exitcode: int | None = None
    stopped: bool = False

    @property
    def name(self) -> str:
        return f"rank {self.rank}"

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when this rank ends. It lives as long as the context.

        Raises:
            ValueError: the context is gone.
        """
        return self._ranks.sentinels.of(self.rank)

    def is_alive(self) -> bool:
        return self.pid is not None and self.exitcode is None and not self._ranks.is_over

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of this rank; it raises nothing when the rank failed."""
        self._ranks.wait(lambda: self.exitcode is not None or self._ranks.is_over, timeout)

    def terminate(self) -> None:
        """Send SIGTERM to the process and those that it started in its group."""
        self._ranks.run.control.signal_ranks(signal.SIGTERM.name, [self.rank])

    def kill(self) -> None:
        """Send SIGKILL to the process and those that it started in its group."""
        self._ranks.run.control.signal_ranks(signal.SIGKILL.name, [self.rank])


class Ranks:
    """Listens to the run.

    Args:
        stops_on_failure: the first failure stops all other ranks.

    Attributes:
        run: to be set before the run starts.
    """

    run: Background
    backlog = 0  # what ranks send is stored at once

    def __init__(self, *, stops_on_failure: bool) -> None:
        self.stops_on_failure = stops_on_failure
        self.processes: list[SpawnedProcess] = []
        self.ended: set[int] = set()
        self.spill = Spill()
        self.sentinels = Sentinels()
        self.raised: dict[int, records.Raised] = {}
        self.statuses: dict[int, int] = {}  # of SystemExit
        self.damaged: dict[int, str] = {}  # why a result can't be used
        self.returned: dict[int, bool] = {}  # whether there is a result
        self.has_failed = False
        self.is_over = False
        self._changed = threading.Condition()
        self._starting: set[int] = set()
        self._subscribers: list[Callable[[], None]] = []
        self._readers: dict[int, records.Reader] = {}
        self._interrupts = 0

    @property
    def has_started(self) -> bool:
        return bool(self.processes) and not self._starting

    # -- waiting ---------------------------------------------------------------------------------------------------
    def wait(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for a condition; False when it did not come in time. Ctrl-C ends all ranks before it is raised.

        Args:
            timeout: seconds; 0 or less only looks.
        """
        if timeout is not None:
            timeout = min(max(0.0, timeout), threading.TIMEOUT_MAX / 2)
        try:
            with self._changed:
                return self._changed.wait_for(condition, timeout)
        except KeyboardInterrupt:
            self._end_interrupted()
            raise

    def _end_interrupted(self) -> None:
        while not self.is_over:
            self._interrupts += 1
            if self._interrupts > 2:
                return
            self.run.control.stop(self.run.grace if self._interrupts == 1 else 0.0, "KeyboardInterrupt")
            with contextlib.suppress(KeyboardInterrupt), self._changed:
                self._changed.wait_for(lambda: self.is_over)
        self.run.wait()

    async def await_until(self, condition: Callable[[], bool]) -> None:
        """Wait in a loop of the caller's, which goes on meanwhile."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(news.set)

        with self._changed:
            self._subscribers.append(wake)
        try:
            while not condition():
                await news.wait()
                news.clear()
        finally:
            with self._changed:
                self._subscribers.remove(wake)

    # -- the listener ----------------------------------------------------------------------------------------------
    def bind(self, wake: Callable[[], None]) -> None:
        """Nothing is held back here, so nobody has to be woken."""

    async def aclose(self) -> None:
        """The run is over only when its thread is: see `end`."""

    def end(self) -> None:
        """The run has ended and its thread is about to."""
        self.is_over = True
        for process in self.processes:
            self.sentinels.end(process.rank)
        self._notify()

    def on_event(self, event: Event) -> None:
        match event:
            case WorkerOutput():
                if event.stream is Stream.RESULT:
                    self._take(event.rank, event.chunk)
                return
            case RunStarting(plan=plan):
                self._lay_out(plan)
            case WorkerStarted(rank=rank, pid=pid):
                self.processes[rank].pid = pid
                self._starting.discard(rank)
            case WorkerExited():
                self._take_exit(event)
            case OutputLost(rank=rank, stream=Stream.RESULT):
                reader = self._readers.setdefault(rank, records.Reader())
                self._record(rank, reader.break_off("bytes of its result were lost"))
            case _:
                return
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
            subscribers = list(self._subscribers)
        for wake in subscribers:
            wake()

    def _lay_out(self, plan: dict[str, object]) -> None:
        made = [
            SpawnedProcess(worker["rank"], worker["local_rank"], pod["host"], self)
            for pod in plan["pods"]  # type: ignore[attr-defined]
            for worker in pod["trainers"]
        ]
        self._starting = {process.rank for process in made}
        self.processes[:] = sorted(made, key=lambda process: process.rank)

    def _take_exit(self, event: WorkerExited) -> None:
        process = self.processes[event.rank]
        process.pid, process.stopped = event.pid, event.stopped
        process.exitcode = event.code
        self._starting.discard(event.rank)
        self.ended.add(event.rank)
        self.sentinels.end(event.rank)
        if (event.code != 0 or event.rank not in self.returned) and not event.stopped:
            self.has_failed = True
            if self.stops_on_failure:
                self.run.control.stop(self.run.grace, f"rank {event.rank} on {process.host} failed")

    def _take(self, rank: int, chunk: bytes) -> None:
        reader = self._readers.setdefault(rank, records.Reader())
        for record in reader.feed(chunk):
            if isinstance(record, records.Piece):
                try:
                    self.spill.append(rank, record.content)
                except (OSError, ValueError) as exc:
                    self._record(rank, reader.break_off(f"its result can't be kept on this machine: {exc}"))
            else:
                self._record(rank, record)

    def _record(self, rank: int, record: records.Record) -> None:
        match record:
            case records.Returned(has_result):
                self.returned[rank] = has_result
            case records.Raised():
                self.raised[rank] = record
            case records.Exited(status):
                self.statuses[rank] = status
            case records.Discarded():
                self.spill.drop(rank)
            case records.Damaged(reason):
                self.damaged[rank] = reason
                self.returned.pop(rank, None)
                self.spill.drop(rank)
            case _:
                pass
        self._notify()
