"""The few C library calls that the standard library lacks: prctl and inotify. Linux only; absent elsewhere."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
IN_MODIFY = 0x2
IN_NONBLOCK = 0o4000
IN_CLOEXEC = 0o2000000

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2). Raises OSError."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        _raise("prctl")


def inotify_open() -> int:
    """A non-blocking inotify descriptor. Raises OSError (limits, no such call)."""
    fd = _libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if fd < 0:
        _raise("inotify_init1")
    return int(fd)


def inotify_watch(fd: int, path: str) -> int:
    """Watch a file for writes; gives the watch's number. Raises OSError."""
    watch = _libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY)
    if watch < 0:
        _raise("inotify_add_watch")
    return int(watch)


def _raise(call: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, "%s: %s" % (call, os.strerror(number)))
