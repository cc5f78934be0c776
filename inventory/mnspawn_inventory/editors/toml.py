"""Edits our own format, keeping comments and unknown keys: add, set, remove, merge. Text to text, no I/O."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mnspawn_inventory.editors.document import Asked, Document, Settings, nested, one_of
from mnspawn_inventory.editors.toml_tables import comments_of, cut_tables, insert_tables, rename, written
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import OWN, own
from mnspawn_inventory.model import Group, Inventory
from mnspawn_inventory.settings import flat_settings, own_hosts, settings_of
from mnspawn_inventory.toml_text import RANGED, HostRun, group_settings, patterns, table_text, toml_key


class TomlDocument(Document):
    """One TOML inventory that is being edited."""

    def __init__(self, text: str, source: str, format_name: str = OWN) -> None:
        import tomlkit  # late: only edits need it

        super().__init__(text, source, format_name)
        self._kit = tomlkit
        self._covered: set[str] | None = None  # the hosts that have tables, once they are needed
        try:
            self._root = tomlkit.parse(text)
        except tomlkit.exceptions.TOMLKitError as exc:  # though tomllib, which has fewer bugs, could read it
            raise InventoryError(
                f"this TOML can be read, but not edited: {exc}",
                place=Origin(source),
                hint="mnspawn inventory edit opens the file in your editor",
            ) from exc

    def _written(self) -> str:
        return self._kit.dumps(self._root)

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        self._put_hosts([(one.target, nested(one.settings)) for one in asked])
        for group in groups:
            self._join(group, [one.target for one in asked])

    def merge(self, runs: Iterable[HostRun], other: Inventory) -> None:
        """Add the hosts and groups of another inventory; existing hosts keep values that the other does not have."""
        known = {host.name for host in self.inventory.hosts}
        new: list[tuple[str, Settings]] = []
        for run in runs:
            if known.isdisjoint(run.names):
                new.append((run.pattern, run.settings))
                continue
            for index, name in enumerate(run.names):
                settings = one_of(run.settings, index, len(run.names), self.source)
                if name in known:
                    self._update(self._host_table(name), settings)
                else:
                    new.append((name, settings))
        self._put_hosts(new)
        there = {group.name: group for group in self.inventory.groups}
        fresh = [group for group in other.groups if group.name not in there]
        self._put("groups", [(group.name, group_settings(group, other)) for group in fresh])
        for group in other.groups:
            if group.name in there:
                self._merge_group(there[group.name], group, other)
        self._edit.is_merge = True
        for host in other.hosts:
            self._edit.hosts[host.name] = flat_settings(host)
        self._edit.added += [host.name for host in other.hosts if host.name not in known]

    def _merge_group(self, there: Group, group: Group, other: Inventory) -> None:
        listed = group_settings(group, other).get("hosts", [])
        members = [name for pattern in listed for name in own.expand(pattern, None)] if isinstance(listed, list) else []
        missing = [name for name in members if name not in there.hosts]
        if missing:
            self._join(group.name, patterns(missing))
        children = [child for child in group.children if child not in there.children]
        if children:
            self._group_table(group.name).setdefault("children", self._kit.array()).extend(children)

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        for one in asked:
            tables = self._tables("hosts")
            if one.target in tables and not (len(one.names) > 1 and any(name in tables for name in one.names)):
                self._update(tables[one.target], one.settings)
                continue
            for name, settings in one.each():
                if name in tables or any(value is not None for value in settings.values()):
                    self._update(self._host_table(name), settings)

    def _set_group(self, name: str, settings: Settings) -> None:
        self._update(self._group_table(name), settings)

    def _remove_hosts(self, gone: Collection[str]) -> None:
        hosts = self._root.get("hosts", [])
        if isinstance(hosts, list):
            self._thin_out(hosts, gone)
        for group in self._tables("groups").values():
            self._thin_out(group if isinstance(group, list) else group.get("hosts", []), gone)
        empty: list[str] = []
        for pattern in [str(key) for key in self._tables("hosts")]:
            names = own.expand(pattern, None)
            left = [name for name in names if name not in gone]
            if not left:
                empty.append(pattern)
            elif left != names:
                self._shrink(pattern, names, left)
        self._cut("hosts", empty)

    def _cut(self, top: str, names: Collection[str]) -> None:
        """Remove tables; what follows them, comments included, stays."""
        if not names:
            return
        text, cut = cut_tables(self._kit.dumps(self._root), top, set(names))
        self._root = self._kit.parse(text)
        for name in names:
            if name not in cut or name in self._tables(top):  # written inline, or with dots
                del self._root[top][name]

    def _shrink(self, pattern: str, names: list[str], left: list[str]) -> None:
        """Reduce a range's table to the hosts that are left, with their addresses."""
        table = self._tables("hosts")[pattern]
        addresses: dict[str, object] = {}
        for key in RANGED:
            if key in table and own.is_plural(str(table[key])):
                every = own.expand(str(table[key]), None)
                addresses[key] = shortened([every[names.index(name)] for name in left])
        name = shortened(left)
        if name in self._tables("hosts"):  # the only host left has a table of its own, which must still win
            if not name[-1].isdigit():
                self._fold_into(name, pattern)
                return
            number = name[len(name.rstrip("0123456789")) :]
            name = f"{name.removesuffix(number)}[{number}]"
        text = rename(self._kit.dumps(self._root), ("hosts", pattern), name, addresses)
        self._root = self._kit.parse(text)

    def _fold_into(self, name: str, pattern: str) -> None:
        """Move the values of a range's table that a host's own table does not have there, and remove the former."""
        names = own.expand(pattern, None)
        values = one_of(self._tables("hosts")[pattern].unwrap(), names.index(name), len(names), self.source)
        table = self._tables("hosts")[name]
        for key, value in values.items():
            if key not in table:
                self._put_value(table, key, value)
        self._cut("hosts", [pattern])

    def _thin_out(self, members: Any, gone: Collection[str]) -> None:
        """Remove names from a list of patterns; a range is replaced by the rest of it."""
        for index in reversed(range(len(members))):
            pattern = str(members[index])
            if pattern.startswith("@"):
                continue
            names = own.expand(pattern, None)
            left = [name for name in names if name not in gone]
            if not left:
                del members[index]
            elif left != names:
                members[index] = shortened(left)

    def _remove_group(self, name: str) -> None:
        """Remove a group everywhere; hosts that only this group names get tables of their own."""
        listed = {group.name: own_hosts(group, self.inventory) for group in self.inventory.groups}
        others = {host for group, hosts in listed.items() if group != name for host in hosts}
        alone = [one for host in listed.get(name, []) if host not in others for one in self._uncovered(host)]
        if alone:
            self._put_hosts([(pattern, {}) for pattern in patterns(alone)], as_tables=True)
        if name in self._tables("groups"):
            self._cut("groups", [name])
        for group in self._tables("groups").values():
            members = group if isinstance(group, list) else group.get("hosts", [])
            if f"@{name}" in members:
                members.remove(f"@{name}")
            if not isinstance(group, list) and name in group.get("children", []):
                group["children"].remove(name)
        for host in self._tables("hosts").values():
            if name in host.get("groups", []):
                host["groups"].remove(name)

    # -- shared

    def _tables(self, top: str) -> Any:
        tables = self._root.get(top)
        return tables if tables is not None and not isinstance(tables, list) else {}

    def _host_table(self, name: str) -> Any:
        if name not in self._tables("hosts"):
            *before, _ = self._uncovered(name) or [name]
            self._put_hosts([*((pattern, {}) for pattern in patterns(before)), (name, {})], as_tables=True)
        return self._tables("hosts")[name]

    def _uncovered(self, name: str) -> list[str]:
        """A host that only groups name, preceded by others like it: a table for it alone would change the order."""
        if self._covered is None:
            keys = [str(key) for key in self._root.get("hosts", [])]
            self._covered = {one for key in keys for one in own.expand(key, None)}
            self._waiting = iter(self.inventory.hosts)
        if name in self._covered:
            return []
        found: list[str] = []
        for host in self._waiting:  # continues where the last call stopped
            if host.name not in self._covered:
                found.append(host.name)
            if host.name == name:
                break
        self._covered.update(found)
        return found

    def _group_table(self, name: str) -> Any:
        tables = self._tables("groups")
        if name in tables and isinstance(tables[name], list):  # the short form: a list of hosts
            members = written(self._kit.dumps(self._root), ("groups", name))
            del self._root["groups"][name]
            self._insert("groups", f"[groups.{toml_key(name)}]\nhosts = {members}\n")
        elif name not in tables:
            self._put("groups", [(name, {})])
        return self._tables("groups")[name]

    def _put_hosts(self, new: Sequence[tuple[str, Settings]], *, as_tables: bool = False) -> None:
        hosts = self._root.get("hosts")
        if isinstance(hosts, list) and not as_tables and not any(settings for _, settings in new):
            hosts.extend(pattern for pattern, _ in new)
            return
        if isinstance(hosts, list):  # the short form can't hold settings: each host gets a table
            listed = [str(item) for item in hosts]
            comments = comments_of(written(self._kit.dumps(self._root), ("hosts",)))
            del self._root["hosts"]
            self._insert("hosts", comments + "\n".join(table_text(("hosts", one), {}) for one in listed))
            new = [pair for pair in new if pair[0] not in listed]
        self._put("hosts", new)

    def _put(self, top: str, new: Sequence[tuple[str, Settings]]) -> None:
        """Add tables, inside the inline table if there is one."""
        if not new:
            return
        parent = self._root.get(top)
        if parent is not None and type(parent).__name__ == "InlineTable":
            for name, settings in new:
                parent[name] = self._item(settings)
            return
        self._insert(top, "\n".join(table_text((top, name), settings) for name, settings in new))

    def _insert(self, top: str, block: str) -> None:
        self._root = self._kit.parse(insert_tables(self._kit.dumps(self._root), top, block))

    def _item(self, value: object) -> Any:
        if isinstance(value, Mapping):
            inline = self._kit.inline_table()
            for key, item in value.items():
                inline[str(key)] = self._item(item)
            return inline
        return self._kit.item(list(value) if isinstance(value, tuple) else value)

    def _update(self, table: Any, settings: Settings) -> None:
        """Set and remove fields; `env.NAME` and `labels.NAME` are in tables of their own."""
        for key, value in settings.items():
            top, _, inner = key.partition(".")
            if inner:
                if top not in table:
                    if value is None:
                        continue
                    table[top] = self._kit.inline_table()
                self._put_value(table[top], inner, value)
            elif isinstance(value, Mapping) and top in table:
                for name, one in value.items():
                    self._put_value(table[top], name, one)
            else:
                self._put_value(table, key, value)

    def _put_value(self, table: Any, key: str, value: object) -> None:
        if value is None:
            if key in table:
                del table[key]
        elif key in table:
            if table[key] != value:
                table[key] = self._item(value)
        elif isinstance(table, self._kit.items.Table):
            trailing = []  # comments at the end of the table belong to what follows it
            body = table.value.body
            while body and body[-1][0] is None:
                trailing.append(body.pop())
            table[key] = self._item(value)
            body.extend(reversed(trailing))
        else:
            table[key] = self._item(value)

    def _join(self, group: str, members: Iterable[str]) -> None:
        tables = self._tables("groups")
        if group in tables and isinstance(tables[group], list):
            hosts = tables[group]
        else:
            hosts = self._group_table(group).setdefault("hosts", self._kit.array())
        hosts.extend(member for member in members if member not in hosts)


def shortened(names: Sequence[str]) -> str:
    """One pattern for exactly these names in this order: `gpu[01-02,04]`, or several with commas."""
    found = patterns(names)
    heads = {pattern.partition("[")[0] if "[" in pattern else pattern.rstrip("0123456789") for pattern in found}
    if len(found) == 1 or len(heads) > 1 or not all(pattern[-1] in "]0123456789" for pattern in found):
        return ",".join(found)
    head = heads.pop()
    return f"{head}[{','.join(pattern[len(head) :].strip('[]') for pattern in found)}]"


def conflicts(there: Inventory, other: Inventory) -> list[tuple[str, str]]:
    """(host, field) pairs for which the two inventories have different values."""
    known = {host.name: settings_of(host) for host in there.hosts}
    return [
        (host.name, field)
        for host in other.hosts
        if host.name in known
        for field, value in settings_of(host).items()
        if field in known[host.name] and known[host.name][field] != value
    ]
