"""Keeps lines whole on a terminal, pipe or file that several sources write to, with a live line below them."""

import os
import re
from collections.abc import Hashable
from contextlib import suppress

from .lines import prefix_lines
from .writer import ThreadedWriter

ERASE = b"\r\x1b[K"
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")


class Surface:
    """Knows whether the last line is unfinished, and whose it is.

    Two descriptors of the same file share a surface: their order is kept, and a line that one has left unfinished is
    ended before the other writes.
    """

    def __init__(self, writer: ThreadedWriter, *, is_terminal: bool) -> None:
        self.writer = writer
        self.is_terminal = is_terminal
        self._open: Hashable = None
        self._open_fd = -1
        self._live = b""
        self._live_owner: Hashable = None

    def show(self, fd: int, owner: Hashable, block: bytes, prefix: bytes = b"") -> None:
        """Append a block of `owner`, without a second prefix if it continues its own unfinished line."""
        if not block:
            return
        is_continued = self._open is not None and self._open == owner and self._open_fd == fd
        text = prefix_lines(block, prefix, is_continued=is_continued)
        if not is_continued:
            self.close_line()
        is_open = not block.endswith(b"\n")
        self._put(fd, text, is_open=is_open)
        self._open, self._open_fd = (owner, fd) if is_open else (None, -1)

    def close_line(self) -> None:
        """End the unfinished line, if there is one."""
        if self._open is not None:
            fd, self._open, self._open_fd = self._open_fd, None, -1
            self._put(fd, b"\n", is_open=False)

    def close_line_of(self, owner: Hashable) -> None:
        """End the unfinished line if it is `owner`'s."""
        if self._open is not None and self._open == owner:
            self.close_line()

    def show_live(self, fd: int, owner: Hashable, text: str) -> None:
        """On a terminal, show `text` as the last line, updated in place; "" removes `owner`'s. Elsewhere do nothing."""
        if not self.is_terminal or (not text and owner != self._live_owner):
            return
        line = _CONTROLS.sub("", text)[: _columns(fd) - 1].encode("utf-8", "replace")
        if self._open is None and line != self._live:
            self.writer.put(fd, ERASE + line)
        self._live, self._live_owner = line, owner if line else None

    def _put(self, fd: int, text: bytes, *, is_open: bool) -> None:
        if self._live:
            if self._open is None:
                text = ERASE + text
            if not is_open:
                text += self._live
        self.writer.put(fd, text)


def _columns(fd: int) -> int:
    with suppress(OSError):  # no terminal after all, or one without a size
        return os.get_terminal_size(fd).columns or 80
    return 80


def is_same_file(one: int, other: int) -> bool:
    """Whether both descriptors lead to one terminal, pipe or file."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # one of them is closed
        return False
