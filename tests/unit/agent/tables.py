"""Walks a machine's table of moves: which states can be reached, which are the last. Knows no machine."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)


def reachable(moves: Mapping[State, Mapping[str, State]], start: State) -> set[State]:
    """Every state that some row of facts leads to."""
    found, queue = {start}, [start]
    while queue:
        for state in moves[queue.pop()].values():
            if state not in found:
                found.add(state)
                queue.append(state)
    return found


def terminal(moves: Mapping[State, Mapping[str, State]]) -> set[State]:
    """The states that no fact leads out of."""
    return {state for state, row in moves.items() if set(row.values()) <= {state}}
