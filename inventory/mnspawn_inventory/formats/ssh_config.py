"""Reads an ssh_config: each `Host` name that is not a pattern, with what OpenSSH would take from this file."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mnspawn_inventory import names
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ssh_patterns import matches_any
from mnspawn_inventory.text import Line, Text, Word, read_text

KEYWORD = re.compile(r"\s*([A-Za-z][A-Za-z0-9]*)(?:\s*=\s*|\s+|\s*$)")
ARGUMENT = re.compile(r'"([^"]*)"|(\S+)')
TOKEN = re.compile(r"%(.?)")
TAKEN = {"hostname": "address", "user": "user", "port": "port", "proxyjump": "jump"}
WAYS = ("proxyjump", "proxycommand")
MAX_INCLUDES = 16  # readconf.c, READCONF_MAX_DEPTH

Condition = Callable[[str], bool]


@dataclass
class _Block:
    """The settings under one Host or Match line; `names` are the only hosts that it applies to, if known."""

    applies: Condition
    names: frozenset[str] | None = None
    settings: list[tuple[str, Word]] = field(default_factory=list)


class _File:
    """The blocks of a file and its includes, in order."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.aliases: dict[str, Origin] = {}
        self.notes: list[str] = []

    def blocks_of(self, aliases: Iterable[str]) -> Iterator[tuple[str, list[_Block]]]:
        """Each alias with the blocks that apply to it, in order."""
        named: dict[str, list[int]] = {}
        others: list[int] = []
        for index, block in enumerate(self.blocks):
            if not block.settings:
                continue
            if block.names is None:
                others.append(index)
            for name in block.names or ():
                named.setdefault(name, []).append(index)
        for alias in aliases:
            possible = sorted([*others, *named.get(alias, ())])
            yield alias, [self.blocks[index] for index in possible if self.blocks[index].applies(alias)]


def read(text: Text, draft: Draft) -> None:
    """Read the hosts of an ssh_config into the draft."""
    file = _File()
    _read(text, file, _always, 0)
    for alias, blocks in file.blocks_of(file.aliases):
        place = file.aliases[alias]
        if not names.HOST_NAME.fullmatch(alias) and not names.is_ipv6(alias):
            draft.notes.append(f"{place}: {alias!r} is not a host name that mnspawn takes")
            continue
        _take(alias, blocks, draft, place)
    draft.notes.extend(file.notes)


def _always(alias: str) -> bool:
    return True


def _take(alias: str, blocks: list[_Block], draft: Draft, place: Origin) -> None:
    """Set a host's fields; the first value of each keyword wins, as in ssh_config(5)."""
    values = draft.host(alias, place)
    found: dict[str, Word] = {}
    identities: list[Word] = []
    for block in blocks:
        for keyword, word in block.settings:
            if keyword == "identityfile":
                identities.append(word)
            else:
                found.setdefault(keyword, word)
    for keyword, target in TAKEN.items():
        if keyword in found and (keyword != "proxyjump" or "proxycommand" not in found or _is_first(keyword, found)):
            word = found[keyword]
            expanded = _expanded(word.text, {"h": alias, "n": alias})
            if expanded is not None or target == "address":
                values.set(target, word.text if expanded is None else expanded, word.place)
    way = next((keyword for keyword in found if keyword in WAYS), None)  # the first one wins
    if way == "proxycommand" and found[way].text.lower() != "none":
        values.set("proxy_command", found[way].text, found[way].place)
    elif way == "proxycommand":
        values.set("jump", "none", found[way].place)
    if len(identities) == 1 and identities[0].text.lower() != "none":
        address = values.get("address")
        path = _expanded(identities[0].text, {"d": "~", "h": str(address or alias), "n": alias})
        if path is not None:
            values.set("identity", path, identities[0].place)


def _is_first(keyword: str, found: dict[str, Word]) -> bool:
    return next(one for one in found if one in WAYS) == keyword


def _expanded(text: str, tokens: dict[str, str]) -> str | None:
    """The text with its tokens replaced; None if there are tokens that are known only when connecting."""
    known = {"%": "%", **tokens}
    if any(match[1] not in known for match in TOKEN.finditer(text)):
        return None
    return TOKEN.sub(lambda match: known[match[1]], text)


def _read(text: Text, file: _File, outer: Condition, depth: int) -> None:
    block = _Block(outer)
    file.blocks.append(block)
    for line in text.lines():
        words = words_of(line)
        if not words:
            continue
        keyword, arguments = words[0].text.lower(), words[1:]
        if not arguments:
            raise InventoryError(
                "a keyword without its value", place=words[0].place, found=words[0].text, expected="a value"
            )
        if keyword == "host":
            patterns = [argument.text for argument in arguments]
            plain = None if any(map(is_pattern, patterns)) else frozenset(patterns)
            applies = partial(matches_any, patterns=patterns) if plain is None else plain.__contains__
            block = _Block(_both(outer, applies), plain)
            file.blocks.append(block)
            for argument in arguments:
                if not is_pattern(argument.text):
                    file.aliases.setdefault(argument.text, argument.place)
        elif keyword == "match":
            condition = _match_condition([word.text for word in arguments])
            if condition is None:
                file.notes.append(f"{words[0].place}: Match is not evaluated here; ssh_config is asked when connecting")
            block = _Block(_both(outer, condition or _never))
            file.blocks.append(block)
        elif keyword == "include":
            for argument in arguments:
                _include(argument, file, block.applies, depth)
            block = _Block(block.applies, block.names)  # what follows comes after what was included
            file.blocks.append(block)
        else:
            value = arguments[0]
            if keyword == "proxycommand":  # the whole line, with quotes and "#"
                start = KEYWORD.match(line.text).end()  # type: ignore[union-attr]  # words_of has matched it
                value = Word(line.text[start:].strip(), line.place(start))
            block.settings.append((keyword, value))


def is_pattern(word: str) -> bool:
    """Whether a word of a Host line is a pattern."""
    return any(char in word for char in "*?!")


def _never(alias: str) -> bool:
    return False


def _both(outer: Condition, inner: Condition) -> Condition:
    return inner if outer is _always else lambda alias: outer(alias) and inner(alias)


def _match_condition(words: list[str]) -> Condition | None:
    """`Match all` and `Match originalhost/host PATTERNS`; None for criteria other than the name."""
    if [word.lower() for word in words] == ["all"]:
        return _always
    if len(words) == 2 and words[0].lower() in ("host", "originalhost"):
        return partial(matches_any, patterns=words[1].split(","))
    return None


def _include(argument: Word, file: _File, outer: Condition, depth: int) -> None:
    if depth >= MAX_INCLUDES:
        raise InventoryError("includes are nested too deeply", place=argument.place, found=argument.text)
    path = os.path.expanduser(argument.text)
    if not os.path.isabs(path):
        path = str(Path("~/.ssh").expanduser() / path)
    for match in sorted(glob.glob(path)):
        if os.path.isfile(match):
            _read(read_text(Path(match)), file, outer, depth + 1)


def words_of(line: Line) -> list[Word]:
    """Keyword and arguments; quotes keep blanks, "#" at the start of a word begins a comment."""
    content = line.text
    if not content.strip() or content.lstrip().startswith("#"):
        return []
    keyword = KEYWORD.match(content)
    if not keyword:
        raise InventoryError(
            "not a keyword",
            place=line.place(len(content) - len(content.lstrip())),
            found=content.strip(),
            expected="Keyword value",
        )
    words = [Word(keyword[1], line.place(keyword.start(1)))]
    position = keyword.end()
    while position < len(content):
        if content[position].isspace():
            position += 1
            continue
        if content[position] == "#":
            break
        match = ARGUMENT.match(content, position)
        if not match or (match[2] and match[2].startswith('"')):
            raise InventoryError("a quote is not closed", place=line.place(position), found=content[position:].strip())
        group = 1 if match[1] is not None else 2
        words.append(Word(match[group], line.place(match.start(group))))
        position = match.end()
    return words
