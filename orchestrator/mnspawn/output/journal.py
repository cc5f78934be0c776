"""Events as JSON lines, for machines: `--events FILE|-`. Writes from a thread of its own.

Every object has `event` (snake case), `time` (seconds since the epoch), and `host` and `rank` where they apply; the
other fields are those of events.py. Output events carry `stream` ("stdout", "stderr"), `offset` (of their first byte in
that stream) and `text`. `text` is the bytes read as UTF-8: a character is never split over two events, and where the
bytes are no UTF-8 it has U+FFFD in their place and `base64` has the bytes themselves. So the bytes of a stream are, for
each event in order, those of `base64` if it is there, else `text` in UTF-8.
"""

import codecs
import dataclasses
import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from mnspawn.errors import UsageError
from mnspawn.events import Event, HostLost, OutputLost, Stream, WorkerExited, WorkerOutput

from .writer import ThreadedWriter, reason_of, wait_written

log = logging.getLogger(__name__)
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class EventsSink:
    """A listener that writes every event to a descriptor, one JSON object a line.

    Arguments:
        on_failure: told, from the writing thread, that no more is written; else it is logged.
    """

    def __init__(
        self, fd: int, *, owns_fd: bool = False, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self._fd = fd
        self._owns_fd = owns_fd
        self._told = on_failure
        self._writer = ThreadedWriter("events", self._on_failure)
        self._held: dict[tuple[int, Stream], WorkerOutput] = {}  # the first bytes of a character that is not whole yet

    @classmethod
    def open(cls, target: str) -> "EventsSink":
        """`-` is standard output; a file is made anew, readable by its owner only (output may hold secrets).

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
        """`wake` is called from the writing thread when the backlog falls."""
        self._writer.bind(wake)

    def on_event(self, event: Event) -> None:
        """Write one event; of output, what is whole characters."""
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
        if self._told is not None:
            self._told(exc)
        else:
            log.error("events: %s: from here on they are not written", reason_of(exc))

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
    """How many bytes at the end may be the beginning of a UTF-8 character (0 to 3)."""
    for count in range(1, min(3, len(chunk)) + 1):
        byte = chunk[-count]
        if byte & 0b1100_0000 != 0b1000_0000:  # no continuation byte: an ASCII character or the first of several
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return count if length > count and byte < 0xF8 else 0
    return 0


def describe(event: Event) -> dict[str, Any]:
    """An event as JSON-able values, in the words of this module's docstring."""
    record: dict[str, Any] = {"event": name_of(type(event)), "time": event.time}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Enum):
            value = value.name.lower()
        elif isinstance(value, bytes):
            record["text"], is_exact = _text_of(value)
            if not is_exact:
                record["base64"] = b64encode(value).decode()
            continue
        if value is not None or field.name != "host":
            record[field.name] = value
    return record


def name_of(kind: type[Event]) -> str:
    """OutputLost -> output_lost; WorkerStarted -> trainer_started, which its readers have known since 0.1.0."""
    return _WORD_START.sub("_", kind.__name__).lower().replace("worker_", "trainer_")


def _text_of(chunk: bytes) -> tuple[str, bool]:
    try:
        return codecs.decode(chunk, "utf-8"), True
    except UnicodeDecodeError:
        return chunk.decode("utf-8", "replace"), False
