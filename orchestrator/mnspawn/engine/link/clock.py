"""Gives the machine of a run the time, whenever it wants to know."""

import asyncio
from collections.abc import Callable

from mnspawn.core.run import RunMachine

from .suspension import SETTLING, SuspensionDetector

LOOK = 1.0  # seconds between two looks at a deadline that facts move; nobody needs it more exactly


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
