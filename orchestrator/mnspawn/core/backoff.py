"""Growing pauses between tries, with jitter, until a deadline is too near. Pure: no clock, no randomness."""

import math


class Backoff:
    """Pauses that double each time up to `longest`, each shortened by chance to no less than half.

    Jitter keeps hosts that were turned away together from coming back together.

    Args:
        deadline: by the clock of `now`.
        first, longest: seconds.
    """

    def __init__(self, deadline: float = math.inf, *, first: float = 0.1, longest: float = 2.0) -> None:
        self._deadline = deadline
        self._first = first
        self._longest = longest
        self._pause = first

    def next_pause(self, now: float, chance: float) -> float | None:
        """Return the seconds to wait before the next try; None when that would end at the deadline or later.

        Args:
            chance: a random number from 0 to 1.
        """
        pause = self._pause * (0.5 + chance / 2)
        self._pause = min(self._pause * 2, self._longest)
        return pause if now + pause < self._deadline else None

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._pause = self._first
