"""Counts work instead of time: a machine that is busy changes nothing about it."""

import cProfile
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """How many instructions of Python some work takes. What C loops over (`in` a list, `min`) counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times the work grows when its size doubles: 2 where it is in proportion, 4 where it is quadratic.

    Arguments:
        work: makes work of a size, which is then counted without its making.
    """
    return steps(work(2 * size)) / steps(work(size))


def calls(function: Callable[..., object], *args: object) -> int:
    """How many calls, of Python and C functions, happen in this thread until it returns. Much faster than `steps`."""
    profile = cProfile.Profile()
    profile.runcall(function, *args)
    return sum(entry.callcount for entry in profile.getstats())
