"""Signals of the controller as calls in its loop; what was ignored (nohup, a background job) stays ignored."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def handled(on_stop: Callable[[signal.Signals], None], on_pass: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Route signals while the context lasts; does nothing outside the main thread, where nobody may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    routed: list[tuple[signal.Signals, Any]] = []
    try:
        for numbers, call in ((STOPPING, on_stop), (PASSED_ON, on_pass)):
            for number in numbers:
                before = signal.getsignal(number)
                if before is signal.SIG_IGN:
                    continue
                loop.add_signal_handler(number, call, number)
                routed.append((number, before))
        yield
    finally:
        for number, before in routed:
            loop.remove_signal_handler(number)
            if before is not None:
                signal.signal(number, before)
