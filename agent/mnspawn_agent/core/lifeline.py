"""How long a pod goes on without its controller. Pure: no I/O, no clock."""

from enum import Enum
from typing import Dict, Optional


class LifelineState(Enum):
    HELD = "held"  # a controller is there
    ORPHANED = "orphaned"  # none is; it may come back until the deadline
    ABANDONED = "abandoned"  # it did not come back in time: the pod is stopped


L = LifelineState
MOVES: Dict[LifelineState, Dict[str, LifelineState]] = {
    L.HELD: {"lost": L.ORPHANED},
    L.ORPHANED: {"lost": L.ORPHANED, "back": L.HELD, "over": L.ABANDONED},
    L.ABANDONED: {"lost": L.ABANDONED, "back": L.ABANDONED},
}


class Lifeline:
    """HELD -> ORPHANED -> HELD again, or ABANDONED after `orphan_grace` seconds (None: a detached run, never)."""

    def __init__(self, orphan_grace: Optional[float]) -> None:
        self.state = L.HELD
        self.orphan_grace = orphan_grace
        self.deadline: Optional[float] = None

    def _move(self, fact: str) -> None:
        try:
            self.state = MOVES[self.state][fact]
        except KeyError:
            raise AssertionError("lifeline: %s in state %s" % (fact, self.state.value))

    def lost(self, now: float) -> None:
        if self.state is L.HELD and self.orphan_grace is not None:
            self.deadline = now + self.orphan_grace
        self._move("lost")

    def back(self) -> None:
        self._move("back")
        self.deadline = None

    def on_time(self, now: float) -> bool:
        """True once, when the pod is to be stopped."""
        if self.deadline is None or now < self.deadline:
            return False
        self.deadline = None
        self._move("over")
        return True
