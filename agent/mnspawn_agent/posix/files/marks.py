"""When bytes of a spool file were seen: (time, offset) marks beside it, for timestamps and `--since` later on.

Their file has a bound, however long the run: when it is full, it is written anew with the old marks further apart.
"""

import bisect
import os
import struct
from typing import List, Optional, Tuple

Mark = Tuple[float, int]
MARK = struct.Struct(">dQ")  # seconds since the epoch, offset from which on bytes were seen then
INTERVAL = 0.1  # seconds; closer marks would be of no use
HOLE = -1.0  # in place of a time: what is before the offset has been given back to the disk
THINNED = -2.0  # in place of the first time: how often the file was written anew, in place of the offset
MOST = 32768  # marks in a file: 512 KiB, twice what ten years of steady output need
FINENESS = 1000.0  # an old mark stands for the next thousandth of its age
RETRY = 60.0  # seconds after the file could not be written anew


def path_of(spool: str) -> str:
    return spool + ".marks"


def thin(marks: List[Mark], now: float, hole: int) -> List[Mark]:
    """At most half of MOST of the marks: fine ones of late, coarser ones of before, none of what is gone."""
    first = max(0, bisect.bisect_right([offset for _, offset in marks], hole) - 1)
    kept: List[Mark] = []
    for when, offset in marks[first:]:
        if not kept or abs(when - kept[-1][0]) >= max(INTERVAL, (now - when) / FINENESS):
            kept.append((when, offset))
    while len(kept) > MOST // 2:  # by a clock that is set again and again
        del kept[1::2]
    return kept


class MarkWriter:
    """Appends marks; a disk that takes no more costs timestamps, not output."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._fd: Optional[int] = None
        self._count = 0
        self._seen = 0
        self._last = 0.0

    def note(self, now: float, size: int) -> None:
        """`size` bytes are there at `now`."""
        if size > self._seen and now - self._last >= INTERVAL:
            if self._count < MOST or self._thin_out(now):
                self._append(now, self._seen)
                self._last = now
            else:
                self._last = now + RETRY
        self._seen = size

    def note_hole(self, offset: int) -> bool:
        """What is before the offset goes; False when that could not be noted."""
        return self._append(HOLE, offset)

    def _append(self, now: float, offset: int) -> bool:
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(path_of(self._spool), flags, 0o600)
            written = os.write(self._fd, MARK.pack(now, offset))
            if written < MARK.size:  # what follows must stand where marks begin
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                return False
            self._count += 1
            return True
        except OSError:
            return False  # a full disk: the workers' bytes matter more

    def _thin_out(self, now: float) -> bool:
        """Put a shorter file in the place of this one; False when the disk takes none."""
        path = path_of(self._spool)
        temporary = path + ".tmp"
        before = Marks(self._spool)
        content = [MARK.pack(THINNED, before.generation + 1), MARK.pack(HOLE, before.hole)]
        content += [MARK.pack(when, offset) for when, offset in thin(before.all(), now, before.hole)]
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(b"".join(content))
            os.replace(temporary, path)
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass  # it could not even be made
            return False
        self.close()
        self._count = len(content)
        return True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Marks:
    """The marks of one spool, read back."""

    def __init__(self, spool: str) -> None:
        self._path = path_of(spool)
        self.hole = 0
        self.generation = 0  # of the file: how often it was written anew
        self._times: List[float] = []
        self._offsets: List[int] = []
        self._position = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the marks that came since the last look, or all when the file is another one."""
        try:
            with open(self._path, "rb") as file:
                self._mind_another_file(file.read(MARK.size))
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
            elif when != THINNED:
                self._times.append(when)
                self._offsets.append(offset)

    def _mind_another_file(self, start: bytes) -> None:
        when, number = MARK.unpack(start) if len(start) == MARK.size else (0.0, 0)
        generation = number if when == THINNED else 0
        if generation != self.generation:
            self.generation = generation
            self._times, self._offsets, self._position = [], [], 0

    def all(self) -> List[Mark]:
        return list(zip(self._times, self._offsets))

    def at(self, offset: int) -> Tuple[float, Optional[int]]:
        """When the byte at `offset` was seen (0.0: unknown), and the next mark's offset."""
        index = bisect.bisect_right(self._offsets, offset)
        following = self._offsets[index] if index < len(self._offsets) else None
        return (self._times[index - 1] if index else 0.0), following

    def since(self, when: float) -> Optional[int]:
        """The offset of the first byte that was seen at `when` or later; None when all came before.

        Where marks were thinned out it is of a byte that came a little before, so that none is missing.
        """
        index = bisect.bisect_left(self._times, when)
        if index and self.generation:
            before = self._times[index - 1]
            if before + (self._times[-1] - before) / FINENESS > when:
                index -= 1
        return self._offsets[index] if index < len(self._offsets) else None
