"""Connections to jump hosts, one each, shared by all hosts reached through it."""

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from mnspawn.errors import HostError
from mnspawn.transport.config.route import Hop

T = TypeVar("T")


class Jumps(Generic[T]):
    """Opens each on first use, and again after it is lost.

    Args:
        dial: opens one, within its own connect timeout.
        is_gone: whether an open one has ended.
    """

    def __init__(self, dial: Callable[[Hop], Coroutine[Any, Any, T]], is_gone: Callable[[T], bool]) -> None:
        self._dial = dial
        self._is_gone = is_gone
        self._dialled: dict[str, asyncio.Task[T]] = {}

    async def get(self, hop: Hop, behind: Hop) -> T:
        """Return the connection to a jump host. Callers that ask while it is being dialled share the result.

        Raises:
            HostError: it can't be opened; named after the host behind it.
        """
        key = f"{hop.user}@{hop.place} {hop.identities} {hop.jump.place if hop.jump else ''}"
        task = self._dialled.get(key)
        if task is None or (task.done() and not self._stands(task)):
            # no TaskGroup: no waiter owns it, and it continues when the first of them gives up
            task = self._dialled[key] = asyncio.get_running_loop().create_task(self._dial(hop), name=f"jump {hop.name}")
            task.add_done_callback(_hear)
        try:
            return await asyncio.shield(task)
        except HostError as exc:
            theirs = copy.copy(exc)
            theirs.message = f"jump host {hop.name}: {exc.message}"
            theirs.host = behind.name
            raise theirs from exc

    def _stands(self, task: "asyncio.Task[T]") -> bool:
        return not task.cancelled() and task.exception() is None and not self._is_gone(task.result())

    async def give_up(self) -> list[T]:
        """Stop dialling. Returns the connections that were opened."""
        tasks = list(self._dialled.values())
        self._dialled.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled() and task.exception() is None]


def _hear(task: "asyncio.Task[T]") -> None:
    """Mark a failure as seen: perhaps nobody waits for it any more."""
    if not task.cancelled():
        task.exception()
