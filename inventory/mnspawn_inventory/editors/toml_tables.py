"""Changes TOML text and leaves the rest as it is: inserts and removes tables, renames keys. Pure."""

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping

from mnspawn_inventory.formats.toml_places import Path, TomlPlaces
from mnspawn_inventory.toml_text import toml_key, toml_value

STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
COMMENT = re.compile(r"#[^\n]*")


def insert_tables(text: str, top: str, block: str) -> str:
    """Insert tables after the last `[top...]` table, before the comment of the next table, or at the end."""
    headers = TomlPlaces(text, "").headers
    numbers = [number for number, (path, _) in enumerate(headers) if path[0] == top]
    if numbers and numbers[-1] + 1 < len(headers):
        at = _before_comment(text, headers[numbers[-1] + 1][1])
    else:
        at = len(text)
    before, after = text[:at].rstrip("\n \t"), text[at:].lstrip("\n")
    parts = [part for part in (before, block.strip("\n"), after.rstrip("\n")) if part]
    return "\n\n".join(parts) + "\n"


def _before_comment(text: str, header: int) -> int:
    """The start of the comment lines directly above a header."""
    start = text.rfind("\n", 0, header) + 1
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


def rename(text: str, path: Path, name: str, values: Mapping[str, object]) -> str:
    """Rename the key at the end of `path` wherever it is written, and set keys below it."""
    places = TomlPlaces(text, "")
    cuts = [(start, end, toml_key(name)) for found, start, end in places.key_spans if found == path]
    for key, value in values.items():
        start, end = places.value_spans[(*path, key)]
        cuts.append((start, end, toml_value(value)))
    for start, end, new in sorted(cuts, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def cut_tables(text: str, top: str, names: Collection[str]) -> tuple[str, set[str]]:
    """Remove `[top.NAME]` tables with what is below them; comments after their last line stay.

    Returns:
        The text, and the names that had such tables (others are written inline, or with dots).
    """
    places = TomlPlaces(text, "")
    ends = sorted(end for _, end in places.value_spans.values())
    starts = [start for _, start in places.headers]
    found: set[str] = set()
    cuts: list[tuple[int, int]] = []
    for number, (path, start) in enumerate(places.headers):
        if len(path) < 2 or path[0] != top or path[1] not in names:
            continue
        found.add(str(path[1]))
        following = starts[number + 1] if number + 1 < len(starts) else len(text)
        last = bisect_left(ends, following) - 1
        end = max(ends[last] if last >= 0 else 0, start)
        line_end = text.find("\n", end)
        cuts.append((start, len(text) if line_end < 0 else line_end + 1))
    for start, end in reversed(cuts):
        before, after = text[:start], text[end:]
        if not before or before.endswith("\n\n"):
            after = after.removeprefix("\n")
        text = before + after
    return text, found


def written(text: str, path: Path) -> str:
    """A value as written, with the comment after it."""
    start, end = TomlPlaces(text, "").value_spans[path]
    line_end = text.find("\n", end)
    return text[start : len(text) if line_end < 0 else line_end].rstrip()


def comments_of(value: str) -> str:
    """The comments inside and after a list of strings, one per line."""
    bare = STRING.sub("", value)
    return "".join(f"{match[0]}\n" for match in COMMENT.finditer(bare))
