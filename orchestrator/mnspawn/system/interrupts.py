"""Signals of the controller as calls in its loop; what was ignored (nohup, a background job) stays ignored.

Once a run has its result, signals no longer end the process: whoever sends one then wants us to wait for nobody any
more, which `is_urged` tells, and gets the run's own exit status.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mnspawn.errors import ExitStatus

STATUS = {
    signal.SIGINT: ExitStatus.INTERRUPTED,
    signal.SIGTERM: ExitStatus.TERMINATED,
    signal.SIGHUP: ExitStatus.HANGUP,
}
STOPPING = tuple(STATUS)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
LETTING_GO = signal.SIGQUIT  # Ctrl-\\: leave the run alone
ENDING = (*STOPPING, LETTING_GO)  # what would end the process when nobody took it

_urge = threading.Event()


@contextlib.contextmanager
def handled(
    on_stop: Callable[[signal.Signals], None],
    on_pass: Callable[[signal.Signals], None],
    on_let_go: Callable[[], None],
    stands: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Route signals while the context lasts; does nothing outside the main thread, where nobody may.

    Args:
        stands: asked at the end, whether there is a result that no signal shall replace any more: then they only urge.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import asyncio  # here, since who only asks `is_urged` shall not wait for it

    loop = asyncio.get_running_loop()
    routed: list[tuple[signal.Signals, Any]] = []

    def route(number: signal.Signals, call: Callable[..., None], *args: Any) -> None:
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN:
            # not loop.add_signal_handler: taking that back leaves a moment in which the signal ends the process
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(call, *args))
            routed.append((number, before))

    try:
        for number in STOPPING:
            route(number, on_stop, number)
        for number in PASSED_ON:
            route(number, on_pass, number)
        route(LETTING_GO, on_let_go)
        yield
    finally:
        is_over = stands()
        for number, before in routed:
            if is_over:
                signal.signal(number, _take_late)
            elif before is not None:
                signal.signal(number, before)


def _take_late(number: int, frame: object) -> None:
    urge()


def urge() -> None:
    """Somebody does not want to wait for what is left to do."""
    _urge.set()


def is_urged() -> bool:
    """Somebody has sent a signal since the result stands."""
    return _urge.is_set()


def forget() -> dict[signal.Signals, Any]:
    """A command begins: nobody has urged yet. Gives what to `restore` when the process goes on after it."""
    _urge.clear()
    return {number: signal.getsignal(number) for number in (*ENDING, *PASSED_ON)}


def restore(dispositions: dict[signal.Signals, Any]) -> None:
    """Give a process that goes on its signals back."""
    with contextlib.suppress(ValueError):  # not the main thread: nothing was changed either
        for number, before in dispositions.items():
            if before is not None:
                signal.signal(number, before)
