"""YAML with places: documents as nodes with line and column; values are built by PyYAML's safe rules."""

import functools
from typing import Any

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible_template import Literal, Opaque
from mnspawn_inventory.text import Text

MAX_NODES = 1_000_000  # aliases of aliases ("billion laughs") would fill the memory
MAX_LEVELS = 100
PLAIN_TAGS = "tag:yaml.org,2002:"


def parse(text: Text) -> Any:
    """The root node of the only document; None if it is empty.

    Raises:
        InventoryError: it is not valid YAML; with the place.
    """
    import yaml  # late: only these formats need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.compose(text.content, Loader=loader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = Origin(text.source, mark.line + 1, mark.column + 1) if mark else Origin(text.source)
        lines = text.content.split("\n")
        written = lines[mark.line].strip() if mark and mark.line < len(lines) else ""
        what = exc.problem or exc.context or "unreadable"
        raise InventoryError(f"not valid YAML: {what}", place=place, found=written or None) from None
    except yaml.YAMLError as exc:
        raise InventoryError(f"not valid YAML: {str(exc).splitlines()[0]}", place=Origin(text.source)) from None
    except RecursionError:
        raise InventoryError("not valid YAML: nested too deeply", place=Origin(text.source)) from None


def dump(value: object) -> str:
    """A value as YAML for Ansible: text that looks like a template is marked `!unsafe`, null is left empty."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=_dumper(), default_flow_style=False, width=1 << 30, allow_unicode=True, sort_keys=False
    )
    return text


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # found at run time
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent(dumper: Any, text: str) -> Any:
        is_template = "{{" in text or "{%" in text
        return dumper.represent_scalar("!unsafe", text, "'") if is_template else dumper.represent_str(text)

    Dumper.add_representer(str, represent)
    Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", ""))
    return Dumper


class Builder:
    """Turns the nodes of one document into values."""

    def __init__(self, source: str) -> None:
        import yaml

        self._source = source
        self._constructor = yaml.SafeLoader("")
        self._nodes = 0

    def place(self, node: Any) -> Origin:
        return Origin(self._source, node.start_mark.line + 1, node.start_mark.column + 1)

    def pairs(self, node: Any, what: str, depth: int = 0) -> list[tuple[Any, Any]]:
        """Key and value nodes of a mapping, with `<<` merged in; none for an empty node.

        Raises:
            InventoryError: it is not a mapping, or has a key twice.
        """
        import yaml

        if self.is_empty(node):
            return []
        if depth > MAX_LEVELS:
            raise InventoryError("a mapping that is merged into itself", place=self.place(node), found="<<")
        if not isinstance(node, yaml.MappingNode):
            raise InventoryError(f"not {what}", place=self.place(node), found=self.shown(node), expected="a mapping")
        merged: dict[str, tuple[Any, Any]] = {}
        own: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    for pair in self.pairs(one, "a mapping to merge", depth + 1):
                        merged.setdefault(self.shown(pair[0]), pair)
                continue
            name = self.shown(key)
            if name in own:
                raise InventoryError(
                    "a key is there twice", place=self.place(key), found=name, expected="each key once"
                )
            own[name] = (key, value)
        return [pair for name, pair in merged.items() if name not in own] + list(own.values())

    def is_empty(self, node: Any) -> bool:
        return bool(node.tag == "tag:yaml.org,2002:null")

    def shown(self, node: Any) -> str:
        """A scalar's text, or the kind of the node."""
        return node.value if isinstance(node.value, str) else f"a {node.id}"

    def value(self, node: Any, depth: int = 0) -> object:
        """The Python value of a node; tagged ones (`!vault`) are opaque."""
        import yaml

        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_LEVELS:
            raise InventoryError(
                "a value is nested too deeply", place=self.place(node), expected=f"at most {MAX_LEVELS} levels"
            )
        if not node.tag.startswith(PLAIN_TAGS):
            return self._text_of_unsafe(node)
        if isinstance(node, yaml.MappingNode):
            return {self.shown(key): self.value(item, depth + 1) for key, item in self.pairs(node, "a mapping")}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        try:
            built = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):  # `!!int x`, dates that are none
            return node.value
        # dates and other values for which there is no field stay text
        return built if isinstance(built, str | int | float | bool) or built is None else node.value

    def _text_of_unsafe(self, node: Any) -> object:
        """`!unsafe` marks text without templates for Ansible; values with other tags are opaque."""
        return Literal(node.value) if node.tag == "!unsafe" and isinstance(node.value, str) else Opaque(node.tag)
