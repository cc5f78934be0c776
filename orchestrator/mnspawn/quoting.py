"""What a host has said, quoted in messages of ours: readable, on one line, not too long. Pure."""

import re

Said = bytes | bytearray | str
LONGEST = 400  # characters: a few lines, of which the last ones tell most
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]", re.MULTILINE)
_FRAMES = re.compile(r"[\W_]+")  # a line of stars or dashes around a banner


def readable(said: Said) -> str:
    """The text on one line: of any encoding, without what a terminal would obey, its lines side by side."""
    text = said if isinstance(said, str) else said.decode("utf-8", "replace")
    lines = [_printable(line) for line in _SEQUENCES.sub("", text).splitlines()]
    return " | ".join(line for line in lines if line and not _FRAMES.fullmatch(line))


def quoted(*said: Said, before: str = "; it said", marks: str = "'") -> str:
    """`; it said '...'`, to be put behind a message; nothing where nothing was said.

    Args:
        said: in the order in which it came; of several parts each with its last words.
        marks: what stands around it.
    """
    parts = [text for part in said if (text := readable(part))]
    if not parts:
        return ""
    most = LONGEST // len(parts)
    return f"{before} {marks}{' | '.join(_end_of(part, most) for part in parts)}{marks}"


def _printable(line: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in line).split())


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"...{text[-most:].partition(' ')[2] or text[-most:]}"
