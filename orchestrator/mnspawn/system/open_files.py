"""How many files this process may have open: as many as are allowed while hosts are reached, as before for children."""

import contextlib
import errno
import os
import resource
import shutil
import threading
from collections.abc import Iterator, Sequence

from mnspawn.errors import UsageError

# a shell that executes a command with the limit that we were given; vfork leaves no room for a function of ours
_GIVE_BACK = 'ulimit -S -n "$0" && exec "$@"'
RAISING = "raise it: ulimit -n, nofile in /etc/security/limits.conf, or LimitNOFILE of a systemd unit"

_lock = threading.Lock()
_holders = 0
_given: tuple[int, int] | None = None  # what we had, while it is raised


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """For as long as the context lasts, the soft limit is the hard one, where the system allows it."""
    global _holders, _given
    with _lock:
        if not _holders:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with contextlib.suppress(OSError, ValueError):  # not allowed here: then the soft limit stays
                if soft != hard:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                    _given = (soft, hard)
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if not _holders:
                _restore()


def _restore() -> None:
    global _given
    if _given is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _given)
        _given = None


def _in_fork() -> None:
    global _lock, _holders
    _lock, _holders = threading.Lock(), 0
    _restore()


os.register_at_fork(after_in_child=_in_fork)


def as_given(argv: Sequence[str]) -> list[str]:
    """A command as it is to be started, so that it finds the limit that we were started with."""
    given = _given
    if given is None or shutil.which(argv[0]) is None:  # Popen says what is wrong with it
        return list(argv)
    return ["/bin/sh", "-c", _GIVE_BACK, "unlimited" if given[0] < 0 else str(given[0]), *argv]


def check_room(count: int, what: str) -> None:
    """Return when so many more files can be opened, give or take what libraries need.

    Raises:
        UsageError: they can't.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + len(os.listdir("/proc/self/fd"))
    if 0 <= limit < needed:
        raise UsageError(f"{what} need about {needed} open files, and this process may have {limit} at most: {RAISING}")


def shortage(error: OSError, *, is_fork: bool = False) -> UsageError | None:
    """What a system call has failed for, where it is this machine that has no more files or processes; else None.

    Args:
        is_fork: it was to start a process.
    """
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return UsageError(f"this process has {limit} files open, and may not have more: {RAISING}")
    if error.errno == errno.ENFILE:
        return UsageError("this machine has no more open files (fs.file-max): close some, or raise it with sysctl")
    if is_fork and error.errno in (errno.EAGAIN, errno.ENOMEM):
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        most = "" if limit < 0 else f", {limit} at most for this user"
        return UsageError(
            f"this machine starts no more processes ({error.strerror}{most}): raise it: ulimit -u, "
            "nproc in /etc/security/limits.conf, or TasksMax of a systemd unit"
        )
    return None


def check(error: OSError, *, is_fork: bool = False) -> None:
    """Return when an error says something else than `shortage`, which is raised.

    Raises:
        UsageError: this machine has no more files or processes.
    """
    if (short := shortage(error, is_fork=is_fork)) is not None:
        raise short from error


def check_free() -> None:
    """Return when one more file can be opened: libraries hide that they could not.

    Raises:
        UsageError: it can't.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as exc:
        check(exc)
