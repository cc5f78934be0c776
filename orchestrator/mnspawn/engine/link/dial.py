"""Connects to every host at once, within bounds that respect sshd's MaxStartups; retries transient refusals."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import partial

from mnspawn.core.backoff import Backoff
from mnspawn.errors import HostError
from mnspawn.system.open_files import shortage
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport.base import Connection, Target, Transport

WINDOW = 128  # hosts in all: one handshake costs about 3 ms of CPU here, and a file descriptor
_LOOK_UP = 1.0  # seconds without a host that is done: those that are left do something slow
PER_SERVER = 8  # sshd starts to drop connections over ten that are not yet let in (MaxStartups 10:30:100)


async def look_up(transports: Sequence[Transport], targets: Sequence[Target]) -> None:
    """Return when no setting keeps a target from being dialled; other problems are reported by `dial`.

    Slow settings (a Match exec of ssh_config) are not waited for: `dial` goes on with them.

    Raises:
        UsageError: ssh_config or a file that it names can't be used; `place` is file:line.
    """
    window = asyncio.Semaphore(WINDOW)

    async def one(transport: Transport, target: Target) -> None:
        async with window:
            with contextlib.suppress(HostError):
                await in_daemon_thread(partial(transport.endpoint, target))

    tasks = [asyncio.create_task(one(*pair)) for pair in zip(transports, targets, strict=True)]
    done, pending = set(tasks), set(tasks)
    try:
        while done and pending:
            done, pending = await asyncio.wait(pending, timeout=_LOOK_UP, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def dial(
    transports: Sequence[Transport], targets: Sequence[Target], *, connect_timeout: float
) -> AsyncIterator[tuple[int, Connection | HostError]]:
    """Yield (index, connection or error) of every target, as each one answers.

    Connections that nobody took are closed when the iteration is given up.

    Args:
        connect_timeout: seconds for each address of a host, all tries together, from when the host's turn comes;
            transports apply it to single tries.
    """
    answers: asyncio.Queue[tuple[int, Connection | HostError | Exception]] = asyncio.Queue()
    window = asyncio.Semaphore(WINDOW)
    servers: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PER_SERVER))

    async def one(index: int) -> None:
        transport, target = transports[index], targets[index]
        try:
            async with window:
                server = servers[await in_daemon_thread(partial(transport.endpoint, target))]
                connection = await _persist(transport, target, server, connect_timeout)
        except OSError as exc:  # this machine's: a host's fault has come as a HostError
            answers.put_nowait((index, shortage(exc, is_fork=True) or exc))
        except Exception as exc:  # noqa: BLE001 -- HostErrors are answers; anything else is raised where we are awaited
            answers.put_nowait((index, exc))
        else:
            answers.put_nowait((index, connection))

    # no TaskGroup: it would turn the end of an iteration that is given up (GeneratorExit) into an error of its own
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one(index), name=f"dial {target.name}") for index, target in enumerate(targets)]
    try:
        for _ in targets:
            index, answer = await answers.get()
            if isinstance(answer, Exception) and not isinstance(answer, HostError):
                raise answer
            yield index, answer
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        while not answers.empty():
            _, answer = answers.get_nowait()
            if not isinstance(answer, Exception):
                await answer.close()


async def _persist(
    transport: Transport, target: Target, server: asyncio.Semaphore, connect_timeout: float
) -> Connection:
    """Connect; try again while the refusal is transient and time is left."""
    now = asyncio.get_running_loop().time
    refusal: HostError | None = None
    began: float | None = None
    backoff: Backoff | None = None
    while True:
        async with server:
            began = now() if began is None else began
            deadline = None if refusal is None else began + connect_timeout * refusal.addresses
            try:
                async with asyncio.timeout_at(deadline):
                    return await transport.connect(target)
            except TimeoutError:
                if refusal is None:
                    raise
                raise refusal from None
            except HostError as exc:
                if not exc.is_transient:
                    raise
                refusal = exc
        backoff = backoff or Backoff(began + connect_timeout * refusal.addresses)
        pause = backoff.next_pause(now(), random.random())
        if pause is None:
            raise refusal
        await asyncio.sleep(pause)
