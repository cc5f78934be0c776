"""Our own format: TOML with `[hosts.NAME]` and `[groups.NAME]`, ranges in names, secrets by reference."""

import re
import tomllib

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.draft import Draft, GroupDraft, Values
from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean, listed_twice
from mnspawn_inventory.expression import parts
from mnspawn_inventory.formats.table import read_settings
from mnspawn_inventory.formats.toml_places import Path, TomlPlaces
from mnspawn_inventory.groups import ALL
from mnspawn_inventory.text import Text
from mnspawn_inventory.toml_text import RANGED

AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
SHARED_KEYS = (*fields.FIELDS, "env", "labels")
HOST_KEYS = (*SHARED_KEYS, "groups")
GROUP_KEYS = ("hosts", "children", *SHARED_KEYS)
TOP = ("hosts", "groups")


def read(text: Text, draft: Draft) -> None:
    """Read a TOML inventory into the draft; its values win over those already there.

    Top-level keys other than `hosts` and `groups` are ignored: a project's file has settings, too.
    """
    document = load(text)
    reader = _Reader(text, document, draft)
    reader.read_hosts()
    reader.read_groups()


def load(text: Text) -> dict[str, object]:
    """Parse TOML.

    Raises:
        InventoryError: it is not valid TOML; with the place.
    """
    try:
        return tomllib.loads(text.content)
    except tomllib.TOMLDecodeError as exc:
        message = str(exc)
        at = AT.search(message)
        lines = text.content.split("\n")
        line, column = (int(at[1]), int(at[2])) if at and at[1] else (len(lines), len(lines[-1]) + 1)
        written = lines[line - 1].strip() or None if line <= len(lines) else None
        reason = AT.sub("", message)
        raise InventoryError(
            f"not valid TOML: {reason[:1].lower()}{reason[1:]}", place=Origin(text.source, line, column), found=written
        ) from None
    except RecursionError:
        raise InventoryError("not valid TOML: nested too deeply", place=Origin(text.source)) from None


def is_plural(pattern: str) -> bool:
    """Whether it may stand for several hosts: a range, or several patterns separated by commas."""
    return "," in pattern or nodeset.has_range(pattern)


def expand(pattern: str, place: Origin | None) -> list[str]:
    """The hosts of `gpu[01-04,07]`, or of several patterns separated by commas, in the order written."""
    if not is_plural(pattern):
        return [names.check_name(pattern, place)]
    found = [name for part in parts(pattern, place) for name in _names(part, place)]
    if len(set(found)) < len(found):
        raise listed_twice(pattern, place)
    return found


def _names(part: str, place: Origin | None) -> list[str]:
    expanded = nodeset.expand(part, place) if nodeset.has_range(part) else [part]
    return [names.check_name(name, place) for name in expanded]


class _Reader:
    def __init__(self, text: Text, document: dict[str, object], draft: Draft) -> None:
        self._places = TomlPlaces(text.content, text.source)
        self._document = document
        self._draft = draft
        for key in document:
            if key not in TOP and (hint := did_you_mean(key, TOP)):
                raise InventoryError("unknown table", place=self._places.key(key), found=key, hint=hint)

    def read_hosts(self) -> None:
        hosts = self._document.get("hosts", {})
        if isinstance(hosts, list):
            listed: set[str] = set()
            for item_path, pattern in self._strings(hosts, ("hosts",), "a host name"):
                place = self._places.value(*item_path)
                for name in expand(pattern, place):
                    if name in listed:
                        raise listed_twice(name, place)
                    listed.add(name)
                    self._draft.host(name, place)
            return
        single: list[tuple[str, dict[str, object], Path]] = []
        for pattern, settings in self._table(hosts, ("hosts",), "tables [hosts.NAME], or a list of names").items():
            path: Path = ("hosts", pattern)
            expanded = expand(pattern, self._places.key(*path))
            table = self._table(settings, path, "a table of settings")
            for index, name in enumerate(expanded):
                values = self._draft.host(name, self._places.key(*path))
                if is_plural(pattern):
                    self._settings(values, table, path, HOST_KEYS, index, len(expanded))
            if not is_plural(pattern):
                single.append((expanded[0], table, path))
            for group_path, group in self._strings(table.get("groups", []), (*path, "groups"), "a group's name"):
                self._group(group, self._places.value(*group_path)).hosts.update(dict.fromkeys(expanded))
        for name, table, path in single:  # a host's own table wins over that of a range, wherever it is
            self._settings(self._draft.host(name, None), table, path, HOST_KEYS)

    def read_groups(self) -> None:
        groups = self._table(self._document.get("groups", {}), ("groups",), "tables [groups.NAME]")
        for name, settings in groups.items():
            path: Path = ("groups", name)
            group = self._group(name, self._places.key(*path), may_be_all=True)
            if isinstance(settings, list):
                self._members(group, settings, path)
                continue
            table = self._table(settings, path, "a table of settings, or a list of hosts")
            if "hosts" in table:
                self._members(group, table["hosts"], (*path, "hosts"))
            if "children" in table:
                group.children.clear()
                for child_path, child in self._strings(table["children"], (*path, "children"), "a group's name"):
                    self._child(group, child, self._places.value(*child_path))
            self._settings(group.values, table, path, GROUP_KEYS)

    def _group(self, name: str, place: Origin, *, may_be_all: bool = False) -> GroupDraft:
        if name == ALL and not may_be_all:
            raise InventoryError("every host is in the group all", place=place, found=name, expected="another group")
        return self._draft.group(name, place)

    def _child(self, group: GroupDraft, child: str, place: Origin) -> None:
        names.check_group(child, place)
        if child == ALL:
            raise InventoryError("the group all is in no other group", place=place, found=child)
        described = self._document.get("groups")
        if isinstance(described, dict) and child in described:
            self._draft.group(child, self._places.key("groups", child))
        group.children[child] = place

    def _members(self, group: GroupDraft, raw: object, path: Path) -> None:
        """Read a group's hosts; they replace those of an earlier file."""
        if group.name == ALL:
            raise InventoryError("every host is in the group all", place=self._places.key(*path), found="hosts")
        members: dict[str, None] = {}
        for item_path, pattern in self._strings(raw, path, "a host name"):
            place = self._places.value(*item_path)
            if pattern.startswith("@"):
                self._child(group, pattern[1:], place)
                continue
            for name in expand(pattern, place):
                self._draft.host(name, place)
                members[name] = None
        group.hosts = members

    def _settings(
        self,
        values: Values,
        table: dict[str, object],
        path: Path,
        known: tuple[str, ...],
        index: int = 0,
        count: int = 1,
    ) -> None:
        if "jump" in table and "proxy_command" in table:
            place = self._places.key(*path, "proxy_command")
            raise InventoryError(
                "both jump and proxy_command are given", place=place, found="proxy_command", expected="one of them"
            )
        own = dict(table)
        for key in RANGED:
            raw = table.get(key)
            if isinstance(raw, str) and is_plural(raw):
                own[key] = self._one_of(raw, self._places.value(*path, key), index, count)
        read_settings(values, own, self._draft, self._places, path, known)

    def _one_of(self, pattern: str, place: Origin, index: int, count: int) -> str:
        addresses = expand(pattern, place)
        if len(addresses) != count:
            raise InventoryError(
                "not as many addresses as hosts",
                place=place,
                found=pattern,
                expected=f"{count}, one for each host" if count > 1 else "one address",
            )
        return addresses[index]

    def _table(self, raw: object, path: Path, expected: str) -> dict[str, object]:
        if not isinstance(raw, dict):
            raise fields.wrong("not a table", raw, expected, self._places.value(*path))
        return raw

    def _strings(self, raw: object, path: Path, what: str) -> list[tuple[Path, str]]:
        if not isinstance(raw, list):
            raise fields.wrong("not a list", raw, f'a list such as ["a", "b"], each {what}', self._places.value(*path))
        for index, item in enumerate(raw):
            if not isinstance(item, str):
                raise fields.wrong(f"not {what}", item, "text", self._places.value(*path, index))
        return [((*path, index), item) for index, item in enumerate(raw)]
