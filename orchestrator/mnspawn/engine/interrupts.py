"""Signals of the controller as calls in its loop; what was ignored (nohup, a background job) stays ignored."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ExitStatus

SIGNAL_STATUS = {
    signal.SIGINT: ExitStatus.INTERRUPTED,
    signal.SIGTERM: ExitStatus.TERMINATED,
    signal.SIGHUP: ExitStatus.HANGUP,
}
STOPPING = tuple(SIGNAL_STATUS)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
LETTING_GO = signal.SIGQUIT  # Ctrl-\\: leave the run alone


@contextlib.contextmanager
def handled(
    on_stop: Callable[[signal.Signals], None],
    on_pass: Callable[[signal.Signals], None],
    on_let_go: Callable[[], None],
) -> Iterator[None]:
    """Route signals while the context lasts; does nothing outside the main thread, where nobody may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    routed: list[tuple[signal.Signals, Any]] = []

    def route(number: signal.Signals, call: Callable[..., None], *args: Any) -> None:
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN:
            loop.add_signal_handler(number, call, *args)
            routed.append((number, before))

    try:
        for number in STOPPING:
            route(number, on_stop, number)
        for number in PASSED_ON:
            route(number, on_pass, number)
        route(LETTING_GO, on_let_go)
        yield
    finally:
        for number, before in routed:
            loop.remove_signal_handler(number)
            if before is not None:
                signal.signal(number, before)
