"""Gives up agents that answer and make no progress, so that nobody waits for them. Ranks that run need make none."""

import asyncio
from collections.abc import Callable, Sequence

from mnspawn.core.run import Awaited, RunMachine
from mnspawn.core.session import HostSession
from mnspawn.engine.request import Limits

from .link import HostLink
from .suspension import SuspensionDetector


class StuckAgentCheck:
    """The hosts of one run, as far as they are waited for.

    Args:
        suspension: says when we did not run ourselves.
    """

    def __init__(
        self, machine: RunMachine, links: Sequence[HostLink], suspension: SuspensionDetector, limits: Limits
    ) -> None:
        self._machine = machine
        self._links = links
        self._suspension = suspension
        self._look = limits.look
        self._limits = {
            Awaited.HELLO: limits.hello,
            Awaited.PREPARED: limits.prepared,
            Awaited.STARTED: limits.started,
            Awaited.OUTPUT: limits.output,
        }
        self._since: dict[int, tuple[object, float]] = {}  # by host: how it stood, and since when it has

    async def run(self) -> None:
        """Look at every host again and again, until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._look)
            if self._suspension.look():
                self._since.clear()  # nobody can have kept us waiting
            for link in self._links:
                self.look_at(link, now())

    def look_at(self, link: HostLink, now: float) -> None:
        """Give a host's agent up when its time is over."""
        awaited = self._machine.awaited_of(link.index)
        # what we have not yet paid for holds the agent back: then it is not its turn
        if awaited is None or link.owed or link.is_settled or not link.is_served:
            self._since.pop(link.index, None)
            return
        stands = (awaited, link.session.progress, link.session.unacknowledged_bytes)
        before, since = self._since.get(link.index, (None, now))
        limit = self._limits[awaited]
        if stands != before:
            self._since[link.index] = (stands, now)
        elif now - since >= limit:
            del self._since[link.index]
            link.give_up(f"its agent answers, but {awaited.value} did not come within {limit:.0f} s")


async def wait_until_idle(session: HostSession, is_held: Callable[[], bool], limits: Limits) -> None:
    """Return when a session that should report all it knows has brought nothing for too long.

    Args:
        is_held: whether we hold the other end back.
    """
    now = asyncio.get_running_loop().time
    seen, since = session.progress, now()
    while is_held() or session.progress != seen or now() - since < limits.output:
        if is_held() or session.progress != seen:
            seen, since = session.progress, now()
        await asyncio.sleep(limits.look)
