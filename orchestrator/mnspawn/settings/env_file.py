"""Files of variables in the notation of .env files, for `-x @FILE`. Text in, names and values out; shows no value.

# a comment
NAME=value            # to the end of the line, without blanks at its ends; " #" begins a comment
export NAME=value
NAME='all of it $as it is'
NAME="with \\n \\t \\" \\\\ \\$, and over
several lines"
NAME                  (alone: the value that it has here)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST = 16 << 20  # bytes; a process takes 6 MiB of variables
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_EXPORT = re.compile(r"export[ \t]+(?=[^\s=])")
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_REFERENCE = re.compile(r"\$\{|\$\(|`")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`", "\n": ""}


class BadFile(ValueError):
    """The file can't be used; the text says where, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A variable; `value` is None where the file has its name alone."""

    name: str
    value: str | None
    place: str


def read(path: Path) -> list[Entry]:
    """The entries of a file, in its order. Raises BadFile."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except OSError as exc:
        raise BadFile(f"expected a file of variables, can't read {str(path)!r}: {exc.strerror}") from exc
    if len(content) > MOST:
        raise BadFile(f"expected at most {MOST >> 20} MiB of variables, found more in {str(path)!r}")
    text = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
    return list(_Parser(text, str(path)).entries())


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._at = 0

    def entries(self) -> Iterator[Entry]:
        while True:
            self._skip(r"(?:[ \t\n]|#[^\n]*)*")
            if self._at == len(self._text):
                return
            self._skip(_EXPORT.pattern)
            start = self._at
            name = self._skip(_NAME.pattern)
            self._skip(r"[ \t]*")
            if not name:
                raise self._bad("the name of a variable", self._shown())
            place = self._place(start)
            if self._skip("="):
                self._skip(r"[ \t]*")
                yield Entry(name, self._value(name), place)
            else:
                self._end_line(f"= after {name}")
                yield Entry(name, None, place)

    def _value(self, name: str) -> str:
        quote = self._text[self._at : self._at + 1]
        if quote not in ("'", '"') or not quote:
            start = self._at
            line = self._skip(_BARE.pattern)
            value = _COMMENT.sub("", line).strip(" \t")
            self._check(value, start, name)
            return value
        value = self._quoted(quote, name)
        self._end_line(f"the end of the line after the value of {name}")
        return value

    def _quoted(self, quote: str, name: str) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == quote:
                self._at += 1
                return "".join(parts)
            if quote == '"' and sign == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                parts.append(_ESCAPES.get(following, sign + following))
                self._at += 2
                continue
            if quote == '"':
                self._check(self._text[self._at : self._at + 2], self._at, name)
            parts.append(sign)
            self._at += 1
        self._at = start
        raise self._bad(f"a {quote} at the end of the value of {name}", "the end of the file")

    def _check(self, value: str, start: int, name: str) -> None:
        """What some read as a reference to another value, and others don't, is not guessed at."""
        if found := _REFERENCE.search(value):
            self._at = start + found.start()
            raise self._bad(
                f"the value of {name} as it is: nothing in it is replaced",
                f"{found[0]} (inside of '...' it stands for itself)",
            )
        if "\0" in value:
            self._at = start + value.index("\0")
            raise self._bad(f"text without NUL characters as the value of {name}", "one")

    def _end_line(self, expected: str) -> None:
        self._skip(r"[ \t]*(?:(?<=[ \t'\"])#[^\n]*)?")
        if self._at < len(self._text) and self._text[self._at] != "\n":
            raise self._bad(expected, "something else")

    def _skip(self, pattern: str) -> str:
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _shown(self) -> str:
        return repr(self._text[self._at]) if self._at < len(self._text) else "the end of the file"

    def _place(self, at: int) -> str:
        line = self._text.count("\n", 0, at) + 1
        return f"{self._name}:{line}:{at - self._text.rfind(chr(10), 0, at)}"

    def _bad(self, expected: str, found: str) -> BadFile:
        return BadFile(f"{self._place(self._at)}: expected {expected}, found {found}")
