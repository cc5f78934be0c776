"""Ranges in host names: `gpu[01-16/2,20]` to names in the order written, and names back to ranges (ClusterShell)."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from mnspawn_inventory.draft import MAX_HOSTS
from mnspawn_inventory.errors import InventoryError, Origin

PIECE = re.compile(r"([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?", re.ASCII)
MAX_DIGITS = 12


def has_range(text: str) -> bool:
    """Whether it has brackets that are no IPv6 address's."""
    return "[" in text and not (text.startswith("[") and ":" in text.partition("]")[0])


def expand(pattern: str, place: Origin | None) -> list[str]:
    """The names that a pattern stands for, in the order in which they are written; a plain name stands for itself.

    Raises:
        InventoryError: a bracket is open, a range is none or runs backwards, or there are far too many names.
    """
    if "[" not in pattern and "]" not in pattern:
        return [pattern]
    names = [""]
    position = 0
    while position < len(pattern):
        opening = pattern.find("[", position)
        fixed = pattern[position:] if opening < 0 else pattern[position:opening]
        if "]" in fixed:
            raise InventoryError(
                "a ']' without its '['", place=place and place.moved(position + fixed.index("]")), found=pattern
            )
        if opening < 0:
            return [name + fixed for name in names]
        closing = pattern.find("]", opening)
        if closing < 0:
            raise InventoryError("a '[' without its ']'", place=place and place.moved(opening), found=pattern)
        numbers = _numbers(pattern[opening + 1 : closing], place and place.moved(opening + 1))
        if len(names) * len(numbers) > MAX_HOSTS:
            raise InventoryError(f"more than {MAX_HOSTS} hosts", place=place, found=pattern)
        names = [name + fixed + number for name in names for number in numbers]
        position = closing + 1
    return names


def _numbers(inside: str, place: Origin | None) -> list[str]:
    numbers: list[str] = []
    shift = 0
    for piece in inside.split(","):
        here = place and place.moved(shift)
        shift += len(piece) + 1
        match = PIECE.fullmatch(piece)
        if not match or max(len(part or "") for part in match.groups()) > MAX_DIGITS:
            hint = "ranges are written [01-16], with steps [0-8/2]" if ":" in piece else None
            raise InventoryError("not a range", place=here, found=piece, expected="a range such as 01-16", hint=hint)
        low, high, step = match.groups()
        if high is None:
            numbers.append(low)
            continue
        first, last, stride = int(low), int(high), int(step or 1)
        if last < first or not stride:
            raise InventoryError(
                "not a range", place=here, found=piece, expected="the smaller number first, and a step from 1"
            )
        if (last - first) // stride >= MAX_HOSTS:
            raise InventoryError(f"more than {MAX_HOSTS} hosts", place=here, found=piece)
        width = len(low) if low.startswith("0") else 0
        numbers.extend(str(number).zfill(width) for number in range(first, last + 1, stride))
    return numbers


def fold(names: Iterable[str]) -> str:
    """The names as one short text with ranges: sorted, each once, IPv6 addresses in brackets."""
    plain = list(names)
    addresses = [f"[{name}]" for name in plain if ":" in name]
    if addresses:
        plain = [name for name in plain if ":" not in name]
    folded = [str(node_set(plain))] if len(plain) > 1 else plain
    return ",".join([*folded, *addresses])


def fold_in_order(names: Sequence[str]) -> list[str]:
    """Short patterns that expand to exactly these names in exactly this order."""
    patterns: list[str] = []
    run: list[tuple[str, str, str]] = []
    for name in names:
        match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", name) if ":" not in name else None
        parts = (match[1], match[2], match[3]) if match else (name, "", "")
        if run and not _follows(run, parts):
            patterns.append(_pattern(run))
            run = []
        run.append(parts)
    if run:
        patterns.append(_pattern(run))
    return patterns


def _follows(run: list[tuple[str, str, str]], parts: tuple[str, str, str]) -> bool:
    """Whether the next number continues the run as `expand` would count it."""
    head, first, tail = run[0]
    if not first or not parts[1] or len(first) > MAX_DIGITS or (head, tail) != (parts[0], parts[2]):
        return False
    width = len(first) if first.startswith("0") else 0
    return parts[1] == str(int(first) + len(run)).zfill(width)


def _pattern(run: list[tuple[str, str, str]]) -> str:
    head, first, tail = run[0]
    return head + first + tail if len(run) == 1 else f"{head}[{first}-{run[-1][1]}]{tail}"


def node_set(names: Iterable[str]) -> Any:
    """A ClusterShell NodeSet of plain names that never asks for groups of the system."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # late: most runs name their hosts plainly

    return NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
