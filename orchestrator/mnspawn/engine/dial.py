"""Connects to every host at once, within a bound that minds sshd's MaxStartups. (First cut: the window only.)"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from ..errors import HostError
from ..transport.base import Connection, Target, Transport

WINDOW = 64


async def dial(
    transports: Sequence[Transport], targets: Sequence[Target], *, connect_timeout: float
) -> AsyncIterator[tuple[int, Connection | HostError]]:
    """(index, connection or error) of every target, as each one answers."""
    queue: asyncio.Queue[tuple[int, Connection | HostError]] = asyncio.Queue()
    window = asyncio.Semaphore(WINDOW)

    async def one(index: int) -> None:
        async with window:
            try:
                await queue.put((index, await transports[index].connect(targets[index])))
            except HostError as exc:
                await queue.put((index, exc))

    async with asyncio.TaskGroup() as group:
        for index in range(len(targets)):
            group.create_task(one(index))
        for _ in targets:
            yield await queue.get()
