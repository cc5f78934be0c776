"""When bytes of a spool file were seen: (time, offset) marks beside it, for timestamps and `--since` later on."""

import bisect
import os
import struct
from typing import List, Optional, Tuple

MARK = struct.Struct(">dQ")  # seconds since the epoch, offset from which on bytes were seen then
INTERVAL = 0.1  # seconds; marks closer than this would tell nobody more
HOLE = -1.0  # in place of a time: what is before the offset has been given back to the disk


def path_of(spool: str) -> str:
    return spool + ".marks"


class MarkWriter:
    """Appends marks; a disk that takes no more costs timestamps, not output."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._fd: Optional[int] = None
        self._seen = 0
        self._last = 0.0

    def note(self, now: float, size: int) -> None:
        """`size` bytes are there at `now`."""
        if size > self._seen and now - self._last >= INTERVAL:
            self._append(now, self._seen)
            self._last = now
        self._seen = size

    def note_hole(self, offset: int) -> bool:
        """What is before the offset goes; False when that could not be noted."""
        return self._append(HOLE, offset)

    def _append(self, now: float, offset: int) -> bool:
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(path_of(self._spool), flags, 0o600)
            return os.write(self._fd, MARK.pack(now, offset)) == MARK.size
        except OSError:
            return False  # a full disk: the trainers' bytes matter more

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


class Marks:
    """The marks of one spool, read back."""

    def __init__(self, spool: str) -> None:
        self._path = path_of(spool)
        self.hole = 0
        self._times: List[float] = []
        self._offsets: List[int] = []
        self._position = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the marks that came since the last look."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                content = file.read()
        except OSError:
            return  # nothing was written yet
        whole = len(content) // MARK.size * MARK.size
        self._position += whole
        for start in range(0, whole, MARK.size):
            when, offset = MARK.unpack_from(content, start)
            if when == HOLE:
                self.hole = max(self.hole, offset)
            else:
                self._times.append(when)
                self._offsets.append(offset)

    def at(self, offset: int) -> Tuple[float, Optional[int]]:
        """When the byte at `offset` was seen (0.0: nobody knows), and where the next mark is."""
        index = bisect.bisect_right(self._offsets, offset)
        following = self._offsets[index] if index < len(self._offsets) else None
        return (self._times[index - 1] if index else 0.0), following

    def since(self, when: float) -> Optional[int]:
        """The offset of the first byte that was seen at `when` or later; None when all came before."""
        index = bisect.bisect_left(self._times, when)
        return self._offsets[index] if index < len(self._offsets) else None
