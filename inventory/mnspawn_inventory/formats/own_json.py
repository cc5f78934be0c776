"""Reads our own JSON, as `mnspawn inventory list --json` and `export` write it: `{"hosts": [{"name": ...}], ...}`."""

from mnspawn_inventory import fields, names
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, listed_twice
from mnspawn_inventory.formats.ansible_json import Json, as_names, as_object
from mnspawn_inventory.formats.table import read_settings

KEYS = ("name", "groups", *fields.FIELDS, "env", "labels", "origins")
TOP = {"hosts", "groups", "source", "format", "notes"}


def is_own(document: Json) -> bool:
    """Whether it is ours, with a list of hosts at the top, where Ansible's JSON has groups."""
    return isinstance(document.root.get("hosts"), list) and not document.root.keys() - TOP


def read(document: Json, draft: Draft) -> None:
    """Read hosts and groups into the draft."""
    for index, item in enumerate(_items(document, "groups")):  # first, to keep the order of this list
        table = as_object(item, document, "groups", index)
        draft.group(_name(table, document, "group", index), document.places.value("groups", index, "name"))
    for index, item in enumerate(_items(document, "hosts")):
        _host(as_object(item, document, "hosts", index), draft, document, index)
    for index, item in enumerate(_items(document, "groups")):
        _group(as_object(item, document, "groups", index), draft, document, index)


def _items(document: Json, key: str) -> list[object]:
    raw = document.root.get(key)
    if raw is not None and not isinstance(raw, list):
        raise fields.wrong(f"{key} is not a list", raw, "a list of objects", document.places.value(key))
    return raw or []


def _name(table: dict[str, object], document: Json, kind: str, index: int) -> str:
    name = table.get("name")
    if not isinstance(name, str):
        place = document.places.value(f"{kind}s", index, "name")
        raise fields.wrong(f"a {kind} without its name", name, '"name": text', place)
    return name


def _group(table: dict[str, object], draft: Draft, document: Json, index: int) -> None:
    """Read a group's members; hosts name their groups, too."""
    places = document.places
    group = draft.group(_name(table, document, "group", index), places.value("groups", index, "name"))
    for key in ("hosts", "children"):
        for number, name in enumerate(as_names(table.get(key) or [], document, "groups", index, key)):
            place = places.value("groups", index, key, number)
            if key == "children":
                draft.group(name, place)
                group.children[name] = place
                continue
            if not draft.has_host(name):
                raise InventoryError("no such host", place=place, found=name, expected="one of the hosts above")
            group.hosts[names.check_name(name, place)] = None


def _host(table: dict[str, object], draft: Draft, document: Json, index: int) -> None:
    places = document.places
    place = places.value("hosts", index, "name")
    name = names.check_name(_name(table, document, "host", index), place)
    if draft.has_host(name):
        raise listed_twice(name, place)
    for number, group in enumerate(as_names(table.get("groups") or [], document, "hosts", index, "groups")):
        draft.group(group, places.value("hosts", index, "groups", number)).hosts[name] = None
    read_settings(draft.host(name, place), table, draft, places, ("hosts", index), KEYS)
