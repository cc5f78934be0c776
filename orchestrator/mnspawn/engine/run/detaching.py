"""Lets go of a run: remembered until all its ranks run, done when its agents have acknowledged it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mnspawn.core.run import RunMachine, RunState
from mnspawn.engine.link.link import HostLink
from mnspawn.engine.request import RunRequest
from mnspawn_agent.protocol import messages

LOOK = 0.02  # seconds between two looks at what agents have acknowledged
EARLY = (RunState.CONNECTING, RunState.PREPARING, RunState.STARTING)


@dataclass(frozen=True, slots=True)
class Detached:
    """The run continues without us. `unheard`: hosts whose agents may not know, and take our end for a lost link."""

    run: str
    unheard: tuple[str, ...] = ()


class Detaching:
    """One run's way from wanted to done.

    Args:
        notice: called with a line for people.
    """

    def __init__(
        self, machine: RunMachine, links: Sequence[HostLink], request: RunRequest, notice: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._links = links
        self._notice = notice
        self._is_sandbox = bool(request.sandbox)
        self._limit = request.limits.detach
        self._due = asyncio.Event()
        self._is_wanted = request.is_detached
        self.outcome: Detached | None = None

    def want(self) -> None:
        """Detach as soon as possible: somebody asks for it."""
        state = self._machine.state
        if self._is_wanted:
            return
        if self._is_sandbox:
            self._notice("a sandbox ends with this command: its run can't be let go of")
            return
        if state in EARLY:
            self._notice("the run will be let go of as soon as all ranks run")
        elif state is not RunState.RUNNING:
            self._notice("the run is about to end: it is not let go of")
            return
        self._is_wanted = True

    def look(self) -> None:
        """The run may have changed its state."""
        if self._is_due:
            self._due.set()

    @property
    def _is_due(self) -> bool:
        return self._is_wanted and self._machine.state is RunState.RUNNING

    async def run(self, leave: Callable[[], None]) -> None:
        """Once due, tell every agent and wait until all have confirmed; then `leave`, unless the run ends first."""
        await self._due.wait()
        for link in self._links:
            link.send(messages.DETACH)
        now = asyncio.get_running_loop().time
        deadline = now() + self._limit
        while self._is_due and self._unheard() and now() < deadline:  # noqa: ASYNC110 - sessions have no event for it
            await asyncio.sleep(LOOK)
        if self._is_due:  # else the run has begun to end meanwhile, which is waited for
            self.outcome = Detached(self._machine.run, self._unheard())
            leave()

    def _unheard(self) -> tuple[str, ...]:
        return tuple(link.name for link in self._links if link.session.unacknowledged_bytes and not link.is_settled)
