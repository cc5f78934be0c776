"""C library calls that the standard library lacks: prctl, inotify, fallocate. Linux only."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
IN_MODIFY = 0x2
IN_NONBLOCK = 0o4000
IN_CLOEXEC = 0o2000000

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2), nothing on systems that lack it (they refuse a run later). Raises OSError."""
    if hasattr(_libc, "prctl") and _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        _raise("prctl")


def inotify_open() -> int:
    """A non-blocking inotify descriptor. Raises OSError (limits)."""
    fd = _libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if fd < 0:
        _raise("inotify_init1")
    return int(fd)


def inotify_watch(fd: int, path: str) -> int:
    """Watch a file for writes; returns the watch's number. Raises OSError."""
    watch = _libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY)
    if watch < 0:
        _raise("inotify_add_watch")
    return int(watch)


def punch_hole(path: str, offset: int, count: int) -> bool:
    """Give a part of a file back to the disk; False where the file system can't (fallocate(2))."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        return bool(_libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(count)) == 0)
    finally:
        os.close(fd)


def _raise(call: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, "%s: %s" % (call, os.strerror(number)))
