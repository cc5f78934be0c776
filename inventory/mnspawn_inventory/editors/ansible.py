"""What the editors of Ansible's formats share: our fields as variables, and which entry of a host says what. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnspawn_inventory.editors.base import Asked, Document, Settings, wanted_of
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.export import ANSIBLE
from mnspawn_inventory.formats.ansible_fields import OURS, SSH_ARGS, TEXT_VARIABLES
from mnspawn_inventory.said import settings_of

TABLES = ("env", "labels")
JUMP = "-J "
COMMON_ARGS = "ansible_ssh_common_args"  # what Ansible's documentation has for jump hosts

Changes = dict[str, object]  # variable -> value; None takes it away


@dataclass(eq=False)
class Entry:
    """A place where hosts are written: a line, or a key of a mapping.

    Attributes:
        names: its hosts, several for a range.
        variables: what it says of them.
        group: the group that it stands in.
        where: what the format's editor knows of it.
    """

    names: tuple[str, ...]
    variables: Mapping[str, object]
    group: str
    where: Any
    changes: Changes = field(default_factory=dict)


class AnsibleDocument(Document):
    """One Ansible inventory that is being edited; group_vars and host_vars beside it are not."""

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        first, *others = groups or [""]
        hosts = {name: changes(said, {}, {}) for name, said in wanted_of(asked).items()}
        self._put_hosts(first, hosts)
        for group in others:
            self._put_hosts(group, {name: {} for name in hosts})

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        wanted = wanted_of(asked)
        entries: dict[str, list[Entry]] = {}
        for entry in self._entries():
            for name in entry.names:
                entries.setdefault(name, []).append(entry)
        said = {host.name: settings_of(host) for host in self.inventory.hosts}
        own_entries: dict[str, Entry] = {}
        for name, settings in wanted.items():
            there = entries.get(name)
            if not there:
                raise self._elsewhere(name)
            own: dict[str, object] = {}
            for entry in there:
                own.update(entry.variables)
            together = [entry for entry in there if _is_whole(entry, settings, wanted)]
            for variable, value in changes(settings, own, said[name]).items():
                having = [entry for entry in together if variable in entry.variables]
                for entry in having:
                    entry.changes[variable] = value
                if having or value is None:
                    continue
                if together:
                    best = next((entry for entry in together if entry.variables), together[0])
                else:
                    best = own_entries.get(name) or self._entry_beside(there[-1], name)
                    own_entries[name] = best
                best.changes[variable] = value
        for entry in {id(one): one for there in entries.values() for one in there}.values():
            if entry.changes:
                self._change(entry)
        for entry in own_entries.values():
            self._change(entry)

    def _set_group(self, name: str, settings: Settings) -> None:
        self._change_group(name, changes(settings, self._group_variables(name), {}))

    def _elsewhere(self, name: str) -> InventoryError:
        host = next(host for host in self.inventory.hosts if host.name == name)
        return InventoryError("the host is not written in this file", place=host.origin("name"), found=name)

    def _hosts_would_be_lost(self, group: str, names: Collection[str]) -> InventoryError:
        return InventoryError(
            "the hosts of this group are written nowhere else",
            place=Origin(self.source),
            found=f"@{group}",
            expected="a group whose hosts are in another group, too",
            hint=f"remove its hosts, or write them into another group first: {', '.join(list(names)[:3])}",
        )

    # -- what a format does

    def _entries(self) -> list[Entry]:
        """Every place where hosts are written, in the order in which they are read."""
        raise NotImplementedError

    def _put_hosts(self, group: str, hosts: Mapping[str, Changes]) -> None:
        """Write new hosts into a group, made where it is new; "": in no group."""
        raise NotImplementedError

    def _entry_beside(self, entry: Entry, name: str) -> Entry:
        """A new entry for one host of a range."""
        raise NotImplementedError

    def _change(self, entry: Entry) -> None:
        """Write the changes of an entry."""
        raise NotImplementedError

    def _group_variables(self, name: str) -> Mapping[str, object]:
        raise NotImplementedError

    def _change_group(self, name: str, changes: Changes) -> None:
        raise NotImplementedError


def _is_whole(entry: Entry, settings: Settings, wanted: Mapping[str, Settings]) -> bool:
    """Whether all hosts of an entry are to say the same, so that it may say it."""
    return len(entry.names) == 1 or all(wanted.get(name) == settings for name in entry.names)


def changes(settings: Settings, own: Mapping[str, object], said: Mapping[str, object]) -> Changes:
    """Settings as Ansible's variables.

    Args:
        own: the variables that are there.
        said: what holds for the host, with what it has from its groups.
    """
    made: Changes = {}
    for key, value in settings.items():
        top, _, inner = key.partition(".")
        if top in TABLES and inner:
            variable = OURS + top
            before = made.get(variable, own.get(variable, said.get(top, {})))
            table = dict(before) if isinstance(before, Mapping) else {}
            table.pop(inner, None)
            made[variable] = {**table, **({} if value is None else {inner: value})} or None
        elif top in TABLES:
            made[OURS + top] = value
        else:
            made.update(_field_changes(key, value, own))
    return made


def _field_changes(key: str, value: object, own: Mapping[str, object]) -> Changes:
    ours = OURS + key
    made: Changes = {ours: value} if ours in own else {}
    if key in TEXT_VARIABLES:
        there = [variable for variable in TEXT_VARIABLES[key] if variable in own]
        return {**made, **dict.fromkeys(there or [ANSIBLE[key]], value)}
    if key == "transport":
        is_theirs = value in ("local", "paramiko")
        made = {"ansible_connection": value if is_theirs else None, ours: None if is_theirs else value}
        return {variable: one for variable, one in made.items() if one is not None or variable in own}
    if key == "jump":  # in Ansible's own words, too, so that it goes the same way; other arguments for ssh stay
        args = next((variable for variable in SSH_ARGS if variable in own), COMMON_ARGS)
        if args not in own or str(own[args]).startswith(JUMP):
            made[args] = None if value is None else f"{JUMP}{value}"
    return {**made, ours: value}
