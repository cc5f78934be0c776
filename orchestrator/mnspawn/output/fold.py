"""Equal lines of many ranks become one. Pure: `now` is passed in, `deadline` says when to come back.

Only lines that are equal byte for byte are one: numbers that differ are never hidden, and what one rank says twice is
shown twice. Every rank's own lines keep their order. A line waits until all ranks have said it, WINDOW seconds at most.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

WINDOW = 0.2  # seconds: ranks that do the same are rarely further apart, and for people it is no delay
HELD_LIMIT = 1 << 20  # bytes: beyond, the oldest lines don't wait (they come faster than anybody reads)
LINE_WEIGHT = 256  # bytes that a held line costs beside its text


@dataclass(slots=True)
class Folded:
    """A line and the ranks that have said it.

    Attributes:
        stream: what it was said on.
        text: with its end; without one it is a piece of a very long line or a tail, and never shared.
        time: when the first of the ranks said it.
    """

    stream: Hashable
    text: bytes
    time: float
    ranks: set[int] = field(default_factory=set)
    number: int = 0  # of the folder's lines
    deadline: float = 0.0  # when it has waited long enough


class Folder:
    """Takes lines, gives them back folded.

    Arguments:
        window: seconds that a line waits for other ranks.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._rank_count: int | None = None
        self._waiting: deque[Folded] = deque()  # in the order in which they are to be shown
        self._open: dict[tuple[Hashable, bytes], list[Folded]] = {}
        self._latest: dict[tuple[int, Hashable], int] = {}  # the number of the last line that a rank has said
        self._number = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes in memory for lines that wait."""
        return self._held

    @property
    def deadline(self) -> float | None:
        """When the first line has waited long enough; None when none waits."""
        return self._waiting[0].deadline if self._waiting else None

    def expect(self, rank_count: int) -> None:
        """How many ranks there are to wait for; while nobody says it, lines wait for the window's end."""
        self._rank_count = rank_count

    def feed(self, rank: int, stream: Hashable, lines: Iterable[bytes], time: float, now: float) -> None:
        """Take lines of one rank, each with its end. `time` is a label, `now` the clock that `deadline` is on."""
        source = (rank, stream)
        latest = self._latest.get(source, 0)
        for line in lines:
            is_whole = line.endswith(b"\n")
            found = None
            if is_whole:
                # Only behind what the rank said before; so it can't be among those that have said it either.
                equal = self._open.get((stream, line), [])
                place = bisect_right(equal, latest, key=_number_of)
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
        """The lines that need not wait any more, in order."""
        ready: list[Folded] = []
        while self._waiting:
            first = self._waiting[0]
            is_complete = self._rank_count is not None and len(first.ranks) >= self._rank_count
            if not (is_complete or now >= first.deadline or self._held > HELD_LIMIT):
                break
            ready.append(self._pop())
        return ready

    def flush(self) -> list[Folded]:
        """All lines: something of ours is to be said behind them, or nothing more will come."""
        return [self._pop() for _ in range(len(self._waiting))]

    def _pop(self) -> Folded:
        first = self._waiting.popleft()
        self._held -= len(first.text) + LINE_WEIGHT
        key = (first.stream, first.text)
        others = self._open.get(key)
        if others:
            others.pop(0)  # of equal lines the oldest leaves first
            if not others:
                del self._open[key]
        return first


def _number_of(line: Folded) -> int:
    return line.number


def rank_set(ranks: Collection[int]) -> str:
    """0-3,7."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
