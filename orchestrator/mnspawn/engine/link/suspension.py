"""Keeps time for a run's machine; notices when this process was stopped (Ctrl-Z) or its machine slept."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mnspawn.core.agent_events import LinkLost
from mnspawn.core.run import RunMachine

LOOK = 1.0  # seconds between two looks at a deadline that facts move; nobody needs it more exactly
LONG = 5.0  # seconds between two looks, one a second apart, that no busy machine needs
SETTLING = 5.0  # seconds afterwards in which we read what hosts have said meanwhile, before we judge them
OUTCOME = 15.0  # seconds afterwards in which links that are lost are its consequence: silence counts after ten
NEWS = 60.0  # seconds beyond the orphan grace, afterwards, in which hosts that were left alone have said so


def _clock() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Suspension:
    """`end` is on the detector's clock."""

    seconds: float
    end: float

    def __str__(self) -> str:
        return f"mnspawn itself was stopped for {self.seconds:.0f} s (Ctrl-Z, or this machine slept)"


class SuspensionDetector:
    """Call `look` every second.

    Args:
        orphan_grace: seconds that hosts wait for us.
    """

    def __init__(self, orphan_grace: float = 0.0, clock: Callable[[], float] = _clock) -> None:
        self._orphan_grace = orphan_grace
        self._clock = clock
        self._looked = clock()
        self._last: Suspension | None = None

    def look(self) -> bool:
        """Return whether a suspension has just ended."""
        now = self._clock()
        before, self._looked = self._looked, now
        if now - before < LONG:
            return False
        self._last = Suspension(now - before, now)
        return True

    def last(self, within: float = OUTCOME) -> Suspension | None:
        """The last one, if it ended no more than that many seconds ago."""
        self.look()
        return self._last if self._last is not None and self._looked - self._last.end <= within else None

    def explain(self, lost: LinkLost) -> LinkLost:
        """A link's loss, with the suspension as its reason where that is one."""
        last = self.last()
        return lost if last is None or lost.kind not in ("eof", "silence") else replace(lost, detail=str(last))

    def reason_of_stop(self, reason: str, is_orphaned: bool) -> str:
        """Why ranks were stopped on a host.

        Args:
            is_orphaned: its agent was left alone for too long.
        """
        last = self.last(NEWS + self._orphan_grace) if is_orphaned else None
        if last is None:
            return reason
        return f"{last}, longer than hosts wait for it (--orphan-grace {self._orphan_grace:g})"


async def keep_time(machine: RunMachine, act: Callable[[], None]) -> None:
    """Call `machine.on_time` and then `act` at each deadline, until cancelled."""
    now = asyncio.get_running_loop().time
    suspension = SuspensionDetector()
    while True:
        if suspension.look():
            await asyncio.sleep(SETTLING)
        deadline = machine.deadline
        await asyncio.sleep(LOOK if deadline is None else max(0.0, min(LOOK, deadline - now())))
        if deadline is not None and now() >= deadline:
            machine.on_time(now())
            act()
