"""What a host has said, quoted in messages of ours: readable, on one line, not too long. Pure."""

import re

LONGEST = 400  # characters: a few lines, of which the last ones tell most
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]", re.MULTILINE)
_FRAMES = re.compile(r"[\W_]+")  # a line of stars or dashes around a banner


def readable(said: bytes | str) -> str:
    """The text on one line: of any encoding, without what a terminal would obey, its lines side by side."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    lines = [_printable(line) for line in _SEQUENCES.sub("", text).splitlines()]
    return " | ".join(line for line in lines if line and not _FRAMES.fullmatch(line))


def quoted(*said: bytes | str, before: str = "; it said") -> str:
    """`; it said '...'`, to be put behind a message; nothing where nothing was said.

    Args:
        said: in the order in which it came; of several parts each with its last words.
    """
    parts = [text for part in said if (text := readable(part))]
    if not parts:
        return ""
    most = LONGEST // len(parts)
    return f"{before} '{' | '.join(_end_of(part, most) for part in parts)}'"


def _printable(line: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in line).strip()


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"...{text[-most:].partition(' ')[2] or text[-most:]}"
