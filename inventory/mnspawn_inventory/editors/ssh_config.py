"""Changes to ssh_configs by whole lines: a host is a `Host` block, and the first value of a keyword wins. No I/O."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mnspawn_inventory.editors.base import Asked, Document, Settings, wanted_of
from mnspawn_inventory.editors.lines import Lines
from mnspawn_inventory.errors import InventoryError
from mnspawn_inventory.export import SSH_KEYWORDS, ssh_line
from mnspawn_inventory.formats.ssh_config import is_pattern, words_of
from mnspawn_inventory.text import Line, Word


@dataclass
class _Block:
    """A `Host` or `Match` line and the keywords below it, by numbers of lines. `words` are those of a Host line."""

    header: int
    words: tuple[str, ...]
    last: int
    keywords: dict[str, list[int]] = field(default_factory=dict)


class SshConfigDocument(Document):
    """One ssh_config that is being edited. What `Include` brings in belongs to other files."""

    fields = tuple(SSH_KEYWORDS)
    has_groups: ClassVar[bool] = False

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._lines = Lines(text)

    def _written(self) -> str:
        return self._lines.text()

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        """Behind the last block of hosts, or before the first one: patterns that follow then say less than these."""
        new = [line for one in asked for name, said in one.each() for line in _block(name, said)]
        self._lines.renumber()
        lines = self._lines.lines
        blocks = list(self._blocks())
        plain = [block for block in blocks if block.words and not any(map(is_pattern, block.words))]
        if plain:
            at = plain[-1].last + 1
        elif blocks:
            at = self._before_comment(blocks[0].header)
            new.append("")
        else:
            at = len(lines)
        if at and lines[at - 1].strip() and not all(line.strip() for line in lines):
            new.insert(0, "")
        self._lines.before(at, *new)

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        self._lines.renumber()
        naming: dict[str, list[_Block]] = {}
        for block in self._blocks():
            for word in block.words:
                naming.setdefault(word, []).append(block)
        wanted = wanted_of(asked)
        moved: set[str] = set()
        for host in self.inventory.hosts:
            name, settings = host.name, wanted.get(host.name)
            if settings is None:
                continue
            if name not in naming:
                raise InventoryError(
                    "the host is in a file that this one includes",
                    place=host.origin("name"),
                    found=name,
                    hint="give that file by -i",
                )
            own = next((block for block in naming[name] if set(block.words) == {name}), None)
            if own is not None:
                self._set_in(own, settings)
            elif any(value is not None for value in settings.values()):
                # a block of its own before the one that it shares: the first value wins; order is by first mention
                shared = naming[name][0]
                first = [word for word in shared.words[: shared.words.index(name)] if naming[word][0] is shared]
                empty = [f"Host {word}" for word in first if word not in moved and not is_pattern(word)]
                self._lines.before(self._before_comment(shared.header), *empty, *_block(name, settings))
                moved.update(first, [name])

    def _set_in(self, block: _Block, settings: Settings) -> None:
        indent = "    "
        for lines in block.keywords.values():
            first = self._lines.lines[lines[0]]
            indent = first[: len(first) - len(first.lstrip())]
        for key, value in settings.items():
            there = block.keywords.get(SSH_KEYWORDS[key].lower(), [])
            if value is None:
                for number in there:
                    self._lines.replace(number)
            elif there:
                line = self._lines.lines[there[0]]
                last = self._words(there[0])[-1]
                behind = line[last.place.column - 1 + len(last.text) :].removeprefix('"')
                own_indent = line[: len(line) - len(line.lstrip())]
                self._lines.replace(there[0], f"{own_indent}{ssh_line(key, value)}{behind}")
            else:
                self._lines.behind(block.header, indent + ssh_line(key, value))

    def _remove_hosts(self, gone: Collection[str]) -> None:
        self._lines.renumber()
        lines = self._lines.lines
        for block in self._blocks():
            left = [word for word in block.words if word not in gone]
            if len(left) == len(block.words):
                continue
            if left and not all(word.startswith("!") for word in left):
                self._lines.replace(block.header, self._without(block.header, gone))
                continue
            end = block.last + 1
            if not any(line.strip() for line in (*lines[block.header - 1 : block.header], *lines[end : end + 1])):
                end += 1  # one blank line between blocks is enough
            for number in range(block.header, min(end, len(lines))):
                self._lines.replace(number)

    def _without(self, number: int, gone: Collection[str]) -> str:
        """A Host line without some of its names."""
        line = self._lines.lines[number]
        for word in reversed(self._words(number)[1:]):
            if word.text in gone:
                start = word.place.column - 1
                end = start + len(word.text)
                if line[start - 1] == '"':
                    start, end = start - 1, end + 1
                line = f"{line[:start].rstrip()} {line[end:].lstrip()}".rstrip()
        return line

    def _words(self, number: int) -> list[Word]:
        return words_of(Line(self.source, number + 1, self._lines.lines[number]))

    def _blocks(self) -> Iterator[_Block]:
        block: _Block | None = None
        for number in range(len(self._lines.lines)):
            words = self._words(number)
            if not words:
                continue
            keyword = words[0].text.lower()
            if keyword in ("host", "match"):
                if block is not None:
                    yield block
                block = _Block(number, tuple(word.text for word in words[1:]) if keyword == "host" else (), number)
            elif block is not None:
                block.keywords.setdefault(keyword, []).append(number)
                block.last = number
        if block is not None:
            yield block

    def _before_comment(self, header: int) -> int:
        """Where the comment lines directly above a line begin."""
        while header and self._lines.lines[header - 1].lstrip().startswith("#"):
            header -= 1
        return header


def _block(name: str, settings: Settings) -> list[str]:
    said = [(key, settings[key]) for key in SSH_KEYWORDS if settings.get(key) is not None]
    return [f"Host {name}", *(f"    {ssh_line(key, value)}" for key, value in said)]
