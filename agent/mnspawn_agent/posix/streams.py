"""Reads and writes what belongs together: all that comes over a pipe, all of a message, the one line of a file."""

import os
import select
import time
from typing import Any, Callable, List, Optional

LOOK = 0.5  # seconds between two calls of who wants to do something meanwhile


def first_line(path: str) -> str:
    """The first line of a file such as those in /proc and /sys; "" where it can't be read."""
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def write_all(fd: int, octets: Any) -> None:
    """Raises OSError."""
    view = memoryview(octets)
    while view:
        view = view[os.write(fd, view) :]


def read_all(fd: int) -> bytes:
    """Everything until the other end is closed."""
    parts: List[bytes] = []
    while not parts or parts[-1]:
        parts.append(os.read(fd, 65536))
    return b"".join(parts)


def read_within(fd: int, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> Optional[bytes]:
    """As `read_all`; None when it takes longer, or once `meanwhile`, which is called now and then, returns False."""
    parts: List[bytes] = []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and meanwhile() is not False:
        if poll.poll(LOOK * 1000):
            parts.append(os.read(fd, 65536))
            if not parts[-1]:
                return b"".join(parts)
    return None
