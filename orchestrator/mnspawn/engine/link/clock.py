"""Tells the machine of a run the time, whenever it wants to know."""

import asyncio
from collections.abc import Callable

from mnspawn.core.run import RunMachine

from .suspension import SETTLING, Awake

LOOK = 1.0  # seconds between two looks at a deadline that facts move; nobody needs it more exactly


async def keep_time(machine: RunMachine, act: Callable[[], None]) -> None:
    """Until cancelled; `act` does what the machine then wants."""
    now = asyncio.get_running_loop().time
    awake = Awake()
    while True:
        if awake.look():
            await asyncio.sleep(SETTLING)
        deadline = machine.deadline
        await asyncio.sleep(LOOK if deadline is None else max(0.0, min(LOOK, deadline - now())))
        if deadline is not None and now() >= deadline:
            machine.on_time(now())
            act()
