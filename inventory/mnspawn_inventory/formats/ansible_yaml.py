"""Reads Ansible's YAML inventories, and the YAML files of group_vars and host_vars."""

from typing import Any

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import AnsibleSource, Variables
from mnspawn_inventory.formats.ansible_range import expand_pattern
from mnspawn_inventory.formats.yaml_nodes import Builder, parse
from mnspawn_inventory.text import Text

MAX_GROUPS = 100_000
MAX_DEPTH = 200  # groups inside groups; real inventories have three levels
SECTIONS = ("hosts", "children", "vars")


def read(text: Text, source: AnsibleSource) -> None:
    """Read a YAML inventory: groups at the top, each with hosts, children and vars."""
    root = parse(text)
    if root is None:
        raise InventoryError("nothing in the file", place=Origin(text.source), expected="groups with hosts")
    reader = _Reader(text.source, source)
    for key, value in reader.build.pairs(root, "an Ansible inventory"):
        if key.value == "plugin":
            raise InventoryError(
                "the configuration of an Ansible plugin, not an inventory",
                place=reader.build.place(key),
                found=f"plugin: {reader.build.shown(value)}",
                hint="ansible-inventory -i FILE --list > hosts.json, then use hosts.json",
            )
        if not _is_anchors(key, value):
            reader.group(key, value, 0)


def _is_anchors(key: Any, node: Any) -> bool:
    """Whether it is not a group but `x-NAME` or `.NAME`, where people keep values to merge elsewhere."""
    if not isinstance(key.value, str) or not key.value.startswith(("x-", ".")):
        return False
    pairs = node.value if node.id == "mapping" else []
    return not any(title.value in SECTIONS for title, _ in pairs)


class _Reader:
    def __init__(self, path: str, source: AnsibleSource) -> None:
        self.build = Builder(path)
        self._source = source
        self._entries = 0

    def group(self, key: Any, node: Any, depth: int) -> str:
        place = self.build.place(key)
        name = names.check_group(self.build.shown(key), place)
        self._entries += 1
        if depth > MAX_DEPTH or self._entries > MAX_GROUPS:  # aliases of aliases can multiply groups without end
            raise InventoryError("groups are nested too deeply", place=place, found=name)
        group = self._source.group(name, place)
        for section, content in self.build.pairs(node, f"the group {name}"):
            title = self.build.shown(section)
            if title not in SECTIONS:
                raise InventoryError(
                    "unknown key in a group",
                    place=self.build.place(section),
                    found=title,
                    expected="hosts, children or vars",
                )
            if title == "vars":
                group.variables.update(self._variables(content))
            elif isinstance(content.value, str) and not self.build.is_empty(content):
                self._entry(name, title, content, None, depth)  # a single name
            else:
                for entry, settings in self.build.pairs(content, f"the {title} of {name}"):
                    self._entry(name, title, entry, settings, depth)
        return name

    def _entry(self, group: str, section: str, key: Any, node: Any, depth: int) -> None:
        place = self.build.place(key)
        if section == "children":
            child = self.group(key, node if node is not None else _empty(key), depth + 1)
            self._source.group(group, None).children[child] = place
            return
        hosts, port = expand_pattern(self.build.shown(key), place)
        variables = {} if node is None else self._variables(node)
        for host in hosts:
            own = self._source.host(host, place)
            if port is not None:
                own["ansible_port"] = (port, place)
            own.update(variables)
            self._source.group(group, None).hosts[host] = None

    def _variables(self, node: Any) -> Variables:
        pairs = self.build.pairs(node, "variables")
        return {self.build.shown(key): (self.build.value(value), self.build.place(value)) for key, value in pairs}


def read_variables(text: Text) -> Variables:
    """Read a file of group_vars or host_vars; a file that is encrypted as a whole is ignored."""
    if text.content.startswith("$ANSIBLE_VAULT"):
        return {}
    root = parse(text)
    if root is None:
        return {}
    build = Builder(text.source)
    pairs = build.pairs(root, "variables")
    return {build.shown(key): (build.value(value), build.place(value)) for key, value in pairs}


def _empty(node: Any) -> Any:
    import yaml

    return yaml.ScalarNode("tag:yaml.org,2002:null", "", node.start_mark, node.end_mark)
