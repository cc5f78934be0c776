"""Keeps what ranks send back until it is asked for: in memory up to a limit, then in one unnamed file."""

import io
import tempfile
import threading
from collections import defaultdict
from typing import IO

IN_MEMORY = 16 << 20  # bytes of all ranks together


class Spill:
    """Bytes per rank, appended in any order. Safe to use from several threads."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._limit = in_memory
        self._lock = threading.Lock()
        self._blocks: defaultdict[int, list[bytes | tuple[int, int]]] = defaultdict(list)
        self._held = 0
        self._file: IO[bytes] | None = None
        self._end = 0

    def append(self, rank: int, chunk: bytes) -> None:
        """Raises OSError: no space is left on the disk."""
        with self._lock:
            if self._held + len(chunk) <= self._limit:
                self._held += len(chunk)
                self._blocks[rank].append(chunk)
                return
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="mnspawn-", buffering=0)  # noqa: SIM115 - see close
            self._file.seek(self._end)
            view = memoryview(chunk)
            while view:
                view = view[self._file.write(view) :]
            self._blocks[rank].append((self._end, len(chunk)))
            self._end += len(chunk)

    def drop(self, rank: int) -> None:
        """Forget a rank's bytes; the file is closed when it holds no others."""
        with self._lock:
            self._held -= sum(len(block) for block in self._blocks.pop(rank, []) if isinstance(block, bytes))
            if not any(isinstance(block, tuple) for blocks in self._blocks.values() for block in blocks):
                self._close_file()

    def open(self, rank: int) -> IO[bytes]:
        """Return a rank's bytes as a file to read once."""
        return io.BufferedReader(_Blocks(self, list(self._blocks.get(rank, ()))), 1 << 18)

    def read_at(self, offset: int, into: memoryview) -> int:
        with self._lock:
            assert self._file is not None
            self._file.seek(offset)
            return self._file.readinto(into)  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        """Forget everything and close the file."""
        with self._lock:
            self._blocks.clear()
            self._held = 0
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._end = 0


class _Blocks(io.RawIOBase):
    """One rank's blocks in order."""

    def __init__(self, spill: Spill, blocks: list[bytes | tuple[int, int]]) -> None:
        self._spill = spill
        self._blocks = blocks
        self._index = 0
        self._read = 0  # of the block at the index

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while self._index < len(self._blocks):
            block = self._blocks[self._index]
            size = len(block) if isinstance(block, bytes) else block[1]
            count = min(len(buffer), size - self._read)
            if count:
                if isinstance(block, bytes):
                    buffer[:count] = block[self._read : self._read + count]
                else:
                    count = self._spill.read_at(block[0] + self._read, memoryview(buffer)[:count])
                self._read += count
                return count
            self._index += 1
            self._read = 0
        return 0
