"""When to try again: growing pauses with jitter, until a deadline is too near. Keeps no clock and rolls no dice."""


class Backoff:
    """Pauses of `first` seconds, doubled each time up to `longest`, each shortened by chance to at least its half.

    Jitter keeps hosts that were turned away together from coming back together.
    """

    def __init__(self, deadline: float, *, first: float = 0.1, longest: float = 2.0) -> None:
        self._deadline = deadline
        self._pause = first
        self._longest = longest

    def next_pause(self, now: float, chance: float) -> float | None:
        """Seconds to wait before the next try; None when that would end at the deadline or later.

        Args:
            chance: a random number from 0 to 1.
        """
        pause = self._pause * (0.5 + chance / 2)
        self._pause = min(self._pause * 2, self._longest)
        return pause if now + pause < self._deadline else None
