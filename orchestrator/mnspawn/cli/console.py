"""The listeners of `run`, `logs` and `attach`: the console, local copies, events; and how they are closed."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from mnspawn.api.runs import Listener
from mnspawn.output.copies import LocalCopies
from mnspawn.output.journal import EventsSink
from mnspawn.output.painters import Look
from mnspawn.output.sinks import ConsoleSink, OutputMode, Wording
from mnspawn.settings.table import Settings
from mnspawn.system import interrupts

from .render import log_to
from .wording.run import EventWording

T = TypeVar("T")
log = logging.getLogger(__name__)

LEFT_LIMIT = 0.5  # seconds that output gets to be written once the user has left


async def closing(outcome: Awaitable[T], listeners: Sequence[Listener]) -> T:
    """Whatever is said after this stands behind all output.

    A stopped reader (`| less`) keeps us until it has read all; unless the user wants out, now or by a signal before.
    """
    async with contextlib.AsyncExitStack() as stack:
        for listener in reversed(listeners):
            stack.push_async_callback(listener.aclose)
        result = await outcome
        closer = asyncio.current_task()
        assert closer is not None

        def urge(*_: object) -> None:
            interrupts.urge()
            closer.cancel()

        is_over = interrupts.is_urged() or getattr(result, "has_left", False)
        limit = LEFT_LIMIT if is_over else None
        try:
            with interrupts.handled(urge, void, urge):
                async with asyncio.timeout(limit):
                    await stack.aclose()
        except (asyncio.CancelledError, TimeoutError):
            # the rest of the output is not wanted, what became of the run is
            log.debug("left output that nobody read")
    return result


def void(*_: object) -> None:
    """Nothing, whatever it is called with."""


def listeners_of(settings: Settings, host_count: int) -> list[Listener]:
    """Those of a run: the console, and events and copies where they are asked for.

    With `--events -` stdout is theirs: the rest is on stderr.

    Raises:
        UsageError: a file can't be written.
    """
    wording = EventWording(host_count, settings.verbose)
    console = console_of(settings, wording, OutputMode.NONE if settings.dry_run else None)
    console.show_live(wording.connecting())
    return [console, *keepers_of(settings)]


def console_of(
    settings: Settings, wording: Wording | None, mode: OutputMode | None = None, *, takes_logs: bool = True
) -> ConsoleSink:
    """The console as the settings want it; operators' logging goes there, too."""
    is_taken = settings.events is not None and str(settings.events) == "-"
    console = ConsoleSink(
        mode or OutputMode(settings.output),
        ranks=settings.ranks,
        look=look_of(settings, os.environ),
        wording=wording,
        stdout=2 if is_taken else 1,
    )
    if takes_logs:
        log_to(lambda lines: console.note("\n".join(lines)), settings.verbose)
    return console


def keepers_of(settings: Settings) -> list[Listener]:
    """What is written beside the console.

    Raises:
        UsageError: a file can't be written.
    """
    keepers: list[Listener] = []
    if settings.events is not None:
        keepers.append(EventsSink.open(str(settings.events)))
    if settings.log_dir is not None and not settings.dry_run:
        keepers.append(LocalCopies.open(settings.log_dir))
    return keepers


def look_of(settings: Settings, environ: Mapping[str, str]) -> Look:
    """Colours: --color, else NO_COLOR (no-color.org), else whether it is a terminal that has them."""
    is_coloured: bool | None = {"always": True, "never": False}.get(settings.color)
    is_unwanted = settings.color == "auto" and bool(environ.get("NO_COLOR"))
    if is_unwanted or (settings.color == "auto" and environ.get("TERM") == "dumb"):
        is_coloured = False
    return Look(
        has_times=settings.timestamps,
        is_sanitized=settings.sanitize,
        is_coloured=is_coloured,
        keeps_colours=settings.color != "never" and not is_unwanted,
    )
