"""Reduces progress bars of several lines to the lines that a terminal keeps of them. Pure.

Such bars move the cursor up with every refresh and print each of their lines again. While a stream does that, its last
lines are held here and overwritten as on a terminal; lines that the cursor can't reach any more are released. A stream
that never moves the cursor up passes unchanged.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MOST_ROWS = 200  # no terminal is higher
MOST_BYTES = 1 << 16  # a row; no terminal is that wide
_CSI = rb"\x1b\[[0-?]*[ -/]*"
_UP = re.compile(rb"\x1b(?:\[\d*[AF]|M)")
_TOKEN = re.compile(rb"[\r\n]|\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-Z\\^-~])|[^\r\n\x1b]+|\x1b")
_UNFINISHED = re.compile(rb"(?:" + _CSI + rb"|\x1b[ -/]*)\Z")
_MOVE = re.compile(rb"\x1b\[(\d*)([ABEF])")
_COLUMN = re.compile(rb"\x1b\[[01]?G")
_ERASE = re.compile(rb"\x1b\[([0-3]?)([JK])")
_CURSOR = re.compile(rb"\x1b\[\?25[hl]")


@dataclass(slots=True)
class _Row:
    """A line on the imagined terminal.

    Attributes:
        is_bar: it was overwritten, or begins after a return.
        is_shown: it was released before it was overwritten.
    """

    text: bytes = b""
    is_bar: bool = False
    is_shown: bool = False


class Rewinder:
    """Filters one stream: releases lines that can't be overwritten any more, or all bytes while nothing is held."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []  # none while nothing is held
        self._row = 0
        self._is_fresh = False  # the next text replaces the row's
        self._is_return = False  # because the cursor came back, not because a line ended
        self._is_over = False  # the cursor is visible again, as when bars are done
        self._lead = b""  # colours before that
        self._depth = 0  # how far up the cursor has ever gone
        self._pending = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._rows)

    @property
    def state(self) -> bytes:
        """The row that changed last or, if it is blank, the last one that is not."""
        here = self._rows[self._row : self._row + 1]
        return next((row.text for row in (*here, *reversed(self._rows)) if row.text.strip()), b"")

    def feed(self, chunk: bytes, take_half_line: Callable[[], bytes]) -> bytes:
        """Take bytes; return what is to be shown.

        Args:
            take_half_line: takes back what was returned before of the unfinished line.
        """
        if not self._rows and not self._pending and b"\x1b" not in chunk and (not self._depth or b"\r" not in chunk):
            return chunk
        text, self._pending = self._pending + chunk, b""
        cut = _UNFINISHED.search(text, max(0, len(text) - 32))
        if cut is not None:
            text, self._pending = text[: cut.start()], text[cut.start() :]
        if not self._rows:
            if not _UP.search(text) and (not self._depth or b"\r" not in text):
                return text
            self._rows, self._row, self._is_fresh = [_Row()], 0, False
            text = take_half_line() + text
        for token in _TOKEN.findall(text):
            self._take(token)
        return self._release()

    def flush(self) -> bytes:
        """Return all that is held: the stream is over."""
        rows, self._rows, pending, self._pending = self._rows, [], self._pending, b""
        while rows and not rows[-1].text.strip():
            rows.pop()
        return _joined(rows) if rows else pending

    def _take(self, token: bytes) -> None:
        if token == b"\n":
            self._go(self._row + 1)
        elif token == b"\r" or _COLUMN.fullmatch(token):
            self._is_fresh = self._is_return = True
        elif token == b"\x1bM":
            self._go_up(1)
        elif move := _MOVE.fullmatch(token):
            count = min(int(move[1][:4] or b"1") or 1, MOST_ROWS)
            self._go_up(count) if move[2] in b"AF" else self._go(self._row + count)
        elif erase := _ERASE.fullmatch(token):
            self._erase(erase[1], erase[2])
        elif _CURSOR.fullmatch(token):
            self._is_over = token.endswith(b"h")
        elif self._is_fresh and token.startswith(b"\x1b"):
            self._lead += token[:32]
        else:
            self._write(token)

    def _write(self, text: bytes) -> None:
        row = self._rows[self._row]
        if self._is_fresh:
            row.text, row.is_bar = b"", row.is_bar or row.is_shown or self._is_return or bool(row.text)
        row.text, row.is_shown = (row.text + self._lead[-256:] + text)[:MOST_BYTES], False
        self._is_fresh, self._lead = False, b""

    def _go_up(self, count: int) -> None:
        self._depth = min(MOST_ROWS, max(self._depth, len(self._rows) - 1 - self._row + count))
        above = max(0, min(count - self._row, MOST_ROWS - len(self._rows)))
        self._rows[:0] = [_Row(is_shown=True) for _ in range(above)]
        self._row = max(0, self._row + above - count)
        self._is_fresh = self._is_return = True

    def _go(self, row: int) -> None:
        while len(self._rows) <= row:
            self._rows.append(_Row())
        self._row, self._is_fresh, self._is_return, self._lead = row, True, False, b""

    def _erase(self, how: bytes, what: bytes) -> None:
        if self._is_fresh or how in (b"2", b"3"):
            self._rows[self._row].text, self._rows[self._row].is_bar = b"", True
        if what == b"J" and how in (b"", b"0"):
            del self._rows[self._row + 1 :]

    def _release(self) -> bytes:
        """Return rows that the cursor can't reach any more; all rows, if a plain line follows the bars."""
        is_below = self._row == len(self._rows) - 1 > 0 and not self._rows[self._row].text
        if is_below and (self._is_over or not self._rows[self._row - 1].is_bar):
            gone, self._rows, self._is_over = self._rows[:-1], [], False
            return _joined(gone)
        count = max(0, min(self._row, len(self._rows) - 1 - self._depth))
        gone = self._rows[:count]
        del self._rows[:count]
        self._row -= count
        return _joined(gone)


def _joined(rows: Iterable[_Row]) -> bytes:
    return b"".join(row.text + b"\n" for row in rows if not row.is_shown)
