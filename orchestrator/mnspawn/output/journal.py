"""Writes events as JSON lines for other programs: `--events FILE|-`, from its own thread.

Every object has `event` (snake case), `time` (seconds since the epoch), and `host` and `rank` where they apply; the
other fields are those of events.py. Output events have `stream` ("stdout", "stderr"), `offset` (of their first byte in
that stream) and `text`, which never splits a character. Where the bytes are not UTF-8, `text` has U+FFFD in their place
and `base64` has the bytes. To get a stream's bytes, join `base64` where present, else `text` in UTF-8.
"""

import dataclasses
import json
import logging
import os
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from mnspawn.errors import UsageError
from mnspawn.events import Event, HostLost, OutputLost, Stream, WorkerExited, WorkerOutput

from .lines import as_json
from .writer import ThreadedWriter, reason_of, wait_written

log = logging.getLogger(__name__)
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class EventsSink:
    """A listener that writes every event to a descriptor, one JSON object a line.

    Arguments:
        owns_fd: close the descriptor at the end.
        on_failure: called from the writing thread when writing has failed; default: log the error.
    """

    def __init__(
        self, fd: int, *, owns_fd: bool = False, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self._fd = fd
        self._owns_fd = owns_fd
        self._report_failure = on_failure
        self._writer = ThreadedWriter("events", self._on_failure)
        self._held: dict[tuple[int, Stream], WorkerOutput] = {}  # first bytes of an unfinished character

    @classmethod
    def open(cls, target: str) -> "EventsSink":
        """Write to standard output (`-`) or to a new file that only its owner can read: output may contain secrets.

        Raises:
            UsageError: the file can't be written.
        """
        if target == "-":
            return cls(1)
        try:
            fd = os.open(Path(target), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise UsageError(f"{target}: {exc.strerror}", place="--events") from exc
        return cls(fd, owns_fd=True)

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet written."""
        return self._writer.backlog

    def bind(self, wake: Callable[[], None]) -> None:
        """Call `wake` from the writing thread whenever the backlog has fallen."""
        self._writer.bind(wake)

    def on_event(self, event: Event) -> None:
        """Write one event; of output, whole characters only."""
        match event:
            case WorkerOutput():
                whole = self._whole_characters(event)
                if whole is None:
                    return
                event = whole
            case WorkerExited() | OutputLost():
                self._release(lambda held: held.rank == event.rank)
            case HostLost():
                self._release(lambda held: held.host == event.host)
        self._put(event)

    async def aclose(self) -> None:
        """Return when everything is written, or nothing more can be."""
        self._release(lambda held: True)
        await wait_written(self._writer)
        if self._owns_fd:
            self._owns_fd = False
            os.close(self._fd)

    def _on_failure(self, fd: int, exc: Exception) -> None:
        if self._report_failure is not None:
            self._report_failure(exc)
        else:
            log.error("events: %s: no more events are written", reason_of(exc))

    def _put(self, event: Event) -> None:
        line = json.dumps(describe(event), separators=(",", ":"), default=str)
        self._writer.put(self._fd, line.encode() + b"\n")

    def _whole_characters(self, event: WorkerOutput) -> WorkerOutput | None:
        held = self._held.pop((event.rank, event.stream), None)
        if held is not None:
            event = dataclasses.replace(held, time=event.time, chunk=held.chunk + event.chunk)
        cut = len(event.chunk) - unfinished_character(event.chunk)
        if cut < len(event.chunk):
            self._held[event.rank, event.stream] = dataclasses.replace(
                event, offset=event.offset + cut, chunk=event.chunk[cut:]
            )
            event = dataclasses.replace(event, chunk=event.chunk[:cut])
        return event if event.chunk else None

    def _release(self, is_over: Callable[[WorkerOutput], bool]) -> None:
        for key, held in list(self._held.items()):
            if is_over(held):
                del self._held[key]
                self._put(held)


def unfinished_character(chunk: bytes) -> int:
    """Return how many bytes at the end may begin a UTF-8 character (0 to 3)."""
    for count in range(1, min(3, len(chunk)) + 1):
        byte = chunk[-count]
        if byte & 0b1100_0000 != 0b1000_0000:  # not a continuation byte
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return count if length > count and byte < 0xF8 else 0
    return 0


def describe(event: Event) -> dict[str, Any]:
    """Return an event as JSON values, as the module's docstring has them."""
    record: dict[str, Any] = {"event": name_of(type(event)), "time": event.time}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Enum):
            value = value.name.lower()
        elif isinstance(value, bytes):
            record |= as_json(value)
            continue
        if value is not None or field.name != "host":
            record[field.name] = value
    return record


def name_of(kind: type[Event]) -> str:
    """OutputLost -> output_lost; WorkerStarted -> trainer_started, the name since 0.1.0."""
    return _WORD_START.sub("_", kind.__name__).lower().replace("worker_", "trainer_")
