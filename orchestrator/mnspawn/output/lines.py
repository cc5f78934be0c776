"""Assembles chunks of bytes into whole lines, one assembler a stream. Pure: no clock, no I/O.

Only b"\\n" ends a line. A b"\\r" (progress bars, CRLF), NUL and bytes that are not UTF-8 are part of their line and
pass unchanged. Whole chunks are handled at once, never line by line: hundreds of megabytes a second.
"""

from base64 import b64encode

LINE_LIMIT = 1 << 20  # bytes; longer lines pass in pieces, and even JSON dumps are shorter


class LineAssembler:
    """Turns the chunks of one stream into blocks that end where a line ends.

    The joined blocks equal the joined chunks. A block without b"\\n" at its end ends in a piece of a line longer than
    the limit, or is the unterminated tail that `flush` returns.

    Arguments:
        keeps_states: False where only `final_states` are shown: what a b"\\r" has overwritten is then dropped at the
            limit, so that progress bars never pass in pieces.
    """

    __slots__ = ("_keeps_states", "_limit", "_parts", "_pending")

    def __init__(self, limit: int = LINE_LIMIT, *, keeps_states: bool = True) -> None:
        self._limit = limit
        self._keeps_states = keeps_states
        self._parts: list[bytes] = []  # of the unfinished line; joined once, so that 1-byte chunks stay cheap
        self._pending = 0

    @property
    def pending(self) -> int:
        """Bytes held of the unfinished line."""
        return self._pending

    @property
    def half_line(self) -> bytes:
        """The held bytes: for a progress bar, its state."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return everything up to the last line end, b"" if there is none yet."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self._parts.append(chunk)
                self._pending += len(chunk)
            return self._overflow() if self._pending > self._limit else b""
        if self._parts:
            block = b"".join((*self._parts, memoryview(chunk)[:end]))
            self._parts.clear()
        else:
            block = chunk if end == len(chunk) else chunk[:end]
        self._pending = len(chunk) - end
        if self._pending:
            self._parts.append(chunk[end:])
            if self._pending > self._limit:
                block += self._overflow()
        return block

    def flush(self) -> bytes:
        """Return the unterminated tail: the stream is over."""
        tail = b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        return tail

    def _overflow(self) -> bytes:
        held = self.flush() if self._keeps_states else final_states(self.flush())
        cut = len(held) - len(held) % self._limit
        if cut < len(held):
            self._parts.append(held[cut:])
            self._pending = len(held) - cut
        return held[:cut]


def prefix_lines(block: bytes, prefix: bytes, *, is_continued: bool = False) -> bytes:
    """Put `prefix` before every line of a block; not before the first if that continues a line that has it."""
    if not block or not prefix:
        return block
    body = block.replace(b"\n", b"\n" + prefix)
    if not block.endswith(b"\n"):
        return body if is_continued else prefix + body
    whole = memoryview(body)[: -len(prefix)]  # the prefix after the last end belongs to a line that isn't here
    return bytes(whole) if is_continued else b"".join((prefix, whole))


def final_states(block: bytes) -> bytes:
    """Reduce every line to what follows its last lone b"\\r": a progress bar's final state. CRLF stays."""
    if b"\r" not in block:
        return block
    return b"\n".join(
        line[line.rstrip(b"\r").rfind(b"\r") + 1 :] if b"\r" in line else line for line in block.split(b"\n")
    )


def split_lines(block: bytes) -> list[bytes]:
    """Return the lines of a block, each with its end; the last one may have none."""
    *whole, rest = block.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, rest] if rest else lines


def as_json(chunk: bytes) -> dict[str, object]:
    """Return bytes as JSON fields: `text`, and `base64` where they are not UTF-8 (`text` then has U+FFFD for them)."""
    try:
        return {"text": chunk.decode()}
    except UnicodeDecodeError:
        return {"text": chunk.decode("utf-8", "replace"), "base64": b64encode(chunk).decode()}
