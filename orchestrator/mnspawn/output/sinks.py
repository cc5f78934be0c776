"""The console: a listener that takes events in the loop's thread and never blocks it."""

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

OURS = "mnspawn"  # who owns our own lines


class OutputMode(Enum):
    """How workers' output looks on the console."""

    PREFIX = "prefix"  # [host:rank] in front of every line
    PLAIN = "plain"  # the lines alone
    FOLD = "fold"  # equal lines of many ranks once, behind [ranks]
    JSON = "json"  # an object a line, stderr's too on stdout
    NONE = "none"


class Wording(Protocol):
    """Puts events into words; the console only decides where and when they appear."""

    def line(self, event: Event) -> str | None:
        """A line of ours for people, without its end, or None."""
        ...

    def live(self, event: Event) -> str | None:
        """What a terminal's live line says from now on: "" for nothing, None for no change."""
        ...


class Silence:
    """Wording for those who want workers' output only."""

    def line(self, event: Event) -> str | None:
        return None

    def live(self, event: Event) -> str | None:
        return None


class ConsoleSink:
    """Workers' stdout on our stdout, their stderr on our stderr, our own lines on stderr; every line whole.

    Arguments:
        mode: how output looks. In `plain`, the bytes of a run's only shown rank pass unchanged and at once.
        ranks: show these only; None for all. What is not shown here is not lost elsewhere.
        look: times, colours, and what is filtered.
        wording: what our own lines say.
        stdout, stderr: descriptors to write to.

    A half line waits for its end and is shown when its worker exits; on a terminal the newest state of a progress bar
    (text behind a b"\\r") is the live line meanwhile, and what remains of it is its final state. Memory is bounded by
    `backlog` being heeded and by LINE_LIMIT a stream. When a reader goes away the output for it is dropped and the run
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
        self._wording: Wording = wording or Silence()
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
        places = {
            stream: self._place(Stream.STDOUT if self._mode is OutputMode.JSON else stream) for stream in self._fds
        }
        return frozenset(stream for stream, (fd, surface) in places.items() if not surface.writer.is_broken(fd))

    def bind(self, wake: Callable[[], None]) -> None:
        """`wake` is called from a writing thread when the backlog falls."""
        for surface in self._surfaces.values():
            surface.writer.bind(wake)

    def on_event(self, event: Event) -> None:
        """Show what is to be seen of an event."""
        match event:
            case WorkerOutput():
                self._on_output(event)
                return
            case RunStarting():
                self.expect(event.world_size)
            case WorkerStarted():
                self._hosts[event.rank] = event.host
            case WorkerExited():
                self._flush([event.rank])
            case HostLost():
                self._flush([rank for rank, host in self._hosts.items() if host == event.host])
            case OutputLost():
                self._flush([event.rank])
            case RunFinished():
                self._flush(self._hosts)
                self._painter.settle()
        self._say(self._wording.line(event))
        live = self._wording.live(event)
        if live is not None:
            self.show_live(live)

    def label(self, rank: int, label: str, file: str | None = None) -> None:
        """Show a rank as `[label]`; in JSON it is a file."""
        self._labels[rank] = label, file

    def expect(self, world_size: int, told: int | None = None) -> None:
        """How many ranks the run has (RunStarting says it, too), and of how many we are told anything; None: all."""
        spans = [range(world_size)] if self._ranks is None else self._ranks
        shown = sum(len(range(span.start, min(span.stop, world_size))) for span in spans)
        if told is not None:
            shown = told
        self._is_alone = shown == 1
        if isinstance(self._painter, FoldPainter):
            self._painter.expect(shown)
        if any(span.stop > world_size for span in spans):
            self._say(f"mnspawn: --ranks: there are no ranks behind {world_size - 1} in this run")

    @property
    def _ends_lines(self) -> bool:
        """A tail without an end gets one, also where nobody writes behind it."""
        return self._mode in (OutputMode.PREFIX, OutputMode.FOLD)

    def show_live(self, text: str) -> None:
        """On a terminal, what the live line says until something else is to be said."""
        self._err.show_live(self._fds[Stream.STDERR], OURS, text)

    def note(self, line: str) -> None:
        """A line on stderr from any thread: what operators log. It may break into a line that stands open."""
        erase = ERASE if self._err.is_terminal else b""  # the live line, should there be one; it comes back by itself
        self._err.writer.put(self._fds[Stream.STDERR], erase + line.encode("utf-8", "backslashreplace") + b"\n")

    async def aclose(self) -> None:
        """Show the tails that were never ended, take the live line away, and wait until all is written."""
        self._flush(dict.fromkeys(rank for rank, _ in self._sources))
        self._painter.settle()
        for fd, surface in self._surfaces.items():
            if self._ends_lines or surface.is_terminal:
                surface.close_line()
            surface.show_live(fd, OURS, "")
        for surface in self._surfaces.values():  # twice the same where both are one: closing again is harmless
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
        stream = Stream.STDOUT if self._mode is OutputMode.JSON else event.stream
        fd, surface = self._place(stream)
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
        fd = self._fds[stream]
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
        """A disk is full, or the like: say so where that can still be read. Called from a writing thread."""
        if fd != self._fds[Stream.STDERR]:
            self.note(f"mnspawn: standard output: {reason_of(exc)}: output from here on is not written there")
