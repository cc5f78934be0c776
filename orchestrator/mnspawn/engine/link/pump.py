"""Moves bytes and time between one remote process and its session until the link is lost. No policy."""

import asyncio
from collections.abc import Callable

from mnspawn.core.session import HostSession
from mnspawn.transport.base import RemoteProcess


async def pump(
    process: RemoteProcess, session: HostSession, first: bytes, deliver: Callable[[], None], wake: asyncio.Event
) -> None:
    """Run one wire until the session counts it as lost.

    Args:
        first: bytes that were read with the handshake.
        deliver: called when the session may have events.
        wake: set by whoever gives the session something to send.
    """
    now = asyncio.get_running_loop().time

    async def inbound() -> None:
        chunk = first or await process.read()
        while chunk and not session.is_lost:
            session.receive(chunk, now())
            deliver()
            wake.set()
            chunk = await process.read()
        session.receive(b"", now())
        deliver()

    async def outbound() -> None:
        while not session.is_lost:
            wake.clear()
            if chunk := session.data_to_send(now()):
                await process.write(chunk)
            else:
                await wake.wait()

    async def clock() -> None:
        while (deadline := session.deadline) is not None:
            await asyncio.sleep(max(0.0, deadline - now()))
            session.on_time(now())
            deliver()
            wake.set()

    # whichever ends first has seen the loss; a write to a dead peer never ends by itself
    tasks = [asyncio.create_task(part(), name=f"link {part.__name__}") for part in (inbound, outbound, clock)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
