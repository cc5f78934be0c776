"""How a stream's lines look on the console: prefixed, plain, folded, or as JSON objects."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from mnspawn.events import Stream

from .fold import Folded, Folder, rank_set
from .lines import LineAssembler, final_states, split_lines
from .rewind import Rewinder
from .sanitize import ColourFilter, Sanitizer
from .surface import Surface

# Of the 16 colours of every terminal those that can be read on a dark and on a light ground.
PALETTE = (36, 32, 35, 34, 33, 31, 96, 92, 95, 94)
_MANY = 1  # bold: a line of several ranks
_RESET = b"\x1b[0m"


@dataclass(frozen=True, slots=True)
class Look:
    """How output looks, whatever its mode.

    Attributes:
        has_times: every line says when its host saw it.
        is_sanitized: of control sequences only colours pass.
        is_coloured: prefixes have their rank's colour; None: on terminals.
        keeps_colours: colours of the workers' own pass.
    """

    has_times: bool = False
    is_sanitized: bool = False
    is_coloured: bool | None = None
    keeps_colours: bool = True

    def filter(self) -> Sanitizer | ColourFilter | None:
        """A filter for one stream."""
        if self.is_sanitized:
            return Sanitizer(keeps_colours=self.keeps_colours)
        return None if self.keeps_colours else ColourFilter()

    def prefix(self, word: str, rank: int | None, surface: Surface) -> bytes:
        """`[word] `; `rank` is whose colour it has, None for many."""
        if not (surface.is_terminal if self.is_coloured is None else self.is_coloured):
            return f"[{word}] ".encode("utf-8", "backslashreplace")
        colour = _MANY if rank is None else PALETTE[rank % len(PALETTE)]
        begin = f"\x1b[0;{colour}m[{word}]".encode(
            "utf-8", "backslashreplace"
        )  # 0: what the line before left on is off
        return begin + _RESET + b" "

    def stamp(self, time: float) -> bytes:
        """A line's time, where times are shown: UTC, as other tools write it (RFC 3339)."""
        return f"{rfc3339(time)} ".encode() if self.has_times else b""


def rfc3339(time: float) -> str:
    """2026-01-31T12:00:00.000Z."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Source:
    """One stream of one rank.

    Attributes:
        owner: whose a line is that stands open on the surface.
        filter: what takes control sequences out.
        is_direct: nobody else writes there: bytes pass as they come.
        file: the path, where it is a file and no rank's stream.
        time: when the host saw the newest bytes.
        rewinder: folds progress bars of several lines; None where every byte is kept.
    """

    host: str
    rank: int
    stream: Stream
    fd: int
    surface: Surface
    owner: Hashable
    prefix: bytes
    filter: Sanitizer | ColourFilter | None
    is_direct: bool = False
    file: str | None = None
    time: float = 0.0
    lines: LineAssembler = field(default_factory=LineAssembler)
    rewinder: Rewinder | None = None

    def feed(self, chunk: bytes, time: float) -> bytes:
        """Take bytes; the lines that are whole now."""
        self.time = time
        if self.rewinder is not None:
            chunk = self.rewinder.feed(chunk, self.lines.flush)
        return self.lines.feed(chunk if self.filter is None else self.filter.feed(chunk))

    @property
    def progress(self) -> bytes:
        """The newest state of a progress bar that goes on, b"" where there is none."""
        if self.rewinder is not None and self.rewinder.is_holding:
            return self.rewinder.state
        states = self.lines.half_line.split(b"\r")
        return (states[-1] or states[-2]) if len(states) > 1 else b""

    def flush(self) -> bytes:
        """The rest, line by line or not."""
        rest = self.rewinder.flush() if self.rewinder is not None else b""
        if self.filter is not None:
            rest = self.filter.feed(rest) + self.filter.flush()
        return self.lines.feed(rest) + self.lines.flush()


class Painter(Protocol):
    """Shows blocks of whole lines (or a tail)."""

    def paint(self, source: Source, block: bytes) -> None: ...

    def settle(self) -> None:
        """Show what waits: something else is to be shown behind it."""
        ...

    @property
    def held(self) -> int:
        """Bytes that wait to be shown."""
        ...


class LinePainter:
    """Lines behind their rank's prefix, or behind none."""

    held = 0

    def __init__(self, look: Look) -> None:
        self._look = look

    def paint(self, source: Source, block: bytes) -> None:
        prefix = source.prefix + self._look.stamp(source.time)
        source.surface.show(source.fd, source.owner, final_states(block), prefix)

    def settle(self) -> None:
        """Nothing waits."""


class FoldPainter:
    """Equal lines of many ranks once, behind the set of their ranks. Works in a running loop.

    Arguments:
        place: descriptor and surface of a stream.
    """

    def __init__(self, look: Look, place: Callable[[Stream], tuple[int, Surface]]) -> None:
        self._look = look
        self._place = place
        self._folder = Folder()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        return self._folder.held

    def expect(self, rank_count: int) -> None:
        """How many ranks are shown."""
        self._folder.expect(rank_count)

    def paint(self, source: Source, block: bytes) -> None:
        now = asyncio.get_running_loop().time()
        self._folder.feed(source.rank, source.stream, split_lines(final_states(block)), source.time, now)
        self._pour(now)

    def settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._show(self._folder.flush())

    def _on_time(self) -> None:
        self._timer = None
        self._pour(asyncio.get_running_loop().time())

    def _pour(self, now: float) -> None:
        self._show(self._folder.take(now))
        if self._timer is None and self._folder.deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(self._folder.deadline, self._on_time)

    def _show(self, lines: list[Folded]) -> None:
        for line in lines:
            assert isinstance(line.stream, Stream)
            fd, surface = self._place(line.stream)
            only = next(iter(line.ranks)) if len(line.ranks) == 1 else None
            prefix = self._look.prefix(rank_set(line.ranks), only, surface) + self._look.stamp(line.time)
            surface.show(fd, (only, line.stream), line.text, prefix)


class JsonPainter:
    """Every line as one JSON object on stdout, for machines: host, rank, stream, time, text.

    `text` is the line without its end. Where it is no UTF-8, `text` has U+FFFD and `base64` the bytes themselves. A
    piece of a very long line, or a tail that was never ended, has `"partial": true`.
    """

    held = 0

    def __init__(self, fd: int, surface: Surface) -> None:
        self._fd = fd
        self._surface = surface

    def paint(self, source: Source, block: bytes) -> None:
        head: dict[str, object] = {"host": source.host, "file": source.file, "time": source.time}
        if source.file is None:
            stream = source.stream.name.lower()
            head = {"host": source.host, "rank": source.rank, "stream": stream, "time": source.time}
        objects = [json.dumps(head | _content(line)) + "\n" for line in split_lines(block)]
        self._surface.show(self._fd, source.owner, "".join(objects).encode())

    def settle(self) -> None:
        """Nothing waits."""


def _content(line: bytes) -> dict[str, object]:
    text = line.removesuffix(b"\n")
    content: dict[str, object] = {"text": text.decode("utf-8", "replace")}
    try:
        text.decode()
    except UnicodeDecodeError:
        content["base64"] = b64encode(text).decode()
    if len(text) == len(line):
        content["partial"] = True
    return content
