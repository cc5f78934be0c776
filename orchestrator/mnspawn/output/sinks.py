"""The console: a listener that shows events and output, and never blocks the loop's thread."""

import os
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from itertools import product
from typing import Protocol

from mnspawn.events import (
    Event,
    HostLost,
    OutputLost,
    RunFinished,
    RunStarting,
    Stream,
    WorkerExited,
    WorkerOutput,
    WorkerStarted,
)

from .lines import LineAssembler
from .painters import FoldPainter, JsonPainter, LinePainter, Look, Painter, Source
from .rewind import Rewinder
from .surface import ERASE, Surface, is_same_file
from .writer import ThreadedWriter, reason_of, wait_written

OURS = "mnspawn"  # the owner of mnspawn's own lines


class OutputMode(Enum):
    """How workers' output looks on the console."""

    PREFIX = "prefix"  # [host:rank] in front of every line
    PLAIN = "plain"  # the lines alone
    FOLD = "fold"  # [ranks] before a line that these ranks have in common
    JSON = "json"  # one object a line, also for stderr, on stdout
    NONE = "none"


class Wording(Protocol):
    """Turns events into text; the console decides where and when it appears."""

    def line(self, event: Event) -> str | None:
        """Return a line of mnspawn's own, without its end, or None."""
        ...

    def live(self, event: Event) -> str | None:
        """Return what a terminal's live line shows from now on: "" for nothing, None for no change."""
        ...


class ConsoleSink:
    """Shows workers' stdout on stdout, and their stderr and mnspawn's own lines on stderr; every line whole.

    Arguments:
        mode: how output looks. In `plain`, the bytes of a run's only shown rank pass unchanged and at once.
        ranks: show only these; None for all. Other listeners get all ranks.
        look: times, colours and filters.
        wording: the text of mnspawn's own lines; None for workers' output only.
        stdout, stderr: descriptors to write to.

    An unfinished line waits for its end, at the latest until its worker exits. On a terminal, the live line shows the
    newest state of a progress bar (text after a b"\\r") meanwhile, and only the final state remains. Memory is bounded
    by LINE_LIMIT a stream, and by whoever heeds `backlog`. When a reader goes away, its output is dropped and the run
    goes on.
    """

    def __init__(
        self,
        mode: OutputMode = OutputMode.PREFIX,
        *,
        ranks: Sequence[range] | None = None,
        look: Look = Look(),  # noqa: B008 - frozen
        wording: Wording | None = None,
        stdout: int = 1,
        stderr: int = 2,
    ) -> None:
        self._mode = mode
        self._ranks = ranks
        self._look = look
        self._wording = wording
        self._fds = {Stream.STDOUT: stdout, Stream.STDERR: stderr}
        self._err = Surface(ThreadedWriter("console stderr", self._on_failure), is_terminal=os.isatty(stderr))
        self._out = self._err
        if not is_same_file(stdout, stderr):
            self._out = Surface(ThreadedWriter("console stdout", self._on_failure), is_terminal=os.isatty(stdout))
        self._surfaces = {stdout: self._out, stderr: self._err}
        self._painter = self._make_painter()
        self._sources: dict[tuple[int, Stream], Source] = {}
        self._hosts: dict[int, str] = {}
        self._labels: dict[int, tuple[str, str | None]] = {}
        self._is_alone = False

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet written."""
        out = 0 if self._out is self._err else self._out.writer.backlog
        return out + self._err.writer.backlog + self._painter.held

    @property
    def wanted_streams(self) -> frozenset[Stream]:
        """Streams that somebody may still read here."""
        if self._mode is OutputMode.NONE:
            return frozenset()
        places = {stream: self._place(stream) for stream in self._fds}
        return frozenset(stream for stream, (fd, surface) in places.items() if not surface.writer.is_broken(fd))

    def bind(self, wake: Callable[[], None]) -> None:
        """Call `wake` from a writing thread whenever the backlog has fallen."""
        for surface in self._surfaces.values():
            surface.writer.bind(wake)

    def on_event(self, event: Event) -> None:
        """Show an event, or note what it says of ranks."""
        match event:
            case WorkerOutput():
                self._on_output(event)
                return
            case RunStarting():
                self.expect(event.world_size)
            case WorkerStarted():
                self._hosts[event.rank] = event.host
            case WorkerExited() | OutputLost():
                self._flush([event.rank])
            case HostLost():
                self._flush([rank for rank, host in self._hosts.items() if host == event.host])
            case RunFinished():
                self._flush(self._hosts)
                self._painter.settle()
        if self._wording is not None:
            self._say(self._wording.line(event))
            live = self._wording.live(event)
            if live is not None:
                self.show_live(live)

    def label(self, rank: int, label: str, file: str | None = None) -> None:
        """Show a rank as `[label]`; in JSON, as the file."""
        self._labels[rank] = label, file

    def expect(self, world_size: int, shown: int | None = None) -> None:
        """Set how many ranks the run has, as RunStarting does, and how many have output here; None: by `ranks`."""
        spans = [range(world_size)] if self._ranks is None else self._ranks
        if shown is None:
            shown = sum(len(range(span.start, min(span.stop, world_size))) for span in spans)
        self._is_alone = shown == 1
        if isinstance(self._painter, FoldPainter):
            self._painter.expect(shown)
        if any(span.stop > world_size for span in spans):
            self._say(f"mnspawn: --ranks: the highest rank of this run is {world_size - 1}")

    @property
    def _ends_lines(self) -> bool:
        """Whether an unterminated tail gets a line end even if nobody writes after it."""
        return self._mode in (OutputMode.PREFIX, OutputMode.FOLD)

    def show_live(self, text: str) -> None:
        """On a terminal, show this as the live line until it changes."""
        self._err.show_live(self._fds[Stream.STDERR], OURS, text)

    def note(self, line: str) -> None:
        """Write a log line to stderr from any thread. It may break into an unfinished line."""
        erase = ERASE if self._err.is_terminal else b""  # a live line comes back by itself
        self._err.writer.put(self._fds[Stream.STDERR], erase + line.encode("utf-8", "backslashreplace") + b"\n")

    async def aclose(self) -> None:
        """Show unterminated tails, remove the live line, and wait until everything is written."""
        self._flush(dict.fromkeys(rank for rank, _ in self._sources))
        self._painter.settle()
        for fd, surface in self._surfaces.items():
            if self._ends_lines or surface.is_terminal:
                surface.close_line()
            surface.show_live(fd, OURS, "")
        for surface in self._surfaces.values():  # closing a shared one twice is harmless
            await wait_written(surface.writer)

    def _on_output(self, event: WorkerOutput) -> None:
        if self._mode is OutputMode.NONE or event.stream is Stream.RESULT:
            return
        source = self._sources.get((event.rank, event.stream))
        if source is None:
            if self._ranks is not None and not any(event.rank in span for span in self._ranks):
                return
            source = self._open_source(event)
        if source.is_direct:
            chunk = event.chunk if source.filter is None else source.filter.feed(event.chunk)
            source.surface.show(source.fd, source.owner, chunk)
            return
        block = source.feed(event.chunk, event.time)
        has_moved = bool(block) or b"\r" in event.chunk or b"\x1b" in event.chunk
        if source.surface.is_terminal and self._mode is not OutputMode.JSON and has_moved:
            self._show_progress(source)
        if block:
            self._painter.paint(source, block)

    def _open_source(self, event: WorkerOutput) -> Source:
        self._hosts[event.rank] = event.host
        is_direct = self._is_alone and self._mode is OutputMode.PLAIN and not self._look.has_times
        fd, surface = self._place(event.stream)
        source = Source(
            host=event.host,
            rank=event.rank,
            stream=event.stream,
            fd=fd,
            surface=surface,
            owner=(event.rank, None if is_direct else event.stream),
            prefix=self._prefix(event.host, event.rank, surface),
            filter=self._look.filter(),
            is_direct=is_direct,
            file=self._labels[event.rank][1] if event.rank in self._labels else None,
            lines=LineAssembler(keeps_states=self._mode is OutputMode.JSON),
            rewinder=None if is_direct or self._mode is OutputMode.JSON else Rewinder(),
        )
        self._sources[event.rank, event.stream] = source
        return source

    def _prefix(self, host: str, rank: int, surface: Surface) -> bytes:
        if self._mode is OutputMode.PREFIX:
            label = self._labels[rank][0] if rank in self._labels else f"{host}:{rank}"
            return self._look.prefix(label, rank, surface)
        return self._look.prefix(str(rank), rank, surface) if self._mode is OutputMode.FOLD else b""

    def _place(self, stream: Stream) -> tuple[int, Surface]:
        """Return the descriptor and the surface on which a stream is shown."""
        fd = self._fds[Stream.STDOUT if self._mode is OutputMode.JSON else stream]
        return fd, self._surfaces[fd]

    def _make_painter(self) -> Painter:
        if self._mode is OutputMode.FOLD:
            return FoldPainter(self._look, self._place)
        return JsonPainter(*self._place(Stream.STDOUT)) if self._mode is OutputMode.JSON else LinePainter(self._look)

    def _show_progress(self, source: Source) -> None:
        state = source.progress
        text = (source.prefix + state).decode("utf-8", "replace") if state else ""
        source.surface.show_live(source.fd, source.owner, text)

    def _flush(self, ranks: Collection[int]) -> None:
        for source in [self._sources[key] for key in product(ranks, Stream) if key in self._sources]:
            source.surface.show_live(source.fd, source.owner, "")
            if rest := source.flush():
                self._painter.paint(source, rest)
            if self._ends_lines or source.surface.is_terminal:
                source.surface.close_line_of(source.owner)

    def _say(self, line: str | None) -> None:
        if line is not None:
            self._painter.settle()
            self._err.show(self._fds[Stream.STDERR], OURS, line.encode("utf-8", "backslashreplace") + b"\n")

    def _on_failure(self, fd: int, exc: Exception) -> None:
        """Report a full disk or the like where it can still be read. Called from a writing thread."""
        if fd != self._fds[Stream.STDERR]:
            self.note(f"mnspawn: standard output: {reason_of(exc)}: no more output is written there")
