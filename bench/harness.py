"""Measures two commands in turn and tells the median of their paired ratios. Knows nothing of what they do."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "11"))  # odd, so that a median is a round that happened


@dataclass(frozen=True)
class Cost:
    """What one call took: seconds on the clock, and seconds of CPU of it and its children."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Comparison:
    """Rounds of (ours, theirs), each measured next to the other."""

    name: str
    pairs: tuple[tuple[Cost, Cost], ...]

    @property
    def ratio(self) -> float:
        return statistics.median(ours.wall / theirs.wall for ours, theirs in self.pairs)

    def __str__(self) -> str:
        ours, theirs = ([pair[side] for pair in self.pairs] for side in (0, 1))
        return (
            f"{self.name:<44} {self.ratio:6.2f}x   "
            f"{_median(ours, 'wall'):8.1f} ms against {_median(theirs, 'wall'):8.1f} ms"
            f"   (CPU here {_median(ours, 'cpu'):.1f} ms against {_median(theirs, 'cpu'):.1f} ms)"
        )


def _median(costs: Sequence[Cost], what: str) -> float:
    """In milliseconds."""
    return 1000 * float(statistics.median(getattr(cost, what) for cost in costs))


def measure(call: Callable[[], None]) -> Cost:
    before = os.times()
    began = time.perf_counter()
    call()
    wall = time.perf_counter() - began
    after = os.times()
    return Cost(wall, after.children_user - before.children_user + after.children_system - before.children_system)


def compare(name: str, ours: Callable[[], None], theirs: Callable[[], None], rounds: int = ROUNDS) -> Comparison:
    """One round of each to warm caches, then `rounds` of both, first one first, then the other."""
    ours()
    theirs()
    pairs = []
    for number in range(rounds):
        if number % 2:
            cost_theirs = measure(theirs)
            pairs.append((measure(ours), cost_theirs))
        else:
            cost_ours = measure(ours)
            pairs.append((cost_ours, measure(theirs)))
    return Comparison(name, tuple(pairs))


def command(*argv: str, env: Mapping[str, str] | None = None) -> Callable[[], None]:
    """A call that runs a command and insists on status 0."""

    def call() -> None:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"status {done.returncode}: {' '.join(argv)}\n{done.stderr}")

    return call
