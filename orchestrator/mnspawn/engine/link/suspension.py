"""Notices when this process itself did not run: it was stopped (Ctrl-Z), or its machine slept. Blames nobody for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mnspawn.core.agent_events import LinkLost

LONG = 5.0  # seconds between two looks, one a second apart, that no busy machine needs
SETTLING = 5.0  # seconds after it in which what hosts have said meanwhile is read, before they are judged
OUTCOME = 15.0  # seconds after it in which links that are lost are its consequence: silence counts after ten
NEWS = 60.0  # seconds beyond the orphan grace after it in which hosts that were left alone have said so


def _clock() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Pause:
    """`end` is on the clock of Awake."""

    seconds: float
    end: float

    def __str__(self) -> str:
        return f"mnspawn itself was stopped for {self.seconds:.0f} s (Ctrl-Z, or this machine slept)"


class Awake:
    """Somebody has to `look` every second.

    Args:
        orphan_grace: seconds that hosts wait for us.
    """

    def __init__(self, orphan_grace: float = 0.0, clock: Callable[[], float] = _clock) -> None:
        self._orphan_grace = orphan_grace
        self._clock = clock
        self._looked = clock()
        self._pause: Pause | None = None

    def look(self) -> bool:
        """Whether a pause has just ended."""
        now = self._clock()
        before, self._looked = self._looked, now
        if now - before < LONG:
            return False
        self._pause = Pause(now - before, now)
        return True

    def pause(self, within: float = OUTCOME) -> Pause | None:
        """The last one, if it ended not longer ago than that."""
        self.look()
        return self._pause if self._pause is not None and self._looked - self._pause.end <= within else None

    def explain(self, lost: LinkLost) -> LinkLost:
        """A link's loss, with the pause for its reason where that is one."""
        pause = self.pause()
        return lost if pause is None or lost.kind not in ("eof", "silence") else replace(lost, detail=str(pause))

    def reason_of_stop(self, reason: str, is_orphaned: bool) -> str:
        """Why ranks were stopped on a host, whose agent was left alone for too long or not."""
        pause = self.pause(NEWS + self._orphan_grace) if is_orphaned else None
        if pause is None:
            return reason
        return f"{pause}, longer than hosts wait for it (--orphan-grace {self._orphan_grace:g})"
