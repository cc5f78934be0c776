"""How long hosts have to prove that nothing of a run is left on them, once they are to stop. Pure."""

from mnspawn_agent.protocol.exits import KILL_LIMIT

# The proof follows output that is on its way: a window of 4 MiB takes this long over 1 Mbit/s.
MARGIN = 35.0
# After the grace: KILL for the workers, then for what else is found; either can outlive it.
PROOF_LIMIT = 2 * KILL_LIMIT + MARGIN


class Patience:
    """By host, when its agent counts as one that does not finish. Hosts without a link are waited for elsewhere.

    Args:
        limit: seconds for the proof, after the grace.
    """

    def __init__(self, limit: float = PROOF_LIMIT) -> None:
        self._limit = limit
        self._until: dict[int, tuple[float, float]] = {}

    def expect(self, host: int, now: float, grace: float) -> None:
        """Expect the host to finish: it was told to stop, or its workers have ended. Later calls only shorten."""
        seconds = grace + self._limit
        before, _ = self._until.get(host, (now + seconds, 0.0))
        if now + seconds <= before:
            self._until[host] = (now + seconds, seconds)

    def forget(self, host: int) -> None:
        """Expect nothing more: the host has confirmed its end, or nobody waits for that."""
        self._until.pop(host, None)

    @property
    def deadline(self) -> float | None:
        """Return when to ask for `overdue`."""
        return min((until for until, _ in self._until.values()), default=None)

    def overdue(self, now: float) -> list[tuple[int, float]]:
        """Return (host, seconds that it had) for each host whose time is over; each once."""
        over = [(host, seconds) for host, (until, seconds) in self._until.items() if now >= until]
        for host, _ in over:
            del self._until[host]
        return over
