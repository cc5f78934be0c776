"""Whether an edit came out as it was meant: exactly the hosts, values and groups that were asked for. Pure."""

from dataclasses import dataclass, field

from mnspawn_inventory.draft import ALL
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.said import settings_of

Flat = dict[str, object]  # as settings are written: fields, "env.NAME" and "labels.NAME"


@dataclass
class Edit:
    """What was asked for since the inventory was read."""

    added: dict[str, Flat] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)  # the groups of the added hosts
    changed: dict[str, Flat] = field(default_factory=dict)
    set_groups: dict[str, Flat] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    removed_groups: set[str] = field(default_factory=set)
    is_merge: bool = False  # hosts may come to groups that say something of them, too


def check(edit: Edit, before: Inventory, after: Inventory, source: str) -> None:
    """Compare what was read before, what was asked for, and what is read now.

    Raises:
        InventoryError: it is not the same; the text must not be written.
    """
    _check_order(edit, before, after, source)
    members = {group.name: set(group.hosts) for group in before.groups}
    members[ALL] = {host.name for host in before.hosts}
    by_group: dict[str, Flat] = {}
    for group, settings in edit.set_groups.items():
        for name in members[group]:
            by_group.setdefault(name, {}).update(settings)
    old = {host.name: host for host in before.hosts}
    for host in after.hosts:
        wanted = edit.changed.get(host.name, edit.added.get(host.name, {}))
        was = old.get(host.name)
        if was is not None and was == host and not wanted and host.name not in by_group:
            continue
        _check_host(edit, was, host, wanted, by_group.get(host.name, {}), source)
    _check_groups(edit, before, after, source)


def _check_order(edit: Edit, before: Inventory, after: Inventory, source: str) -> None:
    there = {host.name for host in before.hosts}
    kept = [host.name for host in before.hosts if host.name not in edit.removed]
    now = [host.name for host in after.hosts]
    for host in after.hosts:
        if host.name in edit.removed:
            place = host.origin("name")
            raise InventoryError(
                f"the host would still be there: it comes from {place}",
                place=Origin(source),
                found=host.name,
                hint="change it there",
            )
    if lost := [name for name in kept if name not in set(now)]:
        raise _refused(f"{lost[0]} would be lost", source)
    if [name for name in now if name in there] != kept:
        raise _refused("hosts would stand in another order", source)
    if [name for name in now if name not in there] != [name for name in edit.added if name not in edit.removed]:
        raise _refused("the new hosts would not be there as they were named", source)


def _check_host(edit: Edit, was: Host | None, host: Host, wanted: Flat, by_group: Flat, source: str) -> None:
    now = flat(host)
    then = flat(was) if was is not None else {}
    for key, value in wanted.items():
        found = now.get(key)
        if value is None:
            if found is not None and key in then and then[key] == found and was is not None:
                raise _comes_from(host, key, found, source)
        elif not is_same(found, value):
            raise _comes_from(host, key, found, source)
    for key, value in by_group.items():
        place = host.origin(key)
        if key not in wanted and not is_same(now.get(key), value) and place and place.source != source and value:
            raise _comes_from(host, key, now.get(key), source)
    if was is None or edit.is_merge:
        return
    for key in (then.keys() | now.keys()) - wanted.keys() - by_group.keys():
        if not edit.removed_groups and then.get(key) != now.get(key):
            raise _refused(f"{key} of {host.name} would change, too", source)


def _check_groups(edit: Edit, before: Inventory, after: Inventory, source: str) -> None:
    now = {group.name: set(group.hosts) for group in after.groups}
    for name in edit.joined:
        if name not in now or not edit.added.keys() - edit.removed <= now[name]:
            raise _refused(f"the hosts would not be in the group {name}", source)
    for name in edit.removed_groups:
        if name in now:
            raise _refused(f"the group {name} would still be there", source)
    for group in before.groups:
        if group.name in edit.removed_groups or edit.is_merge:
            continue
        kept = set(group.hosts) - edit.removed
        if group.name not in now and (kept or not group.hosts):  # some formats know a group by its hosts only
            raise _refused(f"the group {group.name} would be lost", source)
        left = now.get(group.name, set()) - edit.added.keys()
        if left != kept and not (edit.removed_groups and left < kept):
            raise _refused(f"the group {group.name} would have other hosts", source)


def flat(host: Host) -> Flat:
    """What is said of a host, as settings are written."""
    found: Flat = {}
    for key, value in settings_of(host).items():
        if isinstance(value, dict):
            found.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            found[key] = value
    return found


def is_same(found: object, wanted: object) -> bool:
    """Whether a value is the one that was asked for; the file of a secret is relative to the inventory's folder."""
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
