"""Listens to the run of a function: its ranks, and what they send back. Told in the run's thread, asked from any."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable

from mnspawn.events import Event, OutputLost, RunStarting, Stream, WorkerExited, WorkerOutput, WorkerStarted

from .process import Owner, SpawnedProcess
from .results import records
from .results.spill import Spill
from .sentinels import Sentinels


class Watcher:
    """A Listener. `changed` is notified whenever something here changes.

    Args:
        on_failure: called when a rank ended badly by itself.
    """

    backlog = 0  # what ranks send is written down at once

    def __init__(self, on_failure: Callable[[SpawnedProcess], None]) -> None:
        self.changed = threading.Condition()
        self.processes: list[SpawnedProcess] = []
        self.ended: set[int] = set()  # ranks
        self.spill = Spill()
        self.sentinels = Sentinels()
        self.raised: dict[int, records.Raised] = {}
        self.statuses: dict[int, int] = {}
        self.damaged: dict[int, str] = {}
        self.has_failed = False
        self.is_over = False
        self.owner: weakref.ref[Owner] | None = None
        self._on_failure = on_failure
        self._starting: set[int] = set()  # ranks
        self._subscribers: list[Callable[[], None]] = []
        self._readers: dict[int, records.Reader] = {}
        self._returned: dict[int, bool] = {}

    @property
    def has_started(self) -> bool:
        return bool(self.processes) and not self._starting

    def has_returned(self, rank: int) -> bool:
        return rank in self._returned

    def has_result(self, rank: int) -> bool:
        return self._returned.get(rank, False)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait in a loop of the caller's, which runs on meanwhile."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(news.set)

        with self.changed:
            self._subscribers.append(tell)
        try:
            while not condition():
                await news.wait()
                news.clear()
        finally:
            with self.changed:
                self._subscribers.remove(tell)

    # -- the listener ----------------------------------------------------------------------------------------------
    def bind(self, wake: Callable[[], None]) -> None:
        """Nothing is held back here, so nobody has to be woken."""

    async def aclose(self) -> None:
        """The run's thread says when it is over: see `end`."""

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
                self._note(rank, reader.break_off("bytes of its result were lost"))
            case _:
                return
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
            subscribers = list(self._subscribers)
        for tell in subscribers:
            tell()

    def _lay_out(self, plan: dict[str, object]) -> None:
        assert self.owner is not None
        made = [
            SpawnedProcess(worker["rank"], worker["local_rank"], pod["host"], self.owner)
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
        if (event.code != 0 or not self.has_returned(event.rank)) and not event.stopped:
            self.has_failed = True
            self._on_failure(process)

    def _take(self, rank: int, chunk: bytes) -> None:
        reader = self._readers.setdefault(rank, records.Reader())
        for record in reader.feed(chunk):
            if isinstance(record, records.Piece):
                try:
                    self.spill.append(rank, record.content)
                except (OSError, ValueError) as exc:
                    self._note(rank, reader.break_off(f"its result can't be kept on this machine: {exc}"))
            else:
                self._note(rank, record)

    def _note(self, rank: int, record: records.Record) -> None:
        match record:
            case records.Returned(has_result):
                self._returned[rank] = has_result
            case records.Raised():
                self.raised[rank] = record
            case records.Exited(status):
                self.statuses[rank] = status
            case records.Discarded():
                self.spill.drop(rank)
            case records.Damaged(reason):
                self.damaged[rank] = reason
                self._returned.pop(rank, None)
                self.spill.drop(rank)
            case _:
                pass
        self._notify()
