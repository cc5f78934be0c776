"""One rank as its caller sees it: where it runs, whether it lives, how it ended; and Paddle's queues."""

import signal
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class Owner(Protocol):
    """What a rank's view asks its context for."""

    def send_signal(self, rank: int, name: str) -> None: ...

    def wait_for_rank(self, rank: int, timeout: float | None, is_end: bool = False) -> bool: ...

    def has_returned(self, rank: int) -> bool: ...

    def result(self, rank: int) -> Any: ...

    def traceback_of(self, rank: int) -> str | None: ...

    def is_over(self, rank: int) -> bool: ...

    def sentinel_of(self, rank: int) -> int: ...

    def raise_error(self) -> None: ...


@dataclass(slots=True, eq=False)
class SpawnedProcess:
    """A rank's process, on whatever host.

    Attributes:
        pid: on its host; None until it runs.
        exitcode: None while it runs; negative for a signal.
        stopped: it was ended because of others.
    """

    rank: int
    local_rank: int
    host: str
    _owner: "weakref.ref[Owner]" = field(repr=False)  # it holds results, which are to go when nobody needs them
    pid: int | None = None
    exitcode: int | None = None
    stopped: bool = False

    @property
    def name(self) -> str:
        return f"rank {self.rank}"

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable once this rank has ended, for as long as there is the context.

        Raises:
            ValueError: it is gone.
        """
        owner = self._owner()
        if owner is None:
            raise ValueError("the context of this rank is gone")
        return owner.sentinel_of(self.rank)

    def is_alive(self) -> bool:
        owner = self._owner()
        return owner is not None and self.pid is not None and self.exitcode is None and not owner.is_over(self.rank)

    def join(self, timeout: float | None = None) -> None:
        """Wait for this rank's end, whatever it is."""
        owner = self._owner()
        if owner is not None:  # else the run has ended
            owner.wait_for_rank(self.rank, timeout, is_end=True)

    def terminate(self) -> None:
        """SIGTERM to the process and those that it started in its group."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the process and those that it started in its group."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        owner = self._owner()
        if owner is not None:
            owner.send_signal(self.rank, number.name)


class _Queue:
    """What one rank sends, once. `taken` holds the ranks whose word was taken, for all queues of the kind."""

    def __init__(
        self, owner: Owner, rank: int, taken: set[int], has_it: Callable[[int], bool], take: Callable[[int], Any]
    ) -> None:
        self._owner = owner
        self._rank = rank
        self._taken = taken
        self._has_it = has_it
        self._take = take

    def empty(self) -> bool:
        return self._rank in self._taken or not self._has_it(self._rank)

    def get(self) -> Any:
        """Wait for what the rank sends.

        Raises:
            EOFError: nothing will come any more.
            Exception: the run ended in it before anything came.
        """
        if self._rank not in self._taken:
            self._owner.wait_for_rank(self._rank, None)
            if self._has_it(self._rank):
                self._taken.add(self._rank)
                return self._take(self._rank)
            self._owner.raise_error()
        raise EOFError(f"rank {self._rank} sends nothing more")


def return_queue(owner: Owner, rank: int, taken: set[int]) -> _Queue:
    """Paddle's `return_queues[i]`: the rank's result."""
    return _Queue(owner, rank, taken, owner.has_returned, owner.result)


def error_queue(owner: Owner, rank: int, taken: set[int]) -> _Queue:
    """Paddle's `error_queues[i]`: the rank's traceback, if it raised."""
    return _Queue(owner, rank, taken, lambda index: owner.traceback_of(index) is not None, owner.traceback_of)
