"""Follows files of this host for one controller: by glob, through rotation and truncation. Writes nothing.

A file is known by its path. When another file stands there (rotation), the old one is read to its end first; when it
has become shorter (truncation), it is read from its beginning.
"""

import glob
import os
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from ...protocol import messages
from ...protocol.checks import MAX_FILES
from .. import native
from ..files.spool import last_lines
from .loop import LinkServer, Wire

CHUNK = 65536
LOOK_INTERVAL = 0.1  # seconds between looks at the files; inotify would have to watch folders, too, and misses NFS
LOOK_COST = 0.001  # seconds per file that are added to it: the host has other work
GLOB_INTERVAL = 1.0  # seconds between looks for new files
STREAM = 1


def serve(link_in: int, link_out: int, argv: List[str], hello: Dict[str, Any]) -> int:
    """The mode `tail`; returns the exit status."""
    return Tailer(Wire(link_in, link_out), hello).run()


class FollowedFile:
    """One path, and the file that stands there or stood there last.

    Args:
        number: by which the controller knows it.
    """

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self.offset = 0  # bytes sent
        self.position = 0  # of the next byte in the file
        self.inode = 0
        self.fd = -1

    def open(self, start: int) -> bool:
        """Begin with the file that stands at the path now; False when there is none that can be read."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not hold us up
        except OSError:
            return False
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            return False
        self.close()
        self.fd, self.inode, self.position = fd, status.st_ino, start
        return True

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, count: int) -> bytes:
        try:
            chunk = os.pread(self.fd, count, self.position)
        except OSError:  # a failing disk, an NFS server that is gone: try again later
            return b""
        self.position += len(chunk)
        self.offset += len(chunk)
        return chunk

    def has_been_replaced(self) -> bool:
        """Whether another file is at the path now; False while there is none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        own = os.fstat(self.fd)
        return (status.st_dev, status.st_ino) != (own.st_dev, own.st_ino)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Tailer(LinkServer):
    """Serves one controller over one wire, until that is gone.

    Args:
        hello: fields of HELLO.
    """

    def __init__(self, wire: Wire, hello: Dict[str, Any]) -> None:
        super().__init__(wire, hello)
        self._wanted: Dict[str, Any] = {}  # the request, once it came
        self._resume: Dict[str, Tuple[int, int]] = {}  # by path: the inode and position that the controller has seen
        self._files: Dict[str, FollowedFile] = {}
        self._count = 0  # of files so far
        self._look_at = 0.0
        self._glob_at = 0.0
        self._is_first_glob = True
        self._has_more = False
        self._is_full = False

    def _take_request(self, message: Dict[str, Any]) -> None:
        if message["type"] == messages.TAIL and not self._wanted:
            self._wanted = message
            self._resume = {path: (inode, position) for path, inode, position in message["resume"]}

    def _fill(self, now: float) -> None:
        if not self._wanted:
            return
        if now >= self._glob_at:
            self._glob_at = now + GLOB_INTERVAL
            self._look_for_files()
        if now >= self._look_at or self._has_more:
            self._look_at = now + LOOK_INTERVAL + LOOK_COST * len(self._files)
            self._send_output()

    def _deadlines(self, now: float) -> List[Optional[float]]:
        can_go = self._has_more and self._wire.has_room and self._channel.output_allowance(STREAM) > 0
        return [self._look_at if self._wanted else None, now if can_go else None]

    def _close(self) -> None:
        for followed in self._files.values():
            followed.close()

    # -- files -----------------------------------------------------------------------------------------------------
    def _look_for_files(self) -> None:
        for pattern in native.inward(self._wanted["patterns"]):
            paths = _expand(pattern)
            if not paths and self._is_first_glob:
                self._send(messages.NOTICE, text="no file matches %s yet" % _shown(pattern))
            for path in paths:
                if path not in self._files:
                    self._follow(path)
        self._is_first_glob = False

    def _follow(self, path: str) -> None:
        if len(self._files) >= MAX_FILES and not self._drop_removed():
            if not self._is_full:
                self._is_full = True
                self._send(messages.NOTICE, text="more than %d files match; the rest is left out" % MAX_FILES)
            return
        followed = FollowedFile(self._count, path)
        if not followed.open(0):
            if self._is_first_glob and not os.path.isdir(path):
                self._send(messages.NOTICE, text="%s can't be read" % _shown(path))
            return
        self._files[path] = followed
        self._count += 1
        seen = self._resume.pop(_shown(path), None)
        if seen is not None:
            inode, position = seen
            followed.position = position if inode == followed.inode and position <= followed.size else 0
        elif self._is_first_glob:  # of one that comes later everything is new
            lines = self._wanted["lines"]
            followed.position = 0 if lines is None else last_lines(followed.fd, followed.size, lines)
        self._announce(followed)

    def _drop_removed(self) -> bool:
        """Forget files that were removed and read to their end (logs of past days); False when there are none."""
        gone = [path for path, one in self._files.items() if not os.path.lexists(path) and one.size <= one.position]
        for path in gone:
            self._files.pop(path).close()
        return bool(gone)

    def _announce(self, followed: FollowedFile) -> None:
        self._send(
            messages.FILE,
            number=followed.number,
            path=_shown(followed.path),
            inode=followed.inode,
            at=followed.position,
            offset=followed.offset,
        )

    def _send_output(self) -> None:
        """What the credit allows, a chunk of each file in turn."""
        self._has_more = False
        for followed in list(self._files.values()):
            if not self._wire.has_room or not self._channel.output_allowance(STREAM):
                self._has_more = True
                return
            chunk = followed.read(min(CHUNK, self._channel.output_allowance(STREAM)))
            if chunk:
                self._has_more = True
                offset = followed.offset - len(chunk)
                self._send_chunk(followed.number, STREAM, offset, chunk, time.time())
            else:
                self._look_at_end(followed)

    def _look_at_end(self, followed: FollowedFile) -> None:
        if followed.size < followed.position:
            followed.position = 0
            self._announce(followed)
            self._has_more = True
        elif followed.has_been_replaced() and followed.size == followed.position and followed.open(0):
            self._announce(followed)
            self._has_more = True


def _expand(pattern: str) -> List[str]:
    """The files that a pattern names, in order; relative ones start at the home, as a login shell does."""
    path = os.path.join(os.path.expanduser("~"), os.path.expanduser(pattern))
    return sorted(glob.glob(path, recursive=True))


def _shown(path: str) -> str:
    """As the controller knows a path, which also has to be printed there."""
    wire: str = native.outward(path)
    return wire.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
