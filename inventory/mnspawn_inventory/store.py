"""Inventory files on disk: edits happen one at a time, and whole or not at all."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mnspawn_inventory.errors import InventoryError, Origin, for_shell
from mnspawn_inventory.text import decode, read_bytes

LOCK_TIMEOUT = 20.0  # seconds; an edit takes milliseconds: a process that holds the lock longer is stuck
BOM = b"\xef\xbb\xbf"


def edit(path: Path, change: Callable[[str], str], *, create: bool = True) -> bool:
    """Replace a file's text by `change(text)`, under the lock that all edits take. Keeps line ends, mode and links.

    Returns:
        Whether the text changed.

    Raises:
        InventoryError: the file can't be read or written; it is unchanged. Also what `change` raises.
    """
    path = Path(os.path.realpath(path))  # a link to a file elsewhere stays a link
    check_editable(path)
    if not create and not path.exists():
        raise InventoryError("there is no such file", place=Origin(str(path)), hint="mnspawn inventory add makes one")
    with _writing(path):
        if create:
            for level in (*reversed(path.parent.parents), path.parent):  # mkdir(parents=True) would use the umask
                level.mkdir(mode=0o700, exist_ok=True)
        with _locked(path.parent):
            check_editable(path)  # it may have been replaced meanwhile
            if create and not path.exists():
                before, is_new = b"", True
            else:
                before, is_new = read_bytes(path), False
            after = _changed(before, str(path), change)
            if after == before and not is_new:
                return False
            _replace(path, after)
            return True


def check_editable(path: Path) -> None:
    """Raises InventoryError for a device, a pipe or a folder, which an edit would replace by a file."""
    try:
        mode = path.stat().st_mode
    except OSError:  # missing or inaccessible: reading or writing will say so
        return
    if stat.S_ISDIR(mode):
        raise InventoryError("the file can't be read: is a folder", place=Origin(str(path)))
    if not stat.S_ISREG(mode):
        raise InventoryError("only a regular file can be edited", place=Origin(str(path)), expected="a file")


def _changed(before: bytes, shown: str, change: Callable[[str], str]) -> bytes:
    decode(before, shown)  # raises, with the place, if it is not text
    text = before.removeprefix(BOM).decode("utf-8")
    is_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    after = change(text.replace("\r\n", "\n") if is_crlf else text)
    if is_crlf:
        after = after.replace("\n", "\r\n")
    return (BOM if before.startswith(BOM) else b"") + after.encode("utf-8")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise InventoryError(f"the file can't be written: {reason}", place=Origin(str(path))) from exc


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder itself, which leaves no lock file; on NFS, where folders can't be locked, a lock file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _lock(descriptor, folder)
        except OSError as exc:
            if exc.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            os.close(descriptor)  # NFS locks only files that are open for writing
            descriptor = os.open(folder / ".mnspawn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise InventoryError(
                    f"another edit did not end within {LOCK_TIMEOUT:g} s",
                    place=Origin(str(folder)),
                    hint=f"see who has the folder open: fuser -v {for_shell(folder)}",
                ) from None
            time.sleep(0.01)


def _replace(path: Path, content: bytes) -> None:
    for left in path.parent.glob(f".{path.name}.*.tmp"):  # left by an edit that was killed: we hold the lock
        left.unlink(missing_ok=True)
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C, too: leave no partial file
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
