"""Where a value was written, and the one error of this package, which names that place. Pure."""

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where something was written: a file with line and column, an option, or an environment variable.

    Lines and columns count from 1; 0 means that there is none.
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.source
        if not self.column:
            return f"{self.source}:{self.line}"
        return f"{self.source}:{self.line}:{self.column}"

    def moved(self, columns: int) -> "Origin":
        """The place `columns` further right on the same line; the same place if it has no column."""
        return Origin(self.source, self.line, self.column + columns) if self.column else self


class InventoryError(Exception):
    """Hosts that can't be used as written. `str` gives one line: place, what is wrong, found, expected.

    Attributes:
        message: what is wrong, lower case, without a full stop.
        place: file:line:column, an option, or a variable; None where there is none.
        found: the offending text as written, or None.
        expected: what would be right, or None if the message says so.
        hint: what to do next; not part of the text.
    """

    def __init__(
        self,
        message: str,
        *,
        place: Origin | None = None,
        found: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.found = found
        self.expected = expected
        self.hint = hint

    @property
    def text(self) -> str:
        """The message with found and expected, without the place."""
        parts = []
        if self.found is not None:
            parts.append(f"found {quoted(self.found)}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        return f"{self.message}: {', '.join(parts)}" if parts else self.message

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place is not None else self.text


def listed_twice(name: str, place: Origin | None) -> InventoryError:
    """The error for a host that a list has twice."""
    return InventoryError("a host is listed twice", place=place, found=name)


def for_shell(path: str | os.PathLike[str]) -> str:
    """A path quoted for a shell; a leading "~/" is left for the shell to expand."""
    text = os.fspath(path)
    home, rest = ("~/", text[2:]) if text.startswith("~/") else ("", text)
    return home + (shlex.quote(rest) if rest or not home else "")


MAX_QUOTED = 80  # enough to recognize the text


def quoted(text: str) -> str:
    """The text as one printable line in quotes; long texts are cut."""
    if len(text) > MAX_QUOTED:
        text = text[: MAX_QUOTED - 3] + "..."
    return repr(text)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the most similar known word; None if there is none."""
    from difflib import get_close_matches  # late: only mistakes need it

    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else None
