"""Changes to Ansible's YAML inventories by the marks of their nodes. No I/O."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mnspawn_inventory.draft import ALL
from mnspawn_inventory.editors.ansible import AnsibleDocument, Changes, Entry
from mnspawn_inventory.editors.yaml_surgery import GONE, YamlCuts, is_mapping
from mnspawn_inventory.formats.ansible_range import expand_pattern, patterns_of
from mnspawn_inventory.formats.yaml_nodes import Builder, compose
from mnspawn_inventory.text import Text


@dataclass(eq=False)
class _Group:
    """A place where a group is written: its key, its value, and the mapping that it stands in."""

    name: str
    key: Any
    node: Any
    parent: Any
    above: str  # the group whose child it is here; "" at the top

    def section(self, title: str) -> tuple[Any, Any] | None:
        """Key and value of `hosts`, `children` or `vars`."""
        pairs = self.node.value if is_mapping(self.node) else []
        return next((pair for pair in pairs if pair[0].value == title), None)


@dataclass(eq=False)
class _Where:
    """An entry's key and value, and the mapping that they stand in."""

    key: Any
    node: Any
    parent: Any


class YamlDocument(AnsibleDocument):
    """One Ansible inventory in YAML that is being edited."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._load(text)

    def has_content(self, text: str) -> bool:
        return compose(Text(self.source, text)) is not None

    def _load(self, text: str) -> None:
        self._text = text if not text or text.endswith("\n") else text + "\n"
        self._root = compose(Text(self.source, self._text))
        self._cuts = YamlCuts(self._text, self.source)
        self._build = Builder(self.source)
        self._groups = list(self._walk(self._root, "")) if self._root is not None else []

    def _walk(self, mapping: Any, above: str) -> Iterator[_Group]:
        for key, node in mapping.value if is_mapping(mapping) else ():
            group = _Group(key.value, key, node, mapping, above)
            yield group
            if children := group.section("children"):
                yield from self._walk(children[1], group.name)

    def _written(self) -> str:
        return self._cuts.text()

    def _entries(self) -> list[Entry]:
        self._load(self._written())
        return [
            Entry(
                tuple(expand_pattern(self._build.shown(key), None)[0]),
                self._variables(node),
                group.name,
                _Where(key, node, hosts[1]),
            )
            for group in self._groups
            if (hosts := group.section("hosts")) and is_mapping(hosts[1])
            for key, node in hosts[1].value
        ]

    def _variables(self, node: Any) -> Mapping[str, object]:
        """What a mapping says itself, not what it merges in."""
        pairs = node.value if is_mapping(node) else []
        return {self._build.shown(key): self._build.value(value) for key, value in pairs}

    def _put_hosts(self, group: str, hosts: Mapping[str, Changes]) -> None:
        new: dict[str, object] = {}
        for name, said in hosts.items():
            new[name] = {key: one for key, one in said.items() if one is not None}
        self._put_group(group or ALL, {"hosts": new})

    def _put_group(self, name: str, wanted: Mapping[str, object]) -> None:
        """Put something into a group, made where it is new."""
        self._load(self._written())
        places = [group for group in self._groups if group.name == name]
        section = next(iter(wanted))
        best = next((group for group in places if group.section(section)), places[0] if places else None)
        if best is not None:
            self._cuts.put(best.key, best.node, wanted, in_flow=bool(best.parent.flow_style))
            return
        everything = next((group for group in self._groups if group.name == ALL and not group.above), None)
        if everything is not None:
            made: Mapping[str, object] = {"children": {name: wanted}}
            self._cuts.put(everything.key, everything.node, made, in_flow=bool(everything.parent.flow_style))
        elif self._root is None:
            self._cuts.start({ALL: wanted if name == ALL else {"children": {name: wanted}}})
        else:
            self._cuts.put(None, self._root, {name: wanted})

    def _entry_beside(self, entry: Entry, name: str) -> Entry:
        return Entry((name,), {}, entry.group, None)

    def _change(self, entry: Entry) -> None:
        if entry.where is None:  # a key of its own beside that of a range
            group = next(one for one in self._groups if one.name == entry.group and one.section("hosts"))
            hosts = group.section("hosts")
            assert hosts is not None  # `next` looked for it
            self._cuts.put(*hosts, {entry.names[0]: dict(entry.changes)}, in_flow=bool(group.node.flow_style))
            return
        where: _Where = entry.where
        wanted = {key: GONE if value is None else value for key, value in entry.changes.items()}
        self._cuts.put(where.key, where.node, wanted, in_flow=bool(where.parent.flow_style))

    def _group_variables(self, name: str) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for group in self._groups:
            if group.name == name and (variables := group.section("vars")):
                found.update(self._variables(variables[1]))
        return found

    def _change_group(self, name: str, changes: Changes) -> None:
        self._put_group(name, {"vars": {key: GONE if value is None else value for key, value in changes.items()}})

    def _remove_hosts(self, gone: Collection[str]) -> None:
        by_parent: dict[int, tuple[Any, list[str]]] = {}
        for entry in self._entries():
            left = [name for name in entry.names if name not in gone]
            where: _Where = entry.where
            if not left:
                by_parent.setdefault(id(where.parent), (where.parent, []))[1].append(where.key.value)
            elif len(left) < len(entry.names):
                suffix = self._build.shown(where.key).rpartition("]")[2]
                port = suffix[suffix.index(":") :] if ":" in suffix else ""
                heads = [f"{one}{port}" for one in patterns_of(left)]
                self._cuts.rename(where.key, where.node, heads, bool(where.parent.flow_style))
        for parent, keys in by_parent.values():
            self._cuts.drop(parent, keys)

    def _remove_group(self, name: str) -> None:
        """Take a group away everywhere; hosts that are written nowhere else would be lost."""
        entries = self._entries()
        own = {host for entry in entries if entry.group == name for host in entry.names}
        others = {host for entry in entries if entry.group != name for host in entry.names}
        if own - others or any(entry.variables for entry in entries if entry.group == name):
            raise self._hosts_would_be_lost(name, own)
        elsewhere = {group.name for group in self._groups if group.above != name}
        below = {group.name for group in self._groups if group.above == name} - elsewhere
        if below:
            raise self._hosts_would_be_lost(name, below)
        for group in self._groups:
            if group.name == name:
                self._cuts.drop(group.parent, [name])
