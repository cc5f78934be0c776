"""Where each key and value of a valid TOML document is written, since tomllib has no places. Pure."""

import re

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.text import Offsets

Path = tuple[str | int, ...]

MAX_DEPTH = 100  # each key keeps its whole path: deeper nesting takes quadratic memory

SKIP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
BLANK = re.compile(r"[ \t]*")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
BASIC = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
LITERAL = re.compile(r"'([^'\n]*)'")
LONG_BASIC = re.compile(r'"""(?:[^\\]|\\[\s\S])*?"{3,5}')
LONG_LITERAL = re.compile(r"'''[\s\S]*?'{3,5}")
SCALAR = re.compile(r"[^,\]}\r\n#]+")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


class TomlPlaces:
    """The places in one document; a path is a tuple of keys and array positions."""

    def __init__(self, content: str, source: str) -> None:
        self._content = content
        self._offsets = Offsets(content, source)
        self._at = 0
        self._keys: dict[Path, int] = {}
        self._values: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}
        # (path, start, end) of every key as it is written, and (path, start) of every header's line
        self.key_spans: list[tuple[Path, int, int]] = []
        self.headers: list[tuple[Path, int]] = []
        self.value_spans: dict[Path, tuple[int, int]] = {}
        self._document()

    def key(self, *path: str | int) -> Origin:
        """Where the last key of the path is written, or else the nearest enclosing key."""
        while path and path not in self._keys:
            path = path[:-1]
        return self._offsets.place(self._keys[path] if path else 0)

    def value(self, *path: str | int) -> Origin:
        """Where the value is written: a string inside its quotes, a table at its key."""
        return self._offsets.place(self._values[path]) if path in self._values else self.key(*path)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._content, self._at)
        assert match is not None  # the document is valid
        self._at = match.end()
        return match[0]

    def _document(self) -> None:
        prefix: Path = ()
        self._skip(SKIP)
        while self._at < len(self._content):
            if self._content[self._at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)
            self._skip(SKIP)

    def _header(self) -> Path:
        start = self._at
        is_array = self._content.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        path = self._key(())
        self._at += 2 if is_array else 1
        self.headers.append((path, start))
        if is_array:
            count = self._tables[path] = self._tables.get(path, -1) + 1
            path = (*path, count)
            self._keys[path] = self._keys[path[:-1]]
        return path

    def _pair(self, prefix: Path) -> None:
        path = self._key(prefix)
        self._at += 1  # the "="
        self._skip(BLANK)
        self._value(path)

    def _key(self, prefix: Path) -> Path:
        """Read a dotted key and the blanks around it."""
        path = prefix
        while True:
            self._skip(BLANK)
            start = self._at
            if self._content[start] == '"':
                part = ESCAPE.sub(_unescape, self._skip(BASIC)[1:-1])
            elif self._content[start] == "'":
                part = self._skip(LITERAL)[1:-1]
            else:
                part = self._skip(BARE_KEY)
            path = (*path, part)
            if len(path) > MAX_DEPTH:
                raise InventoryError(
                    "keys are nested too deeply",
                    place=self._offsets.place(start),
                    found=part,
                    expected=f"at most {MAX_DEPTH} levels",
                )
            self._keys.setdefault(path, start)
            self.key_spans.append((path, start, self._at))
            self._skip(BLANK)
            if self._content[self._at] != ".":
                return path
            self._at += 1

    def _value(self, path: Path) -> None:
        content, start = self._content, self._at
        first = content[start]
        if content.startswith(('"""', "'''"), start):
            self._values[path] = start + 3
            self._skip(LONG_BASIC if first == '"' else LONG_LITERAL)
        elif first in "\"'":
            self._values[path] = start + 1
            self._skip(BASIC if first == '"' else LITERAL)
        elif first in "[{":
            self._values[path] = start
            self._at += 1
            self._items(path, is_table=first == "{")
        else:
            self._values[path] = start
            self._skip(SCALAR)
        self.value_spans[path] = (start, self._at)

    def _items(self, path: Path, *, is_table: bool) -> None:
        index = 0
        self._skip(SKIP)
        while self._content[self._at] not in "]}":
            if is_table:
                self._pair(path)
            else:
                self._value((*path, index))
            index += 1
            self._skip(SKIP)
            if self._content[self._at] == ",":
                self._at += 1
                self._skip(SKIP)
        self._at += 1


def _unescape(match: re.Match[str]) -> str:
    number = match[1] or match[2]
    return chr(int(number, 16)) if number else ESCAPED.get(match[3], match[3])
