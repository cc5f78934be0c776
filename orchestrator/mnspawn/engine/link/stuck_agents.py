"""Sees to it that nobody waits for an agent that answers and does not go on. While ranks run, nothing is waited for."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mnspawn.core.patience import PROOF_LIMIT
from mnspawn.core.run import Awaited, RunMachine
from mnspawn.core.session import HostSession

from .join import START_LIMIT
from .link import HostLink
from .suspension import Awake

LOOK = 1.0  # seconds between two looks
# Seconds without any progress. An agent may compare a big script with its own copy, but says hello first of all; a fork
# server tells nothing while it imports what the ranks need, which can come from a slow file system.
LIMITS = {Awaited.HELLO: START_LIMIT, Awaited.PREPARED: 300.0, Awaited.STARTED: 3600.0, Awaited.OUTPUT: PROOF_LIMIT}


class Vigil:
    """One run's hosts, as far as they are waited for; `awake` knows when we did not run ourselves."""

    def __init__(self, machine: RunMachine, links: Sequence[HostLink], orphan_grace: float = 0.0) -> None:
        self._machine = machine
        self._links = links
        self.awake = Awake(orphan_grace)
        self._since: dict[int, tuple[object, float]] = {}  # by host: what stood how, and since when it has

    async def keep(self) -> None:
        """Until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK)
            if self.awake.look():
                self._since.clear()  # nobody can have kept us waiting
            for link in self._links:
                self._look_at(link, now())

    def _look_at(self, link: HostLink, now: float) -> None:
        awaited = self._machine.awaited_of(link.index)
        # what we have not yet paid for holds the agent back: then it is not its turn
        if awaited is None or link.owed or link.is_settled or not link.is_served:
            self._since.pop(link.index, None)
            return
        stands: tuple[Any, ...] = (awaited, link.session.told, link.session.unacknowledged_bytes)
        before, since = self._since.get(link.index, (None, now))
        if stands != before:
            self._since[link.index] = (stands, now)
        elif now - since >= LIMITS[awaited]:
            del self._since[link.index]
            link.lose_patience(f"its agent answers, but {awaited.value} did not come within {LIMITS[awaited]:.0f} s")


async def outwait(session: HostSession, is_held: Callable[[], bool]) -> None:
    """Return when a session has brought nothing for as long as one that is to tell all it knows may take.

    Args:
        is_held: whether we hold the other end back.
    """
    now = asyncio.get_running_loop().time
    told, since = session.told, now()
    while is_held() or session.told != told or now() - since < PROOF_LIMIT:
        if is_held() or session.told != told:
            told, since = session.told, now()
        await asyncio.sleep(LOOK)
