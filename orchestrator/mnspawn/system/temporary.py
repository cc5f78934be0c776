"""Temporary folders with an owner: making one removes those whose owner was killed. Linux and macOS.

The owner holds a lock on a file in its folder, which the kernel releases when the owner ends, however it ends.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn_agent import ours

LOCK = "lock"
UNOWNED = (
    3600.0  # seconds until a folder without a lock is abandoned; locking takes a moment, for a sandbox a few seconds
)


class Folder:
    """A temporary folder of ours.

    Raises:
        UsageError: as `new`.
    """

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        self.path = new(prefix)
        try:
            self._lock: int | None = own(self.path)
        except OSError as exc:
            shutil.rmtree(self.path, ignore_errors=True)
            raise _refused(exc) from exc

    def remove(self) -> None:
        """Remove it. May be called again."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def new(prefix: str) -> Path:
    """Make a temporary folder that nobody else can replace.

    Raises:
        UsageError: none can be made.
    """
    try:
        path = tempfile.mkdtemp(prefix=prefix)
        try:
            return Path(ours.secure(path))
        except OSError:
            os.rmdir(path)
            raise
    except OSError as exc:
        raise _refused(exc) from exc


def _refused(exc: OSError) -> UsageError:
    reason = exc.strerror or str(exc)
    said = reason if isinstance(exc, ours.NotOurs) or not exc.filename else f"{exc.filename}: {reason}"
    return UsageError(f"no temporary folder can be made: {said}", hint="TMPDIR names another place for it")


def own(folder: Path) -> int:
    """Own a folder until the returned descriptor is closed, or this process ends. Raises OSError."""
    new = folder / f"{LOCK}.new"
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: nobody can sweep there either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(new, folder / LOCK)  # so that it is never seen unlocked, and swept
    return fd


def sweep(prefix: str) -> None:
    """Remove our temporary folders with this prefix whose owner has ended; leave anybody else's alone."""
    with contextlib.suppress(OSError):  # there is no temporary folder: making one will report it
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
