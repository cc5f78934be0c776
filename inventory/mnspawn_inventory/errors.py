"""Where a value was written, and the one error of this package, which names that place."""

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A place that people can go to: a file with line and column, an option, or an environment variable.

    Lines and columns count from 1; 0 means that the source has none.
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
        """The place `columns` to the right on the same line (options and variables have columns, too)."""
        return Origin(self.source, self.line, self.column + columns) if self.column else self


class InventoryError(Exception):
    """Hosts that can't be used as written. Its text is one line: place, what is wrong, found, expected.

    Attributes:
        message: what is wrong, lower case, without a full stop.
        place: file:line:column, an option, or a variable; None where there is none.
        found: the offending text as written, None where nothing was found.
        expected: what would have been right, None where the message says it.
        hint: the next step, not part of the text.
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
    return InventoryError("a host is named twice", place=place, found=name, expected="each host once")


def for_shell(path: str | os.PathLike[str]) -> str:
    """A path as it is pasted into a shell: quoted where it has blanks and the like, its "~/" left to the shell."""
    text = os.fspath(path)
    home, rest = ("~/", text[2:]) if text.startswith("~/") else ("", text)
    return home + (shlex.quote(rest) if rest or not home else "")


MAX_QUOTED = 80  # an offending text is shown to be recognised, not to be read


def quoted(text: str) -> str:
    """The text as one printable line in quotes, cut when long."""
    if len(text) > MAX_QUOTED:
        text = text[: MAX_QUOTED - 3] + "..."
    return repr(text)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known word, None where none is near."""
    from difflib import get_close_matches  # late: only mistakes need it

    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else None
