"""Whole lines out of chunks of bytes, one assembler a stream. Pure: decodes nothing, keeps no clock.

Only b"\\n" ends a line. A b"\\r" (progress bars, CRLF), NUL and bytes that are no UTF-8 are part of the line they
stand in and pass unchanged. Work is done on whole chunks, never line by line: hundreds of megabytes a second.
"""

LINE_LIMIT = 1 << 20  # a longer line passes in pieces; of what programs print whole, even JSON dumps are shorter


class LineAssembler:
    """Takes the chunks of one stream and gives blocks that end where a line ends.

    The blocks, joined, are the chunks, joined. A block that doesn't end in b"\\n" ends in a piece of a line longer than
    the limit or is, from `flush`, a tail that was never ended.

    Arguments:
        keeps_states: False where only `final_states` will be shown: then a progress bar never grows to the limit, as
            what its b"\\r" has superseded is forgotten there.
    """

    __slots__ = ("_keeps_states", "_limit", "_parts", "_pending")

    def __init__(self, limit: int = LINE_LIMIT, *, keeps_states: bool = True) -> None:
        self._limit = limit
        self._keeps_states = keeps_states
        self._parts: list[bytes] = []  # of a line whose end has not come; joined once, so that 1-byte chunks stay cheap
        self._pending = 0

    @property
    def pending(self) -> int:
        """How many bytes of a half line are held."""
        return self._pending

    @property
    def half_line(self) -> bytes:
        """The held bytes themselves: a progress bar's state, for a terminal's live line."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; give everything up to the last line end seen, b"" when there is none yet."""
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
        """The stream is over: give the unterminated tail as it is."""
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
    """Put `prefix` in front of every line of a block; not of the first when that goes on a line that has it."""
    if not block or not prefix:
        return block
    body = block.replace(b"\n", b"\n" + prefix)
    if not block.endswith(b"\n"):
        return body if is_continued else prefix + body
    whole = memoryview(body)[: -len(prefix)]  # what stands behind the last end belongs to a line that isn't here
    return bytes(whole) if is_continued else b"".join((prefix, whole))


def final_states(block: bytes) -> bytes:
    """Of every line what its last lone b"\\r" leaves on a terminal: a progress bar's final state. CRLF stays."""
    if b"\r" not in block:
        return block
    return b"\n".join(
        line[line.rstrip(b"\r").rfind(b"\r") + 1 :] if b"\r" in line else line for line in block.split(b"\n")
    )


def split_lines(block: bytes) -> list[bytes]:
    """The lines of a block, each with its end; the last one may have none."""
    *whole, rest = block.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, rest] if rest else lines
