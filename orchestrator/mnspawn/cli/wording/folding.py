"""Folds equal messages of many hosts into one; words that differ are listed side by side, or below. Pure."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

NAME = "\0"  # stands for the host's own name
LEFT_OUT = "..."
SHOWN = 3  # of the words in which messages differ; the first ones are enough to see what kind of thing differs
COMMAND = "mnspawn"
_ADDRESS = re.compile(r"((?:[^@\s]+@)?)([\w.-]+)((?::[0-9]+)?)")
_BRACKETS = re.compile(r"\[[^\]]*\]")
LONG = 120  # characters: with more, words side by side in several places are not readable
LISTED = 16  # hosts with messages of their own; of grave ones all are
_SPACES = re.compile(r"(\s+)")
_EDGES = re.compile(r"(['\"(]*)(.*?)(['\"),;:.]*)", re.S)  # a word, and what a sentence puts around it


@dataclass(frozen=True, slots=True)
class HostMessage:
    """What a host reports, or what is wrong with it."""

    host: str
    message: str
    hint: str | None = None
    is_grave: bool = False  # nothing of it is left out


@dataclass(frozen=True, slots=True)
class Folded:
    """One message of several hosts."""

    hosts: tuple[str, ...]
    message: str
    hint: str | None
    each: tuple[str, ...] = ()  # lines below: `HOST: message`


def fold(
    messages: Iterable[tuple[Hashable, HostMessage]], names: Callable[[Sequence[str]], str]
) -> list[tuple[Hashable, Folded, list[int]]]:
    """Equal messages as one, in the order of the first of each: (its kind, the message, the positions of those in it).

    Args:
        messages: (kind, message) pairs; those of different kinds are never one.
        names: writes hosts as ranges.
    """
    groups: dict[tuple[Hashable, ...], list[tuple[int, HostMessage]]] = {}
    for position, (kind, one) in enumerate(messages):
        shape = _shape(one.message, one.host), one.hint and _shape(one.hint, one.host)
        groups.setdefault((kind, *shape), []).append((position, one))
    found = []
    for key, group in groups.items():
        alike = [one for _, one in group]
        hosts = tuple(one.host for one in alike)
        if len(alike) == 1:
            merged = Folded(hosts, alike[0].message, alike[0].hint)
        else:
            texts = [one.message for one in alike]
            message = _merged(texts, hosts)
            each: tuple[str, ...] = ()
            is_tangled = len(message) > LONG and sum(len(set(words)) > 1 for words in _columns(texts, hosts)) > 1
            if alike[0].is_grave or is_tangled:
                message, each = _head(texts, hosts), _each(alike)
            hint = None if alike[0].hint is None else _merged([one.hint or "" for one in alike], hosts, names)
            shown = names(hosts)
            merged = Folded(hosts, message.replace(NAME, shown), hint and hint.replace(NAME, shown), each)
        found.append((key[0], merged, [position for position, _ in group]))
    return found


def _nameless(text: str, host: str) -> str:
    return re.sub(rf"(?<![\w.@-]){re.escape(host)}(?![\w-]|\.\w)", NAME, text) if host else text


def _shape(text: str, host: str) -> tuple[str, ...]:
    """Return the words without what is about one host: those with a digit are addresses, ports, keys, places."""
    words = _SPACES.split(_nameless(text, host))
    return tuple(LEFT_OUT if any(sign.isdigit() for sign in word) else word for word in words)


def _columns(texts: Sequence[str], hosts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    nameless = (_SPACES.split(_nameless(text, host)) for text, host in zip(texts, hosts, strict=True))
    return zip(*nameless, strict=True)


def _head(texts: Sequence[str], hosts: Sequence[str]) -> str:
    """Return the words with which all texts begin."""
    shared = takewhile(lambda words: len(set(words)) == 1, _columns(texts, hosts))
    head, *_ = "".join(words[0] for words in shared).splitlines() or [""]
    return head.rstrip(" :,;([") or "each has its own reason"


def _each(alike: Sequence[HostMessage]) -> tuple[str, ...]:
    lines: list[str] = []
    for one in alike if alike[0].is_grave else alike[:LISTED]:
        first, *more = one.message.splitlines()
        lines += [f"{one.host}: {line}" for line in more or [first]]
    left = 0 if alike[0].is_grave else max(0, len(alike) - LISTED)
    return (*lines, *([f"and {left} more"] if left else []))


def _merged(texts: Sequence[str], hosts: Sequence[str], names: Callable[[Sequence[str]], str] | None = None) -> str:
    """One text for all; of the same shape they are. Where words differ, the first few stand side by side.

    Args:
        names: given for hints, in which the hosts behind a command of ours are all named, so that it can be pasted.
    """
    merged: list[str] = []
    is_command = False
    for words in _columns(texts, hosts):
        is_command = is_command or (names is not None and words[0] == COMMAND)
        same = len(set(words)) == 1
        if is_command and names is not None and not (same and (words[0] == NAME or NAME not in words[0])):
            merged.append(_all_of([word.replace(NAME, host) for word, host in zip(words, hosts, strict=True)], names))
            is_command = False
        else:
            merged.append(_beside(words, hosts))
    return "".join(merged)


def _all_of(words: Sequence[str], names: Callable[[Sequence[str]], str]) -> str:
    """Return one expression for all addresses: me@h[1-4]:2201."""
    parts = [_ADDRESS.fullmatch(word) for word in words]
    ends = {(part[1], part[3]) for part in parts if part}
    if all(parts) and len(ends) == 1:
        folded = names([part[2] for part in parts if part])
        if "," not in _BRACKETS.sub("", folded):
            before, after = ends.pop()
            return f"{before}{folded}{after}"
    return ",".join(dict.fromkeys(words))


def _beside(words: Sequence[str], hosts: Sequence[str]) -> str:
    if len(set(words)) == 1:
        return words[0]
    distinct = list(dict.fromkeys(word.replace(NAME, host) for word, host in zip(words, hosts, strict=True)))
    before, after = "", ""
    parts = [match.groups() for match in map(_EDGES.fullmatch, distinct) if match]
    if len({(start, end) for start, _, end in parts}) == 1:
        before, _, after = parts[0]
        distinct = [word for _, word, _ in parts]
    shown = distinct if len(distinct) <= SHOWN else [*distinct[:SHOWN], LEFT_OUT]
    return before + "|".join(shown) + after
