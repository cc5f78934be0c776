"""A wire that drops, splits, delays and cuts between two ends that speak by machines. Does no I/O."""

from typing import Protocol

Sent = list[tuple[float, bytes]]


class End(Protocol):
    """What a Channel and a HostSession have in common."""

    def data_to_send(self, now: float) -> bytes: ...

    def receive(self, chunk: bytes, now: float) -> None: ...


class Cable:
    """Two ends and what is on its way between them.

    Args:
        piece: the most bytes that arrive at once.
        delay: seconds on the way; `skew` is what the right end's clock shows more than the left end's.
        budget: bytes that arrive before the cable breaks; None for a good one.
    """

    def __init__(
        self, left: End, right: End, *, piece: int = 1 << 20, delay: float = 0.0, skew: float = 0.0,
        budget: int | None = None,
    ) -> None:  # fmt: skip
        self.ends = (left, right)
        self.skews = (0.0, skew)
        self.piece = piece
        self.delay = delay
        self.budget = budget
        self.is_cut = False
        self.carried = 0
        self._travelling: tuple[bytearray, bytearray] = (bytearray(), bytearray())  # to the left, to the right

    def pass_on(self, now: float) -> float:
        """Carry everything both ways until both are quiet, or the cable breaks; gives the time it is then."""
        while not self.is_cut:
            for index, end in enumerate(self.ends):
                self._travelling[1 - index].extend(end.data_to_send(now + self.skews[index]))
            if not any(self._travelling):
                return now
            now += self.delay
            for index in (0, 1):
                self._arrive(index, now)
        return now

    def _arrive(self, index: int, now: float) -> None:
        end, travelling = self.ends[index], self._travelling[index]
        while travelling and not self.is_cut:
            count = min(self.piece, len(travelling))
            if self.budget is not None:
                count = min(count, self.budget - self.carried)
            if count:
                chunk = bytes(travelling[:count])
                del travelling[:count]
                self.carried += count
                end.receive(chunk, now + self.skews[index])
            if self.budget is not None and self.carried >= self.budget:
                self.cut(now)

    def cut(self, now: float) -> None:
        """What is on its way is lost; both ends see the end of the stream."""
        self.is_cut = True
        for travelling in self._travelling:
            travelling.clear()
        for end, skew in zip(self.ends, self.skews, strict=True):
            end.receive(b"", now + skew)
