"""Orders to a run from outside its loop: stop it, send signals to ranks. From any thread, at any time."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Protocol


class Driven(Protocol):
    """What a run does when ordered; called in its loop."""

    def stop(self, grace: float, reason: str) -> None: ...

    def signal_ranks(self, name: str, ranks: Sequence[int] | None) -> None: ...


class Control:
    """Orders to one run. Those given before it can take them wait; those given after its end are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[Callable[[Driven], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driven: Driven | None = None
        self._is_over = False

    def stop(self, grace: float, reason: str) -> None:
        """End every rank: TERM, after `grace` seconds KILL; 0 kills. Before the start: give the run up."""
        self._order(lambda driven: driven.stop(grace, reason))

    def signal_ranks(self, name: str, ranks: Sequence[int] | None = None) -> None:
        """Send a signal to the process groups of ranks that run; None for all."""
        chosen = None if ranks is None else tuple(ranks)
        self._order(lambda driven: driven.signal_ranks(name, chosen))

    def _order(self, order: Callable[[Driven], None]) -> None:
        with self._lock:
            if self._is_over:
                return
            if self._loop is None or self._driven is None:
                self._early.append(order)
            else:
                self._loop.call_soon_threadsafe(order, self._driven)

    # -- for the run itself ----------------------------------------------------------------------------------------
    def bind(self, driven: Driven) -> None:
        """Take orders from now on; called in the run's loop."""
        with self._lock:
            self._loop, self._driven = asyncio.get_running_loop(), driven
            early, self._early = self._early, []
        for order in early:
            order(driven)

    def release(self) -> None:
        """Take no more orders."""
        with self._lock:
            self._is_over, self._loop, self._driven = True, None, None
