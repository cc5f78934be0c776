"""Temporary folders that have an owner: whoever makes one next removes those whose owner was killed. Linux and macOS.

The owner holds a lock on a file in its folder, which the kernel takes back when it ends, however that comes.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from mnspawn_agent import ours

LOCK = "lock"
UNOWNED = 3600.0  # seconds: a folder without an owner by then gets none; it takes a moment, a sandbox a few seconds


class Folder:
    """A temporary folder of ours.

    Raises:
        OSError: it can't be made.
    """

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock: int | None = own(self.path)

    def remove(self) -> None:
        """Give it back; once is enough."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def own(folder: Path) -> int:
    """Own a folder until the descriptor that this gives is closed, or we end. Raises OSError."""
    new = folder / f"{LOCK}.new"
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: nobody can sweep there either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(new, folder / LOCK)  # never seen unlocked: who sweeps at this moment would remove us
    return fd


def sweep(prefix: str) -> None:
    """Remove our temporary folders of this prefix whose owner has ended; what is anybody else's is not touched."""
    with contextlib.suppress(OSError):  # no folder of temporary files: whoever needs one will say so
        for name in os.listdir(tempfile.gettempdir()):
            if name.startswith(prefix):
                with contextlib.suppress(OSError):  # somebody else's, or in use, or its owner just removes it
                    _sweep(os.path.join(tempfile.gettempdir(), name))


def _sweep(path: str) -> None:
    ours.secure(path)
    try:
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - os.lstat(path).st_mtime > UNOWNED:
            shutil.rmtree(path, ignore_errors=True)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)
