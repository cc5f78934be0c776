"""Quotes a host's output in our messages: readable, on one line, not too long. Pure."""

import re

Said = bytes | bytearray | str
LONGEST = 400  # characters: a few lines; the last ones matter most
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]", re.MULTILINE)
_FRAMES = re.compile(r"[\W_]+")  # a line of stars or dashes around a banner


def readable(said: Said) -> str:
    """Return text of any encoding on one line, without terminal sequences, its lines separated by ` | `."""
    text = said if isinstance(said, str) else said.decode("utf-8", "replace")
    lines = [_printable(line) for line in _SEQUENCES.sub("", text).splitlines()]
    return " | ".join(line for line in lines if line and not _FRAMES.fullmatch(line))


def quoted(*said: Said, before: str = "; it said", around: str = "'") -> str:
    """Return `; it said '...'` to append to a message; "" if nothing was said.

    Args:
        said: parts in their order; long ones lose their beginning.
        around: the quotation marks.
    """
    parts = [text for part in said if (text := readable(part))]
    if not parts:
        return ""
    most = LONGEST // len(parts)
    return f"{before} {around}{' | '.join(_end_of(part, most) for part in parts)}{around}"


def _printable(line: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in line).split())


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"...{text[-most:].partition(' ')[2] or text[-most:]}"
