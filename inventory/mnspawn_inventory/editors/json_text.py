"""Changes to JSON: read, changed and written again with the same indentation; keys that nobody knows stay. No I/O."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mnspawn_inventory.draft import ALL
from mnspawn_inventory.editors.ansible import AnsibleDocument, Changes, Entry
from mnspawn_inventory.editors.base import Asked, Document, Settings, nested, wanted_of
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import UNGROUPED

INDENT = re.compile(r"\n([ \t]+)\S")


class JsonText:
    """A JSON object and how it is written."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self.root: dict[str, Any] = json.loads(text) if text.strip() else {}
        indent = INDENT.search(text)
        self._indent = indent[1] if indent else None if text.strip() else "  "
        self._separators = (",", ":") if self._indent is None and ": " not in text else None
        self._is_ascii = "\\u" in text and text.isascii()
        self._end = text[len(text.rstrip()) :] if text.strip() else "\n"

    def text(self) -> str:
        try:
            made = json.dumps(
                self.root,
                indent=self._indent,
                separators=self._separators,
                ensure_ascii=self._is_ascii,
                allow_nan=False,
            )
        except (ValueError, RecursionError) as exc:  # a number or a depth beyond all use
            raise InventoryError(f"this JSON can't be written again: {exc}", place=Origin(self._source)) from exc
        return made + self._end


class OwnJsonDocument(Document):
    """`{"hosts": [{"name": ...}], "groups": [...]}`, as `mnspawn inventory list --json` and `export` write it."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._json = JsonText(text, source)

    def _written(self) -> str:
        return self._json.text()

    def _hosts(self) -> list[dict[str, Any]]:
        if not self._json.root.get("hosts"):
            self._json.root["hosts"] = []
        hosts: list[dict[str, Any]] = self._json.root["hosts"]
        return hosts

    def _groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self._json.root.get("groups") or []
        return groups

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        for name, said in wanted_of(asked).items():
            self._hosts().append({"name": name, **nested(said), **({"groups": list(groups)} if groups else {})})
            for group in self._groups():
                if group.get("name") in groups and isinstance(group.get("hosts"), list):
                    group["hosts"].append(name)

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        tables = {_bare(table["name"]): table for table in self._hosts()}
        for name, settings in wanted_of(asked).items():
            for key, value in settings.items():
                top, _, inner = key.partition(".")
                if not inner:
                    _put(tables[name], key, value)
                    continue
                if not tables[name].get(top):
                    tables[name][top] = {}
                tables[name][top].pop(inner, None)
                if value is not None:
                    tables[name][top][inner] = value

    def _remove_hosts(self, gone: Collection[str]) -> None:
        self._json.root["hosts"] = [table for table in self._hosts() if _bare(table["name"]) not in gone]
        for group in self._groups():
            if isinstance(group.get("hosts"), list):
                group["hosts"] = [name for name in group["hosts"] if _bare(name) not in gone]

    def _remove_group(self, name: str) -> None:
        """The groups of a host have those above them, too, so these may stay."""
        if "groups" in self._json.root:
            self._json.root["groups"] = [group for group in self._groups() if group.get("name") != name]
        for table in (*self._hosts(), *self._groups()):
            for key in ("groups", "children"):
                if name in (table.get(key) or ()):
                    table[key].remove(name)


class AnsibleJsonDocument(AnsibleDocument):
    """What `ansible-inventory --list` prints: groups, and the variables of hosts under `_meta`."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._json = JsonText(text, source)

    def _written(self) -> str:
        return self._json.text()

    def _hostvars(self) -> dict[str, Any]:
        meta = self._json.root.setdefault("_meta", {})
        hostvars: dict[str, Any] = meta.setdefault("hostvars", {})
        return hostvars

    def _group(self, name: str) -> dict[str, Any]:
        """A group as an object; it may be a list of hosts, or the variables of a host of its name."""
        content = self._json.root.get(name)
        if isinstance(content, list):
            content = {"hosts": content}
        elif content and not content.keys() & {"hosts", "vars", "children"}:
            content = {"hosts": [name], "vars": content}
        self._json.root[name] = content or {}
        group: dict[str, Any] = self._json.root[name]
        return group

    def _names(self) -> list[str]:
        return [name for name in self._json.root if name != "_meta"]

    def _entries(self) -> list[Entry]:
        there = {host: group for group in reversed(self._names()) for host in self._group(group).get("hosts", [])}
        return [Entry((_bare(host),), self._hostvars().get(host) or {}, group, host) for host, group in there.items()]

    def _put_hosts(self, group: str, hosts: Mapping[str, Changes]) -> None:
        table = self._group(group or UNGROUPED)
        table.setdefault("hosts", []).extend(hosts)
        if group and ALL in self._json.root and "children" in self._group(ALL):
            children = self._group(ALL)["children"]
            if group not in children:
                children.append(group)
        for name, said in hosts.items():
            if any(value is not None for value in said.values()):
                self._put_all(self._hostvars().setdefault(name, {}), said)

    def _change(self, entry: Entry) -> None:
        self._put_all(self._hostvars().setdefault(entry.where, {}), entry.changes)

    def _group_variables(self, name: str) -> Settings:
        variables: Settings = self._group(name).get("vars") or {} if name in self._json.root else {}
        return variables

    def _change_group(self, name: str, changes: Changes) -> None:
        self._put_all(self._group(name).setdefault("vars", {}), changes)

    def _put_all(self, table: dict[str, Any], changes: Changes) -> None:
        for key, value in changes.items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value

    def _remove_hosts(self, gone: Collection[str]) -> None:
        for name in self._names():
            group = self._group(name)
            if "hosts" in group:
                group["hosts"] = [host for host in group["hosts"] if _bare(host) not in gone]
        hostvars = self._hostvars()
        for host in [host for host in hostvars if _bare(host) in gone]:
            del hostvars[host]

    def _remove_group(self, name: str) -> None:
        own = self._json.root.pop(name, {})
        hosts = own if isinstance(own, list) else own.get("hosts", [])
        others = {host for group in self._names() for host in self._group(group).get("hosts", [])}
        for group in self._names():
            children = self._group(group).get("children", [])
            if name in children:
                children.remove(name)
        if lost := [host for host in hosts if host not in others]:
            self._group(UNGROUPED).setdefault("hosts", []).extend(lost)


def _put(table: dict[str, Any], key: str, value: object) -> None:
    """Set a value; one that is taken away stays as null where it was written, as the export has it."""
    if value is not None:
        table[key] = value
    elif key in table:
        table[key] = None


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("[") else name
