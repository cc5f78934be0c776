"""Ranges in host names: from `gpu[01-16/2,20]` to names in the order written, and back (ClusterShell). Pure."""

import re
from collections.abc import Iterable
from typing import Any

from mnspawn_inventory.draft import MAX_HOSTS
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.names import is_plain

PIECE = re.compile(r"([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?", re.ASCII)
LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.ASCII)
BRACKETS = re.compile(r"(\[[^\[\]]*\])")
NUMBERS = re.compile(r"[0-9]+", re.ASCII)
MAX_DIGITS = 12
# ClusterShell looks for rectangles in names with several numbers, which takes quadratic time
MAX_FOLDED = 300


def has_range(text: str) -> bool:
    """Whether it has brackets other than those of an IPv6 address."""
    host = text.removeprefix("ssh://").rpartition("@")[2]
    return "[" in text and not (host.startswith("[") and ":" in host.partition("]")[0])


def expand(pattern: str, place: Origin | None) -> list[str]:
    """The names that a pattern stands for, in the order written; a plain name stands for itself.

    Raises:
        InventoryError: a bracket is open, a range is not valid or runs backwards, or there are far too many names.
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


def glob_pattern(pattern: str, place: Origin | None) -> "re.Pattern[str]":
    """A glob, perhaps with ranges in it (`gpu[1-3]-*`), as a regular expression for whole names."""
    regex = ""
    for part in BRACKETS.split(pattern):
        if BRACKETS.fullmatch(part):
            regex += f"(?:{'|'.join(expand(part, place))})"
        elif "[" in part or "]" in part:
            expand(part, place)  # raises: says what is wrong
        else:
            regex += re.escape(part).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(regex)


def fold(names: Iterable[str]) -> str:
    """The names as one short text with ranges: sorted, each once, IPv6 addresses in brackets.

    Names with a user or port come last, unchanged.
    """
    given = list(names)
    apart = [name for name in given if ":" in name or "@" in name]
    plain = [name for name in given if ":" not in name and "@" not in name] if apart else given
    addresses = [f"[{name}]" if is_plain(name) else name for name in apart]
    if len(plain) < 2:
        folded = plain
    elif len(plain) > MAX_FOLDED and any(len(NUMBERS.findall(name)) > 1 for name in plain):
        folded = _fold_last_numbers(plain)
    else:
        folded = [str(node_set(plain))]
    return ",".join([*folded, *addresses])


def _fold_last_numbers(names: list[str]) -> list[str]:
    """Fold by the last number of each name only."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for name in names:
        head, number, tail = _parts(name)
        numbers.setdefault((head, tail), []).append(number)
    return [str(node_set(head + number + tail for number in found)) for (head, tail), found in sorted(numbers.items())]


class Run:
    """Consecutive names, `n08` to `n11`, as one pattern that expands to them in their order."""

    __slots__ = ("_count", "_first", "_head", "_last", "_tail")

    def __init__(self) -> None:
        self._head = self._first = self._last = self._tail = ""
        self._count = 0

    def takes(self, name: str) -> bool:
        """Whether the name continues this run."""
        head, number, tail = _parts(name)
        if not self._count or not number or not self._first or (head, tail) != (self._head, self._tail):
            return not self._count
        width = len(self._first) if self._first.startswith("0") else 0
        return len(self._first) <= MAX_DIGITS and number == str(int(self._first) + self._count).zfill(width)

    def add(self, name: str) -> None:
        """Append a name that continues the run."""
        head, number, tail = _parts(name)
        if not self._count:
            self._head, self._first, self._tail = head, number, tail
        self._last = number
        self._count += 1

    @property
    def pattern(self) -> str:
        if self._count == 1:
            return self._head + self._first + self._tail
        return f"{self._head}[{self._first}-{self._last}]{self._tail}"


def _parts(name: str) -> tuple[str, str, str]:
    """What precedes the last number of a name, the number, and what follows; IPv6 addresses have no number."""
    match = LAST_NUMBER.fullmatch(name) if ":" not in name else None
    return (match[1], match[2], match[3]) if match else (name, "", "")


def node_set(names: Iterable[str]) -> Any:
    """A ClusterShell NodeSet of plain names, without the system's groups."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # late: most runs name their hosts plainly

    return NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
