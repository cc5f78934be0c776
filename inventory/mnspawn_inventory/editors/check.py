"""Checks that an edit changed exactly the hosts, values and groups that were asked for. Pure."""

from dataclasses import dataclass, field

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.groups import ALL
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.settings import flat_settings


@dataclass
class Edit:
    """What was asked for since the inventory was read.

    Attributes:
        hosts: the settings of new and changed hosts; None removes a value.
        added: the names of new hosts, in order.
        joined: the groups of the new hosts.
        groups: the settings of groups.
        is_merge: existing hosts may join more groups, too, and inherit from them.
    """

    hosts: dict[str, dict[str, object]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    groups: dict[str, dict[str, object]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    removed_groups: set[str] = field(default_factory=set)
    is_merge: bool = False


def check(edit: Edit, before: Inventory, after: Inventory, source: str) -> None:
    """Compare what is read now with what was read before and what was asked for.

    Raises:
        InventoryError: they differ; the text must not be written.
    """
    old = {host.name: host for host in before.hosts}
    now = [host.name for host in after.hosts]
    kept = [name for name in old if name not in edit.removed]
    if [name for name in now if name in old] != kept:
        raise _refused("other hosts would be there, or in another order", source)
    if [name for name in now if name not in old] != [name for name in edit.added if name not in edit.removed]:
        raise _refused("the new hosts would not be there as they were named", source)
    for host in after.hosts:
        if host != old.get(host.name) or host.name in edit.hosts:
            _check_host(edit, old.get(host.name), host, source)
    _check_groups(edit, before, after, source)


def _check_host(edit: Edit, was: Host | None, host: Host, source: str) -> None:
    now = flat_settings(host)
    then = flat_settings(was) if was is not None else {}
    wanted = edit.hosts.get(host.name, {})
    for key, value in wanted.items():
        found = now.get(key)
        is_still_there = found is not None and then.get(key) == found
        if is_still_there if value is None else not _is_same(found, value):
            raise _comes_from(host, key, found, source)
    if was is None or edit.is_merge or edit.removed_groups:
        return
    inherited = {key for group in (ALL, *was.groups) for key in edit.groups.get(group, ())}
    for key in (then.keys() | now.keys()) - wanted.keys() - inherited:
        if then.get(key) != now.get(key):
            raise _refused(f"{key} of {host.name} would change, too", source)


def _check_groups(edit: Edit, before: Inventory, after: Inventory, source: str) -> None:
    now = {group.name: set(group.hosts) for group in after.groups}
    added = set(edit.added) - edit.removed
    for name in edit.joined:
        if not added <= now.get(name, set()):
            raise _refused(f"the hosts would not be in the group {name}", source)
    for name in edit.removed_groups & now.keys():
        raise _refused(f"the group {name} would still be there", source)
    for group in before.groups:
        if group.name in edit.removed_groups or edit.is_merge:
            continue
        kept = set(group.hosts) - edit.removed
        left = now.get(group.name, set()) - added
        if left != kept and not (edit.removed_groups and left < kept):
            raise _refused(f"the group {group.name} would have other hosts", source)


def _is_same(found: object, wanted: object) -> bool:
    """Whether a value is the one that was asked for; a secret's file is relative to the inventory's folder."""
    if isinstance(found, dict) and isinstance(wanted, dict) and "file" in wanted:
        return str(found.get("file", "")).endswith(str(wanted["file"]))
    return found == (list(wanted) if isinstance(wanted, tuple) else wanted)


def _comes_from(host: Host, key: str, found: object, source: str) -> InventoryError:
    place = host.origin(key)
    where = f": it comes from {place}" if place is not None else ""
    return InventoryError(
        f"{key} of {host.name} would not be what was asked for{where}",
        place=Origin(source),
        found="nothing" if found is None else "***" if key.startswith("env.") else str(found),
        hint="change it there" if place is not None else None,
    )


def _refused(what: str, source: str) -> InventoryError:
    return InventoryError(
        f"this edit can't be made without changing more: {what}",
        place=Origin(source),
        hint="nothing was changed; mnspawn inventory edit opens the file in your editor",
    )
