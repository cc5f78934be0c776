"""Shows a stream's lines on the console: prefixed, plain, folded, or as JSON objects. Decides no policy."""

import asyncio
import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mnspawn.events import Stream

from .fold import Folded, LineFolder, rank_set
from .lines import LineAssembler, as_json, final_states, split_lines
from .rewind import Rewinder
from .sanitize import ColourFilter, Sanitizer
from .surface import Surface

# those of a terminal's 16 colours that are readable on dark and on light backgrounds
PALETTE = (36, 32, 35, 34, 33, 31, 96, 92, 95, 94)
_MANY = 1  # bold: a line of several ranks
_RESET = b"\x1b[0m"


@dataclass(frozen=True, slots=True)
class Look:
    """How output looks, whatever its mode.

    Attributes:
        has_times: show on every line when its host saw it.
        is_sanitized: let no control sequences but colours pass.
        is_coloured: give prefixes their rank's colour; None: on terminals.
        keeps_colours: let the workers' own colours pass.
    """

    has_times: bool = False
    is_sanitized: bool = False
    is_coloured: bool | None = None
    keeps_colours: bool = True

    def filter(self) -> Sanitizer | ColourFilter | None:
        """Return a new filter for one stream, or None if nothing is filtered."""
        if self.is_sanitized:
            return Sanitizer(keeps_colours=self.keeps_colours)
        return None if self.keeps_colours else ColourFilter()

    def prefix(self, word: str, rank: int | None, surface: Surface) -> bytes:
        """Return `[word] ` in the colour of `rank`, None for several ranks."""
        if not (surface.is_terminal if self.is_coloured is None else self.is_coloured):
            return f"[{word}] ".encode("utf-8", "backslashreplace")
        colour = _MANY if rank is None else PALETTE[rank % len(PALETTE)]
        # 0 ends what the line before left on
        return f"\x1b[0;{colour}m[{word}]".encode("utf-8", "backslashreplace") + _RESET + b" "

    def stamp(self, time: float) -> bytes:
        """Return a line's time in UTC (RFC 3339: 2026-01-31T12:00:00.000Z), b"" where times are not shown."""
        if not self.has_times:
            return b""
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z ").encode()


@dataclass(slots=True)
class Source:
    """One stream of one rank.

    Attributes:
        owner: the key of its unfinished line on the surface.
        filter: removes control sequences.
        is_direct: nobody else writes there, and bytes pass as they come.
        file: the path, if this is a file and no rank's stream.
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
        """Take bytes; return the lines that are whole now."""
        self.time = time
        if self.rewinder is not None:
            chunk = self.rewinder.feed(chunk, self.lines.flush)
        return self.lines.feed(chunk if self.filter is None else self.filter.feed(chunk))

    @property
    def progress(self) -> bytes:
        """The newest state of an unfinished progress bar, b"" if there is none."""
        if self.rewinder is not None and self.rewinder.is_holding:
            return self.rewinder.state
        states = self.lines.half_line.split(b"\r")
        return (states[-1] or states[-2]) if len(states) > 1 else b""

    def flush(self) -> bytes:
        """Return the rest, with or without a line end."""
        rest = self.rewinder.flush() if self.rewinder is not None else b""
        if self.filter is not None:
            rest = self.filter.feed(rest) + self.filter.flush()
        return self.lines.feed(rest) + self.lines.flush()


class Painter:
    """Shows blocks of whole lines (or a tail)."""

    @property
    def held(self) -> int:
        """Bytes that wait to be shown."""
        return 0

    def paint(self, source: Source, block: bytes) -> None:
        """Show a block, at once or later."""
        raise NotImplementedError

    def settle(self) -> None:
        """Show what waits, because something else is shown after it."""


class LinePainter(Painter):
    """Shows lines after their rank's prefix, or without one."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def paint(self, source: Source, block: bytes) -> None:
        prefix = source.prefix + self._look.stamp(source.time)
        source.surface.show(source.fd, source.owner, final_states(block), prefix)


class FoldPainter(Painter):
    """Shows equal lines of several ranks once, after the set of these ranks. Needs a running loop.

    Arguments:
        place: returns the descriptor and the surface of a stream.
    """

    def __init__(self, look: Look, place: Callable[[Stream], tuple[int, Surface]]) -> None:
        self._look = look
        self._place = place
        self._folder = LineFolder()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        return self._folder.held

    def expect(self, rank_count: int) -> None:
        """Set how many ranks are shown."""
        self._folder.expect(rank_count)

    def paint(self, source: Source, block: bytes) -> None:
        now = asyncio.get_running_loop().time()
        self._folder.feed(source.rank, source.stream, split_lines(final_states(block)), source.time, now)
        self._show_ready(now)

    def settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._show(self._folder.flush())

    def _on_time(self) -> None:
        self._timer = None
        self._show_ready(asyncio.get_running_loop().time())

    def _show_ready(self, now: float) -> None:
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


class JsonPainter(Painter):
    """Writes every line as one JSON object to stdout: host, rank, stream, time, text.

    `text` is the line without its end; `base64` has its bytes where they are not UTF-8. A piece of a very long line, or
    an unterminated tail, has `"partial": true`.
    """

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


def _content(line: bytes) -> dict[str, object]:
    text = line.removesuffix(b"\n")
    return as_json(text) if len(text) < len(line) else as_json(text) | {"partial": True}
