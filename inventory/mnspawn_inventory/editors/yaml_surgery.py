"""Cuts into YAML text by the marks of its nodes: values changed, keys put in and taken away, nothing else. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.yaml_nodes import dump

COLON = re.compile(r"[ \t]*:")
ALIAS = re.compile(r"\s*:\s*\*[^\s,\]}]+")
GONE = object()  # as a value: the key is taken away


class YamlCuts:
    """Changes to one YAML document; `text()` has them all."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._cuts: list[tuple[int, int, str]] = []

    def text(self) -> str:
        parts: list[str] = []
        at = 0
        for start, end, new in sorted(self._cuts, key=lambda cut: cut[:2]):  # stable: in the order asked for
            parts += [self._text[at:start], new]
            at = max(at, end)
        return "".join([*parts, self._text[at:]])

    def start(self, wanted: Mapping[str, object]) -> None:
        """Begin a document where there is none, behind the comments that may be there."""
        self._cuts.append((len(self._text), len(self._text), block(wanted, 0) + "\n"))

    def put(self, key: Any, node: Any, wanted: Mapping[str, object], *, in_flow: bool = False) -> None:
        """Change a mapping, the value of `key` (None: the document): keys to values, GONE, or what is below them."""
        if is_mapping(node) and node.value:
            self._put_in(node, wanted)
        elif is_mapping(node) or is_null(node):
            self._fill(key, node, plain(wanted), in_flow)
        else:
            place = Origin(self._source, node.start_mark.line + 1, node.start_mark.column + 1)
            raise InventoryError(
                "this can't be edited as it is written", place=place, found=str(node.value)[:40], expected="a mapping"
            )

    def _put_in(self, node: Any, wanted: Mapping[str, object]) -> None:
        pairs = {key.value: (key, value) for key, value in node.value if isinstance(key.value, str)}
        new: dict[str, object] = {}
        gone = [name for name, value in wanted.items() if name in pairs and value is GONE]
        for name, value in wanted.items():
            if name not in pairs:
                if value is not GONE:
                    new[name] = plain(value) if isinstance(value, Mapping) else value
            elif isinstance(value, Mapping):
                self.put(*pairs[name], value, in_flow=bool(node.flow_style))
            elif value is not GONE:
                self._replace(*pairs[name], value)
        if node.flow_style:
            self._drop_from_flow(node, gone)
        else:
            for name in gone:
                self._drop_lines(*pairs[name])
        if not new:
            return
        kept = [pair for pair in node.value if pair[0].value not in gone]
        if node.flow_style:
            at = self._pair_end(*node.value[-1])
            self._cuts.append((at, at, (", " if kept else "") + flow(new)[1:-1]))
            return
        first = node.value[0][0].start_mark
        if kept:
            at = self._line_end(self._pair_end(*kept[-1]))
            self._cuts.append((at, at, "\n" + block(new, first.column)))
        else:
            at = self._text.rfind("\n", 0, first.index) + 1
            self._cuts.insert(0, (at, at, block(new, first.column) + "\n"))

    def _fill(self, key: Any, node: Any, wanted: dict[str, object], in_flow: bool) -> None:
        """Write into a mapping that has nothing in it yet."""
        if in_flow or is_mapping(node):  # `{a}`, `{a: }`, `{a: ~}`; `a: {}`
            self._replace(key, node, wanted)
            return
        start, end = node.start_mark.index, node.end_mark.index
        if start > key.end_mark.index:  # `~` and `null`
            self._cuts.append((start, end, ""))
        at = self._line_end(max(end, key.end_mark.index))
        self._cuts.append((at, at, "\n" + block(wanted, key.start_mark.column + 2)))

    def _replace(self, key: Any, node: Any, value: object) -> None:
        start, end = key.end_mark.index, node.end_mark.index
        if node.start_mark.index < start:
            place = Origin(self._source, key.start_mark.line + 1, key.start_mark.column + 1)
            raise InventoryError("what is written as an alias can't be edited", place=place, found=key.value)
        if node.start_mark.index < end and not self._text[node.start_mark.index : end].isspace():
            self._cuts.append((node.start_mark.index, end_of(node, self._text), flow(value)))
            return
        colon = COLON.match(self._text, start)
        self._cuts.append((start, colon.end() if colon else start, f": {flow(value)}"))

    def _pair_end(self, key: Any, node: Any) -> int:
        """Where a pair ends; the node of an alias is elsewhere."""
        if node.start_mark.index < key.end_mark.index:
            alias = ALIAS.match(self._text, key.end_mark.index)
            return int(alias.end() if alias else key.end_mark.index)
        return max(int(key.end_mark.index), end_of(node, self._text))

    def rename(self, key: Any, node: Any, names: list[str], is_flow: bool) -> None:
        """Write a pair once for each of the names."""
        start, end = key.start_mark.index, self._pair_end(key, node)
        if is_flow:
            rest = self._text[key.end_mark.index : end]
            self._cuts.append((start, end, ", ".join(flow(name) + rest for name in names)))
            return
        line, end = self._text.rfind("\n", 0, start) + 1, self._line_end(end)
        rest = self._text[key.end_mark.index : end]
        lines = [self._text[line:start] + flow(name) + rest for name in names]
        self._cuts.append((line, end, "\n".join(lines)))

    def drop(self, parent: Any, names: list[str]) -> None:
        """Take keys out of a mapping."""
        self._put_in(parent, dict.fromkeys(names, GONE))

    def _drop_from_flow(self, node: Any, gone: list[str]) -> None:
        """Each key goes with the comma behind it, the last ones with the comma before them."""
        if not gone:
            return
        pairs = node.value
        kept = [pair for pair in pairs if pair[0].value not in gone]
        if not kept:
            self._cuts.append((pairs[0][0].start_mark.index, self._pair_end(*pairs[-1]), ""))
            return
        last_kept = pairs.index(kept[-1])
        for number, (key, _) in enumerate(pairs[:last_kept]):
            if key.value in gone:
                self._cuts.append((key.start_mark.index, pairs[number + 1][0].start_mark.index, ""))
        if last_kept + 1 < len(pairs):
            self._cuts.append((self._pair_end(*kept[-1]), self._pair_end(*pairs[-1]), ""))

    def _drop_lines(self, key: Any, node: Any) -> None:
        start = self._text.rfind("\n", 0, key.start_mark.index) + 1
        end = self._line_end(self._pair_end(key, node))
        if self._text[start : key.start_mark.index].strip():  # a `- ` or `? ` before it
            place = Origin(self._source, key.start_mark.line + 1, key.start_mark.column + 1)
            raise InventoryError("this can't be edited as it is written", place=place, found=key.value)
        self._cuts.append((start, min(end + 1, len(self._text)), ""))

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        return len(self._text) if end < 0 else end


def is_mapping(node: Any) -> bool:
    return isinstance(node.value, list) and node.id == "mapping"


def is_null(node: Any) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def end_of(node: Any, text: str) -> int:
    """Where the last character of a node is: block collections end where the next token begins, comments between."""
    if isinstance(node.value, list) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(last, tuple):
            return max(int(last[0].end_mark.index), end_of(last[1], text))
        return end_of(last, text)
    end = int(node.end_mark.index)
    if node.id == "scalar" and node.style in ("|", ">"):
        return len(text[:end].rstrip())
    return end


def plain(wanted: Mapping[str, object]) -> dict[str, object]:
    """What is wanted without what is to go."""
    return {
        key: plain(value) if isinstance(value, Mapping) else value for key, value in wanted.items() if value is not GONE
    }


def flow(value: object) -> str:
    """A value on one line, as it may stand between braces."""
    return dump([value], flow_style=True).strip()[1:-1]


def block(wanted: Mapping[str, object], indent: int) -> str:
    """Keys with their values as lines; tables of tables are blocks, other tables stay on one line."""
    lines = []
    for key, value in wanted.items():
        head = " " * indent + flow(key)
        if value is None or value == {}:
            lines.append(f"{head}:")
        elif isinstance(value, Mapping) and any(isinstance(one, Mapping) or one is None for one in value.values()):
            lines += [f"{head}:", block(value, indent + 2)]
        else:
            lines.append(f"{head}: {flow(value)}")
    return "\n".join(lines)
