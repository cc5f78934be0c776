"""Length-prefixed frames: bytes in, frames out. Pure: no I/O, no clock."""

import struct
from typing import Iterator, List, NamedTuple, Union

HEADER = struct.Struct(">IBI")  # length of the body, kind, sequence number
MAX_BODY = 64 << 20  # the largest is a START with all that execve takes (6 MiB), each byte as \udcXX

# kinds
CONTROL = 1  # JSON message, sequenced
BLOB = 2  # piece of a file on its way to the host, sequenced
OUTPUT = 3  # piece of a worker's stream, not sequenced: it is asked for again by its offset
BEAT = 4  # acknowledgement, heartbeat, clock and credit in one, not sequenced: only the newest counts
SYNC = 5  # first frame on a new wire of an old session, not sequenced

KINDS = frozenset((CONTROL, BLOB, OUTPUT, BEAT, SYNC))

Body = Union[bytes, memoryview]


class Frame(NamedTuple):
    """One frame; `seq` is 0 where the kind is not sequenced. The body is a view: copy what is to be kept."""

    kind: int
    seq: int
    body: Body


class FramingError(Exception):
    """What arrived is no frame of ours: somebody else wrote into the stream, or versions differ."""


def encode(kind: int, seq: int, body: Body) -> bytes:
    """One frame as bytes.

    Raises:
        ValueError: the body is larger than a peer accepts.
    """
    return b"".join((encode_header(kind, seq, len(body)), body))


def encode_header(kind: int, seq: int, size: int) -> bytes:
    """What stands before a body of `size` bytes. Raises ValueError as `encode` does."""
    if size > MAX_BODY:
        raise ValueError("frame body of %d bytes, at most %d" % (size, MAX_BODY))
    return HEADER.pack(size, kind, seq)


class Decoder:
    """Collects bytes and gives the frames that are whole. Copies only what comes in pieces, once."""

    def __init__(self) -> None:
        self._parts: List[bytes] = []  # of a frame that is not whole
        self._held = 0
        self._needed = 0  # bytes before another look is worth it

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Frames completed by `chunk`, each before what follows it is looked at.

        Raises:
            FramingError: the stream is not ours; nothing after it can be trusted.
        """
        if self._parts:
            self._parts.append(chunk)
            self._held += len(chunk)
            if self._held < self._needed:
                return
            chunk = b"".join(self._parts)
            self._parts = []
        view = memoryview(chunk)
        start, total, size = 0, len(chunk), HEADER.size
        needed = size
        while total - start >= size:
            length, kind, seq = HEADER.unpack_from(chunk, start)
            if length > MAX_BODY or kind not in KINDS:
                raise FramingError("expected a frame, found %r" % chunk[start : start + 60])
            needed = size + length
            if total - start < needed:
                break
            yield Frame(kind, seq, view[start + size : start + needed])
            start += needed
            needed = size
        if start < total:
            self._parts = [chunk[start:]]
            self._held = total - start
            self._needed = needed
