"""Where each key and value of a valid JSON document stands: the json module tells values, not places. Pure."""

import json
import re
from bisect import bisect_right
from typing import Any

from mnspawn_inventory.errors import InventoryError, Origin

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+')

# What is inside: by key or position (place of the key or value, place of the value, what is inside of that)
_Inside = dict[Any, tuple[int, int, Any]]


class JsonPlaces:
    """Places in one document; a path is keys of objects and positions in lists.

    Raises:
        InventoryError: a key is there twice; json takes the last one in silence.
    """

    def __init__(self, content: str, source: str) -> None:
        self._content = content
        self._source = source
        self._starts = [0, *(match.end() for match in re.finditer("\n", content))]
        self._root: _Inside = {}
        self._scan()

    def key(self, *path: object) -> Origin:
        """Where the last key of the path is written, in a list the value; the nearest enclosing one where it is not."""
        return self._find(path, 0)

    def value(self, *path: object) -> Origin:
        """Where the value is written."""
        return self._find(path, 1)

    def _find(self, path: tuple[object, ...], which: int) -> Origin:
        inside: _Inside = self._root[0][2]
        found = self._root[0]
        for step in path:
            if not isinstance(inside, dict) or step not in inside:
                break
            found = inside[step]
            inside = found[2]
        return self._offset(found[which])

    def _offset(self, index: int) -> Origin:
        line = bisect_right(self._starts, index)
        return Origin(self._source, line, index - self._starts[line - 1] + 1)

    def _scan(self) -> None:
        inside: _Inside = self._root
        is_list = True
        key: Any = None
        key_at = 0
        above: list[tuple[_Inside, bool]] = []
        for match in TOKEN.finditer(self._content):
            text, at = match[0], match.start()
            first = text[0]
            if first in "}]":
                inside, is_list = above.pop()
                key = None
                continue
            if key is None and not is_list:
                key = json.loads(text) if "\\" in text else text[1:-1]
                key_at = at
                if key in inside:
                    raise InventoryError(
                        "a key is there twice", place=self._offset(at), found=key, expected="each key once"
                    )
                continue
            step, step_at = (len(inside), at) if is_list else (key, key_at)
            key = None
            if first in "{[":
                below: _Inside = {}
                inside[step] = (step_at, at, below)
                above.append((inside, is_list))
                inside, is_list = below, first == "["
            else:
                inside[step] = (step_at, at, None)
