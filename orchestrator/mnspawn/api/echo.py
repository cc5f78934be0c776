"""Shows workers' output on the standard streams of a Python program, be they real or a notebook's."""

import io
import sys
from collections.abc import Callable
from typing import TextIO

from mnspawn.engine.request import Listener
from mnspawn.events import Event, OutputLost, Stream, WorkerExited, WorkerOutput
from mnspawn.output.lines import LineAssembler, prefix_lines
from mnspawn.output.sinks import ConsoleSink, OutputMode


def listener_of(mode: str) -> Listener | None:
    """Whoever shows output in this mode: prefix, plain, ...; None for none."""
    if mode == "none":
        return None
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    stdout, stderr = _descriptor(sys.stdout), _descriptor(sys.stderr)
    if stdout is not None and stderr is not None:
        return ConsoleSink(OutputMode(mode), stdout=stdout, stderr=stderr)
    return StreamEcho(sys.stdout, sys.stderr, is_prefixed=mode != "plain")


def _descriptor(stream: object) -> int | None:
    """A real stream's descriptor. What notebooks and test runners put in its place goes elsewhere, whatever it says."""
    if type(stream) is not io.TextIOWrapper:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


class StreamEcho:
    """Writes whole lines to Python's own streams. They are memory or a notebook's socket and do not block."""

    backlog = 0

    def __init__(self, stdout: TextIO | None, stderr: TextIO | None, *, is_prefixed: bool) -> None:
        self._streams = {Stream.STDOUT: stdout, Stream.STDERR: stderr}
        self._is_prefixed = is_prefixed
        self._lines: dict[tuple[int, Stream], tuple[LineAssembler, bytes]] = {}

    def bind(self, wake: Callable[[], None]) -> None:
        """Nothing is ever held back here."""

    def on_event(self, event: Event) -> None:
        match event:
            case WorkerOutput(host=host, rank=rank, stream=stream, chunk=chunk) if stream is not Stream.RESULT:
                prefix = f"[{host}:{rank}] ".encode() if self._is_prefixed else b""
                lines, _ = self._lines.setdefault((rank, stream), (LineAssembler(), prefix))
                self._write(stream, lines.feed(chunk), prefix)
            case WorkerExited(rank=rank) | OutputLost(rank=rank):
                self._flush(rank)
            case _:
                pass

    async def aclose(self) -> None:
        for rank in {rank for rank, _ in self._lines}:
            self._flush(rank)

    def _flush(self, rank: int) -> None:
        for stream in (Stream.STDOUT, Stream.STDERR):
            lines, prefix = self._lines.pop((rank, stream), (None, b""))
            if lines is not None:
                self._write(stream, lines.flush(), prefix)

    def _write(self, stream: Stream, block: bytes, prefix: bytes) -> None:
        target = self._streams[stream]
        if not block or target is None:
            return
        text = prefix_lines(block, prefix).decode("utf-8", "replace")
        try:
            try:
                target.write(text)
            except UnicodeEncodeError:
                encoding = getattr(target, "encoding", None) or "ascii"
                target.write(text.encode(encoding, "backslashreplace").decode(encoding))
            target.flush()
        except (OSError, ValueError):
            self._streams[stream] = None  # closed under us: what comes is for nobody
