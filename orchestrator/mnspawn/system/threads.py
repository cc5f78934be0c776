"""Work that may hang, in threads that hold up nobody's exit: those of an executor are waited for at the end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises; nobody waits for it when this is cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as exc:  # noqa: BLE001 -- raised where the result is awaited, which must not wait for ever
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: as above
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return await future
