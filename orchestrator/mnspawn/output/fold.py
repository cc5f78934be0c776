"""Folds equal lines of several ranks into one. Pure: `now` is passed in, `deadline` says when to call again.

Only lines that are equal byte for byte are folded: differing numbers are never hidden, and what one rank prints twice
is shown twice. Each rank's lines keep their order. A line waits WINDOW seconds at most for other ranks to print it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

WINDOW = 0.2  # seconds: ranks in step are rarely further apart, and people don't notice the delay
HELD_LIMIT = 1 << 20  # bytes: beyond it the oldest lines don't wait, since lines come faster than anybody reads
LINE_WEIGHT = 256  # bytes that a held line costs besides its text


@dataclass(slots=True)
class Folded:
    """A line and the ranks that have printed it.

    Attributes:
        text: with its end; without one it is a piece of a very long line or a tail, which is never folded.
        time: when the first of the ranks printed it.
        number: counts the folder's lines.
        deadline: when it has waited long enough.
    """

    stream: Hashable
    text: bytes
    time: float
    ranks: set[int] = field(default_factory=set)
    number: int = 0
    deadline: float = 0.0


class LineFolder:
    """Takes lines and returns them folded.

    Arguments:
        window: seconds that a line waits for other ranks.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._rank_count: int | None = None
        self._waiting: deque[Folded] = deque()  # in the order in which they are shown
        self._open: dict[tuple[Hashable, bytes], list[Folded]] = {}
        self._latest: dict[tuple[int, Hashable], int] = {}  # the number of a rank's last line
        self._number = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes in memory for lines that wait."""
        return self._held

    @property
    def deadline(self) -> float | None:
        """When the first line has waited long enough; None if none waits."""
        return self._waiting[0].deadline if self._waiting else None

    def expect(self, rank_count: int) -> None:
        """Set how many ranks there are; until it is known, lines wait for the whole window."""
        self._rank_count = rank_count

    def feed(self, rank: int, stream: Hashable, lines: Iterable[bytes], time: float, now: float) -> None:
        """Take lines of one rank, each with its end. `time` is a label, `now` is on the clock of `deadline`."""
        source = (rank, stream)
        latest = self._latest.get(source, 0)
        for line in lines:
            is_whole = line.endswith(b"\n")
            found = None
            if is_whole:
                # only after the rank's own last line, so that its lines keep their order and none is counted twice
                equal = self._open.get((stream, line), [])
                place = bisect_right(equal, latest, key=attrgetter("number"))
                found = equal[place] if place < len(equal) else None
            if found is None:
                self._number += 1
                found = Folded(stream, line, time, set(), self._number, now + self._window)
                self._waiting.append(found)
                self._held += len(line) + LINE_WEIGHT
                if is_whole:
                    self._open.setdefault((stream, line), []).append(found)
            found.ranks.add(rank)
            latest = found.number
        self._latest[source] = latest

    def take(self, now: float) -> list[Folded]:
        """Return the lines that need not wait any longer, in order."""
        ready: list[Folded] = []
        while self._waiting:
            first = self._waiting[0]
            is_complete = self._rank_count is not None and len(first.ranks) >= self._rank_count
            if not (is_complete or now >= first.deadline or self._held > HELD_LIMIT):
                break
            ready.append(self._pop())
        return ready

    def flush(self) -> list[Folded]:
        """Return all lines: something else is shown after them, or nothing more will come."""
        return [self._pop() for _ in range(len(self._waiting))]

    def _pop(self) -> Folded:
        first = self._waiting.popleft()
        self._held -= len(first.text) + LINE_WEIGHT
        key = (first.stream, first.text)
        others = self._open.get(key)
        if others:
            others.pop(0)  # the oldest of equal lines leaves first
            if not others:
                del self._open[key]
        return first


def rank_set(ranks: Collection[int]) -> str:
    """Return ranks as `0-3,7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
