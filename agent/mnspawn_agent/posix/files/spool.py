"""Follows the files that workers write their output to: which have more, and the next bytes from an offset."""

import os
import time
from collections import OrderedDict
from typing import Callable, Dict, FrozenSet, List, Optional, Tuple

from .. import libc
from .marks import MarkWriter

STDOUT = 1
STDERR = 2
RESULT = 3
STREAMS = ((STDOUT, "out"), (STDERR, "err"), (RESULT, "result"))  # and what ends the names of their files
IN_Q_OVERFLOW = 0x4000  # events were dropped
BLOCK = 4096  # holes are made of whole blocks
FAR = 1 << 30  # bytes after a file's end: a hole there tests whether holes are possible and takes nothing away
CAP_STEP = 1 << 20  # bytes over the cap before the next hole
POLL_INTERVAL = 0.05  # where inotify is not to be had
TAIL_BYTES = 16384
LINES_BLOCK = 65536  # bytes that are read at once when lines are counted from the end
TAIL_LINES = 20


class Spool:
    """One stream of one rank. Offsets count from the worker's first byte, also when a file was cut short.

    Args:
        cap: bytes that stay on the disk; older ones are given back to it (holes), offsets unchanged.
        marks: where to note when bytes were seen; None for readers.
    """

    def __init__(
        self, rank: int, stream: int, path: str, cap: Optional[int] = None, marks: Optional[MarkWriter] = None
    ) -> None:
        self.rank = rank
        self.stream = stream
        self.path = path
        self._cap = cap
        self._marks = marks
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.offset = 0  # next byte to send
        self.hole = 0  # offset before which nothing is on the disk any more
        self._has_holes: Optional[bool] = None  # this file system; known when the first is made
        self._base = 0  # offset of the file's first byte: not 0 once somebody truncated it

    @property
    def size(self) -> int:
        """Offset of the end: bytes written so far."""
        self._mind_truncation()
        return self._base + os.fstat(self.fd).st_size

    def _mind_truncation(self) -> None:
        if os.fstat(self.fd).st_size < self.offset - self._base:
            # a worker truncated its own output (`> /dev/stdout`): what comes is new. Can't be detected once it has
            # written more than it had before
            self._base = self.offset

    def note_growth(self, now: float) -> None:
        """Remember when bytes were seen, and keep within the cap. `now` is wall-clock seconds since the epoch."""
        if self._marks is None:
            return
        size = self.size
        self._marks.note(now, size)
        if self._cap is not None and size - self.hole > self._cap + CAP_STEP and not self._base:
            self._make_hole(self._marks, size, (size - self._cap) // BLOCK * BLOCK)

    def _make_hole(self, marks: MarkWriter, size: int, hole: int) -> None:
        if self._has_holes is None:
            self._has_holes = libc.punch_hole(self.path, size + FAR, BLOCK)
        if self._has_holes:
            is_noted = marks.note_hole(hole)  # before it exists: readers of zeros must find out that they are none
            if libc.punch_hole(self.path, self.hole, hole - self.hole):
                self.hole = hole
                if not is_noted:  # the disk was full, and is not any more
                    marks.note_hole(hole)

    def read(self, count: int) -> bytes:
        """The next bytes, b"" when there are no more for now; what the cap took is skipped."""
        self.offset = max(self.offset, self.hole)
        self._mind_truncation()
        chunk = os.pread(self.fd, count, self.offset - self._base)
        self.offset += len(chunk)
        return chunk

    def rewind(self, offset: int) -> int:
        """Go back to the controller's offset; returns how many bytes from there are gone."""
        self._mind_truncation()
        start = max(offset, self._base, self.hole)
        self.offset = min(start, self.size)
        return max(0, start - offset)

    def close(self) -> None:
        os.close(self.fd)
        if self._marks is not None:
            self._marks.close()


class Spools:
    """All streams of a pod, and which of them may have more to read."""

    def __init__(self) -> None:
        self._all: Dict[Tuple[int, int], Spool] = {}
        self._queue: "OrderedDict[Spool, None]" = OrderedDict()
        self._watches: Dict[int, Spool] = {}
        self.muted: FrozenSet[int] = frozenset()  # streams that the controller no longer reads
        self.inotify: Optional[int] = None
        try:
            self.inotify = libc.inotify_open()
        except OSError:
            pass  # polling does it: see poll_interval

    @property
    def poll_interval(self) -> Optional[float]:
        """Seconds between looks at the files; None where inotify reports growth."""
        return POLL_INTERVAL if self.inotify is None and self._all else None

    def add(self, spool: Spool) -> None:
        self._all[spool.rank, spool.stream] = spool
        if self.inotify is not None:
            try:
                self._watches[libc.inotify_watch(self.inotify, spool.path)] = spool
            except OSError:  # out of watches (fs.inotify.max_user_watches)
                os.close(self.inotify)
                self.inotify = None
                self._watches.clear()
        self.queue(spool)

    def queue(self, spool: Spool) -> None:
        self._queue.setdefault(spool)

    def queue_all(self) -> None:
        now = time.time()
        for spool in self._all.values():
            self.queue(spool)
            spool.note_growth(now)

    def read_inotify(self) -> None:
        """Mark the spools that inotify speaks of."""
        now = time.time()
        assert self.inotify is not None
        try:
            events = os.read(self.inotify, 65536)
        except BlockingIOError:
            return
        position = 0
        while position + 16 <= len(events):
            watch = int.from_bytes(events[position : position + 4], "little")
            mask = int.from_bytes(events[position + 4 : position + 8], "little")
            position += 16 + int.from_bytes(events[position + 12 : position + 16], "little")
            if mask & IN_Q_OVERFLOW:
                self.queue_all()
            elif watch in self._watches:
                self.queue(self._watches[watch])
                self._watches[watch].note_growth(now)

    @property
    def has_more(self) -> bool:
        return bool(self._queue)

    def can_go(self, allowance: Callable[[int], int]) -> bool:
        """Whether a stream that may have more is allowed to."""
        return any(allowance(spool.stream) for spool in self._queue)

    def next_chunk(self, most: int, allowance: Callable[[int], int]) -> Optional[Tuple[Spool, int, bytes]]:
        """(spool, offset, bytes) of the next stream in turn, None when all that are allowed to go are read for now.

        Args:
            allowance: how many bytes of a stream may go.
        """
        for _ in range(len(self._queue)):
            spool, _ = self._queue.popitem(last=False)
            if spool.stream in self.muted:
                continue
            count = min(most, allowance(spool.stream))
            chunk = spool.read(count) if count else b""
            if chunk or not count:
                self.queue(spool)  # to the back: ranks take turns
            if chunk:
                return spool, spool.offset - len(chunk), chunk
        return None

    def of(self, rank: int) -> List[Spool]:
        return [self._all[rank, stream] for stream, _ in STREAMS if (rank, stream) in self._all]

    @property
    def has_unread(self) -> bool:
        return any(spool.offset < spool.size for spool in self._all.values())

    def sizes(self) -> List[List[int]]:
        return [[spool.rank, spool.stream, spool.size] for spool in self._all.values()]

    def leave(self, rank: Optional[int] = None) -> List[Tuple[Spool, int, int]]:
        """Skip what muted streams hold; returns (spool, offset, count) of what stays in its file."""
        left = []
        for spool in self._all.values() if rank is None else self.of(rank):
            if spool.stream in self.muted:
                count = spool.size - spool.offset
                if count > 0:
                    left.append((spool, spool.offset, count))
                    spool.offset += count
        return left

    def rewind_all(self, offsets: Dict[Tuple[int, int], int]) -> List[Tuple[Spool, int, int]]:
        """Take every stream back to what the controller has; returns (spool, offset, count) of bytes that are gone."""
        gone = []
        for key, spool in self._all.items():
            offset = offsets.get(key, 0)
            missing = spool.rewind(offset)
            if missing:
                gone.append((spool, offset, missing))
        self.queue_all()
        return gone

    def close(self) -> None:
        for spool in self._all.values():
            spool.close()
        if self.inotify is not None:
            os.close(self.inotify)


def tail_of(path: str) -> List[str]:
    """Return the last lines of a file as text that JSON can hold; [] where a worker removed it."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    if size > TAIL_BYTES:
        lines = lines[1:] or lines
    # a progress bar redraws its line with \r: only its final state counts
    finals = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "backslashreplace") for line in lines]
    while finals and not finals[-1].strip():
        finals.pop()
    return finals[-TAIL_LINES:]


def last_lines(fd: int, end: int, count: int, first: int = 0, block: int = LINES_BLOCK) -> int:
    """Where the last `count` lines of a file begin, of the bytes from `first` to `end`; one may lack its newline."""
    if not count or end <= first:
        return end
    needed = count + (os.pread(fd, 1, end - 1) == b"\n")  # newlines to pass, back to the one before the first line
    position = end
    while position > first:
        start = max(first, position - block)
        content = os.pread(fd, position - start, start)
        at = len(content)
        while needed:
            at = content.rfind(b"\n", 0, at)
            if at < 0:
                break
            needed -= 1
        if not needed:
            return start + at + 1
        position = start
    return first
