"""Where each key and value of a valid JSON document is written, since the json module has no places. Pure."""

import json
import re
from typing import Any

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.text import Offsets

STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# a key with the start of its value, or an item of a list, or a closing bracket
TOKEN = re.compile(rf'(?:({STRING})\s*:\s*)?({STRING}|[{{}}\[\]]|[^\s{{}}\[\],:"]+)')

# Contents by key or position: (offset of the key or item, offset of the value, the contents of the value)
_Inside = dict[Any, tuple[int, int, Any]]


class JsonPlaces:
    """The places in one document; a path consists of keys and list positions.

    Raises:
        InventoryError: a key is there twice, of which json would silently take the last one.
    """

    def __init__(self, content: str, source: str) -> None:
        self._content = content
        self._offsets = Offsets(content, source)
        self._root: _Inside = {}
        self._scan()

    def key(self, *path: str | int) -> Origin:
        """Where the last key (or list item) of the path is written, or else the nearest enclosing one."""
        return self._find(path, 0)

    def value(self, *path: str | int) -> Origin:
        """Where the value is written."""
        return self._find(path, 1)

    def _find(self, path: tuple[str | int, ...], which: int) -> Origin:
        inside: _Inside = self._root[0][2]
        found = self._root[0]
        for step in path:
            if not isinstance(inside, dict) or step not in inside:
                break
            found = inside[step]
            inside = found[2]
        return self._offsets.place(found[which])

    def _scan(self) -> None:
        inside: _Inside = self._root
        above: list[_Inside] = []
        for match in TOKEN.finditer(self._content):
            key, text = match.groups()
            first = text[0]
            if first in "}]":
                inside = above.pop()
                continue
            at = match.start(2)
            step: Any = len(inside)
            step_at = at
            if key is not None:
                step, step_at = json.loads(key) if "\\" in key else key[1:-1], match.start()
                if step in inside:
                    raise InventoryError(
                        "a key is there twice", place=self._offsets.place(step_at), found=step, expected="each key once"
                    )
            below: _Inside | None = {} if first in "{[" else None
            inside[step] = (step_at, at, below)
            if below is not None:
                above.append(inside)
                inside = below
