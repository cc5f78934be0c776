"""Files as text: bytes to lines with places. Handles byte order marks, line ends, NUL and invalid UTF-8."""

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mnspawn_inventory.errors import InventoryError, Origin

MAX_FILE = 64 << 20  # 100,000 hosts with 600 bytes each; a larger file is not an inventory
CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `place(n)` is the place of character n, counted from 0."""

    source: str
    number: int
    text: str

    def place(self, offset: int = 0) -> Origin:
        return Origin(self.source, self.number, offset + 1)

    def words(self) -> list["Word"]:
        """The words between white space."""
        return [Word(match[0], self.place(match.start())) for match in re.finditer(r"\S+", self.text)]

    def without_comment(self) -> "Line":
        """The line up to its first "#"."""
        return Line(self.source, self.number, self.text.split("#", 1)[0])


@dataclass(frozen=True, slots=True)
class Word:
    """A part of a line, and where it begins."""

    text: str
    place: Origin


@dataclass(frozen=True, slots=True)
class Text:
    """A whole file, decoded, with "\\n" at line ends."""

    source: str
    content: str

    def lines(self) -> Iterator[Line]:
        for number, text in enumerate(self.content.split("\n"), start=1):
            yield Line(self.source, number, text)


class Offsets:
    """Turns offsets in a text into places."""

    def __init__(self, content: str, source: str) -> None:
        self._source = source
        self._starts = [0, *(match.end() for match in re.finditer("\n", content))]

    def place(self, offset: int) -> Origin:
        line = bisect_right(self._starts, offset)
        return Origin(self._source, line, offset - self._starts[line - 1] + 1)


def read_text(path: Path, source: str | None = None) -> Text:
    """Read a whole file.

    Args:
        source: what errors call the file; by default its path.

    Raises:
        InventoryError: it is missing, unreadable, a folder, too large, or not UTF-8 text.
    """
    return decode(read_bytes(path, source), source or str(path))


def read_bytes(path: Path, source: str | None = None) -> bytes:
    """The file's bytes. Raises InventoryError as `read_text` does."""
    place = Origin(source or str(path))
    try:
        with open(path, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size > MAX_FILE:
                raise InventoryError("the file is too large", place=place, expected=f"at most {MAX_FILE >> 20} MiB")
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise InventoryError("there is no such file", place=place) from None
    except ValueError:  # a NUL in the path
        raise InventoryError("not a file name", place=place, found=str(path)) from None
    except OSError as exc:
        reason = "is a folder" if isinstance(exc, IsADirectoryError) else (exc.strerror or str(exc)).lower()
        raise InventoryError(f"the file can't be read: {reason}", place=place) from exc
    if len(content) > MAX_FILE:
        raise InventoryError("the file is too large", place=place, expected=f"at most {MAX_FILE >> 20} MiB")
    return content


def decode(content: bytes, source: str) -> Text:
    """Decode UTF-8 with or without a byte order mark and any line ends; refuse control characters but tabs."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InventoryError("the file is UTF-16", place=Origin(source, 1, 1), expected="UTF-8")
    if content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = content[: exc.start].decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        place = Offsets(before, source).place(len(before))
        raise InventoryError("not UTF-8 text", place=place, found=repr(content[exc.start : exc.end])[2:-1]) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if odd := CONTROL.search(text):
        place = Offsets(text, source).place(odd.start())
        raise InventoryError("a control character", place=place, found=odd[0], expected="text")
    return Text(source, text)
