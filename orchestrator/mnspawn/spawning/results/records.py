"""Reads records, as worker_main.py writes them, from a rank's result stream in chunks of any size. Pure."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

HEAD = struct.Struct(">cI")
MAX_BODY = 64 << 20  # bytes, such as a traceback's text; pieces of pickles pass through without a limit
KINDS = frozenset((b"D", b"R", b"N", b"E", b"X", b"C"))


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a pickle."""

    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned; the pieces so far are its result if `has_result`."""

    has_result: bool


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised; the pieces so far are the chain of exceptions if `is_pickled`."""

    type_name: str
    text: str
    traceback: str
    is_pickled: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """The function raised SystemExit."""

    status: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """The pieces so far are to be dropped."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Something else has written to the stream, or bytes are missing; nothing after this counts."""

    reason: str


Record = Piece | Returned | Raised | Exited | Discarded | Damaged


class Reader:
    """Turns bytes into records, and passes pieces on as soon as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._kind = b""
        self._left = 0  # of the record's body
        self._is_damaged = False

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """Yield the records that `chunk` completes."""
        position = 0
        while not self._is_damaged:
            if not self._kind:
                take = HEAD.size - len(self._buffer)
                self._buffer += chunk[position : position + take]
                position += take
                if len(self._buffer) < HEAD.size:
                    return
                self._kind, self._left = HEAD.unpack(self._buffer)
                self._buffer.clear()
                if self._kind not in KINDS or (self._kind != b"D" and self._left > MAX_BODY):
                    yield self.break_off("what the worker wrote is no record")
                    return
            body = chunk[position : position + self._left]
            position += len(body)
            self._left -= len(body)
            if self._kind == b"D":
                if body:
                    yield Piece(body)
            else:
                self._buffer += body
            if self._left:
                return
            if self._kind != b"D":
                yield self._finish()
            self._kind = b""

    def break_off(self, reason: str) -> Damaged:
        """Ignore everything that follows."""
        self._is_damaged = True
        return Damaged(reason)

    def _finish(self) -> Record:
        kind, body = self._kind, bytes(self._buffer)
        self._buffer.clear()
        try:
            fields: Any = json.loads(body) if body else {}
            match kind:
                case b"R":
                    return Returned(True)
                case b"N":
                    return Returned(False)
                case b"C":
                    return Discarded()
                case b"X":
                    return Exited(int(fields["status"]))
                case _:
                    return Raised(
                        str(fields["type"]), str(fields["text"]), str(fields["traceback"]), bool(fields["is_pickled"])
                    )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as exc:
            return self.break_off(f"a record can't be read: {exc}")
