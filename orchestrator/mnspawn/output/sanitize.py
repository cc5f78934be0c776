"""Removes control sequences from workers' output, across chunk borders. Pure.

Keeps text, tabs, line ends, returns (progress bars) and, if wanted, colours (SGR). Removes all else that a terminal
obeys: cursor movements, titles, links, images, resets, bells (ECMA-48 and xterm's additions, 8-bit forms in UTF-8). Of
a sequence that a line end cuts off, only the line end stays.
"""

import re

PENDING_LIMIT = 256  # bytes: terminals know no longer sequence; what follows is shown as text

_STRINGS = rb"(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])"  # OSC, DCS, SOS, PM, APC: never shown
_STRING_END = re.compile(rb"[\x07\n\x18\x1a\x1b]|\xc2\x9c")
_CSI = rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*"
_TOKEN = re.compile(
    rb"(?P<colour>\x1b\[[0-9;:]*m)"
    rb"|(?P<string>" + _STRINGS + rb")"
    rb"|" + _CSI + rb"[@-~]?"
    rb"|\x1b[ -/]*[0-Z\\^-~]?"
    rb"|\xc2[\x80-\x9f]"
    rb"|(?P<half>\xc2(?![\xa0-\xbf]))"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_UNFINISHED = re.compile(rb"(?:" + _CSI + rb"|\x1b[ -/]*|\xc2)\Z")
_INTERESTING = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xc2]")
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_COLOUR_BEGUN = re.compile(rb"\x1b(?:\[[0-9;:]*)?\Z")
_REPLACEMENT = "\ufffd".encode()  # for half a character, which could otherwise join into a control


class Sanitizer:
    """One stream's filter. Any chunking gives the same bytes.

    Arguments:
        keeps_colours: let SGR sequences pass.
    """

    __slots__ = ("_is_in_string", "_keeps_colours", "_pending")

    def __init__(self, *, keeps_colours: bool = True) -> None:
        self._keeps_colours = keeps_colours
        self._pending = b""  # an unfinished sequence
        self._is_in_string = False

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes; return those that are now known to be text or a colour."""
        if not self._pending and not self._is_in_string and not _INTERESTING.search(chunk):
            return chunk
        text = self._pending + chunk
        self._pending = b""
        cut = _UNFINISHED.search(text)
        if cut is not None and len(text) - cut.start() <= PENDING_LIMIT:
            self._pending = text[cut.start() :]
            text = text[: cut.start()]
        return self._filter(text)

    def flush(self) -> bytes:
        """End the stream: drop an unfinished sequence, show half a character as U+FFFD."""
        pending, self._pending = self._pending, b""
        was_in_string, self._is_in_string = self._is_in_string, False
        return _REPLACEMENT if pending == b"\xc2" and not was_in_string else b""

    def _filter(self, text: bytes) -> bytes:
        kept: list[bytes] = []
        position = 0
        while position < len(text):
            if self._is_in_string:
                end = _STRING_END.search(text, position)
                if end is None:
                    break
                self._is_in_string = False
                # ESC begins the next sequence (ESC \\ is one of its own), and a line end stays
                position = end.start() if end[0] in (b"\x1b", b"\n") else end.end()
                continue
            token = _TOKEN.search(text, position)
            if token is None:
                kept.append(text[position:])
                break
            kept.append(text[position : token.start()])
            position = token.end()
            if token["colour"] and self._keeps_colours:
                kept.append(token["colour"])
            elif token["half"]:
                kept.append(_REPLACEMENT)
            self._is_in_string = token["string"] is not None
        return b"".join(kept)


class ColourFilter:
    """Removes colours (SGR) from one stream, across chunk borders, and nothing else."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes; return them without colours. The beginning of what may be one waits."""
        if not self._pending and b"\x1b" not in chunk:
            return chunk
        text = self._pending + chunk
        cut = _COLOUR_BEGUN.search(text, max(0, len(text) - PENDING_LIMIT))
        self._pending = text[cut.start() :] if cut is not None else b""
        return _COLOURS.sub(b"", text[: len(text) - len(self._pending)])

    def flush(self) -> bytes:
        """Return what was no colour after all."""
        pending, self._pending = self._pending, b""
        return pending
