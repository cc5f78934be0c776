"""Makes sure that a folder is ours alone, level by level, before anything in it is used. Touches only folders.

`/var/tmp/mnspawn-1000` may have been made by anybody. Whoever owns a folder, or may write to it, can put code, plans
and sockets there, or swap what lies below it. The controller asks the same of the folders that it keeps; so does the
stub of the archive, before this module is here.
"""

import errno
import os
import stat
from typing import Callable, List, Sequence

OTHERS = 0o077  # permissions that a folder of ours grants to nobody else
WRITERS = 0o022
LINKS = 40  # on the way to a folder; the kernel follows no more, either


class NotOurs(OSError):
    """Somebody else could have put there what we would find; `filename` is the level, `strerror` names it, too."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, "%s %s" % (path, reason), path)


def secure(root: str, *below: str) -> str:
    """The folder `root/below...`, once root and every level below it are known to be ours alone.

    Ours is a folder, no link, that we own and nobody else can write to. Where others can read it, they no longer can.

    Args:
        root: the first level that is ours to make. Those above it are the system's or the account's: it is enough that
            nobody but root and we can rename what is in them.

    Raises:
        NotOurs: a level is somebody else's.
        OSError: a level is not there.
    """
    return _walk(root, below, lambda path: None)


def make(root: str, *below: str) -> str:
    """As `secure`, and makes what is missing, above `root` as well.

    Raises:
        NotOurs: a level is somebody else's.
        OSError: a level can't be made.
    """
    return _walk(root, below, _make)


def make_missing(path: str) -> None:
    """Make a folder and those above it that are missing, each for us alone whatever the umask; asks nothing of others.

    Raises:
        OSError: it can't be made.
    """
    if os.path.isdir(path):
        return
    make_missing(os.path.dirname(path) or ".")
    try:
        os.mkdir(path, 0o700)  # one by one: os.makedirs gives the mode to the last alone
    except FileExistsError:
        if not os.path.isdir(path):  # else another process was faster
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _walk(root: str, below: Sequence[str], prepare: Callable[[str], None]) -> str:
    """Check level by level, each before anything is made in it."""
    _check_above(os.path.dirname(root), prepare)
    path = root
    prepare(path)
    _check(path)
    for name in below:
        path = os.path.join(path, name)
        prepare(path)
        _check(path)
    return path


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # another process was faster, or something else is there: the caller checks whose it is


def check(path: str, status: os.stat_result) -> None:
    """What a path stands for is a folder, which is ours and which others can't write to, whatever is above it.

    Raises:
        NotOurs, NotADirectoryError: it is something else.
    """
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        raise NotOurs(path, "is a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if status.st_uid != os.getuid():
        raise NotOurs(path, "belongs to uid %d" % status.st_uid)
    if mode & WRITERS:
        raise NotOurs(path, "can be written to by others (mode %04o)" % mode)


def _check(path: str) -> None:
    status = os.lstat(path)
    check(path, status)
    mode = stat.S_IMODE(status.st_mode)
    if mode & OTHERS:
        os.chmod(path, mode & ~OTHERS)


def _check_above(path: str, prepare: Callable[[str], None]) -> None:
    """Only root and we own the folders on the way, and nobody else can rename what is in them.

    Links are followed one by one: those who can rename one can lead us elsewhere as soon as we have looked.

    Members of a folder's group are trusted, as by the account that lets them write there: where every user has a group
    of their own, homes are often writable to it.
    """
    trusted = (0, os.lstat(os.sep).st_uid, os.getuid())  # root, whatever number it has in this user namespace, and us
    level, names = os.sep, _names(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
    _check_way(level, os.lstat(level), trusted)
    links = 0
    while names:
        name = names.pop()
        if name == os.pardir:
            level = os.path.dirname(level)
            continue
        entry = os.path.join(level, name)
        if not os.path.lexists(entry):
            prepare(entry)
        status = os.lstat(entry)
        _check_way(entry, status, trusted)
        if not stat.S_ISLNK(status.st_mode):
            level = entry
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), entry)
        target = os.readlink(entry)
        level = os.sep if os.path.isabs(target) else level
        names += _names(target)


def _names(path: str) -> List[str]:
    """The names in a path, the first one last."""
    return [name for name in reversed(path.split(os.sep)) if name not in ("", os.curdir)]


def _check_way(path: str, status: os.stat_result, trusted: Sequence[int]) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in trusted:
        raise NotOurs(path, "belongs to uid %d" % status.st_uid)
    if stat.S_ISLNK(status.st_mode):
        return  # has no mode of its own
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise NotOurs(path, "lets others rename what is in it (mode %04o)" % mode)
