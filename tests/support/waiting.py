"""Waiting for a condition with a deadline, which is what tests do instead of sleeping."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds. Bounds what hangs and judges nothing: a busy machine takes ten times as long as a quiet one.
PATIENCE = 120.0
PAUSE = 0.01  # short against what is waited for (processes, sockets), long against asking


def _failure(condition: Callable[[], object], timeout: float, what: str | None) -> AssertionError:
    return AssertionError(f"not within {timeout} s: {what or getattr(condition, '__name__', condition)}")


def wait_until(condition: Callable[[], T], timeout: float = PATIENCE, what: str | None = None) -> T:
    """Ask until the answer is true; return it.

    Raises:
        AssertionError: it was not within `timeout` seconds; `what` says what was waited for.
    """
    deadline = time.monotonic() + timeout
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise _failure(condition, timeout, what)
        time.sleep(PAUSE)


async def wait_until_async(condition: Callable[[], T], timeout: float = PATIENCE, what: str | None = None) -> T:
    """`wait_until` for coroutines: the loop runs on between two questions."""
    deadline = time.monotonic() + timeout
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise _failure(condition, timeout, what)
        await asyncio.sleep(PAUSE)
