"""What Ansible's inventories have in common: groups and variables, and their precedence."""

from dataclasses import dataclass, field
from pathlib import Path

from mnspawn_inventory import fields, names
from mnspawn_inventory.draft import ALL, Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible_fields import is_used, take
from mnspawn_inventory.formats.ansible_template import Var, Variables
from mnspawn_inventory.told import Told, compare_groups

UNGROUPED = "ungrouped"


@dataclass
class AnsibleGroup:
    """One group as the file has it."""

    origin: Origin | None
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, Origin | None] = field(default_factory=dict)
    variables: Variables = field(default_factory=dict)


class AnsibleSource:
    """Groups and hosts as they are read, in order; `apply` gives them to a draft."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.groups: dict[str, AnsibleGroup] = {}
        self.hosts: dict[str, Variables] = {}
        self.places: dict[str, Origin | None] = {}

    @property
    def folder(self) -> Path:
        """Where what belongs to it stands: a file's folder, or the folder that is read as a whole ("inventory/")."""
        return Path(self.source) if self.source.endswith("/") else Path(self.source).parent

    def group(self, name: str, place: Origin | None) -> AnsibleGroup:
        if name not in self.groups:
            names.check_group(name, place)
            self.groups[name] = AnsibleGroup(place)
        return self.groups[name]

    def host(self, name: str, place: Origin | None) -> Variables:
        if name not in self.hosts:
            names.check_host(name, place)
            self.hosts[name] = {}
            self.places[name] = place
        return self.hosts[name]

    def apply(self, draft: Draft, beside: "tuple[dict[str, Variables], dict[str, Variables]] | None" = None) -> None:
        """Give hosts and groups to the draft, each host with its variables merged by Ansible's precedence.

        Args:
            beside: variables of group_vars and host_vars, by group and by host.
        """
        group_files, host_files = beside or ({}, {})
        for name in self.hosts:
            draft.host(_bare(name), self.places[name])
        for name, group in self.groups.items():
            if name not in (ALL, UNGROUPED):
                made = draft.group(name, group.origin)
                made.hosts.update(dict.fromkeys(map(_bare, group.hosts)))
                made.children.update(group.children)
        chains = self._chains()
        above = self._above()
        told = Told()
        used = {
            kind: {name: {key: said for key, said in variables.items() if is_used(key)} for name, variables in groups}
            for kind, groups in (
                ("inventory", [(name, group.variables) for name, group in self.groups.items()]),
                ("files", list(group_files.items())),
            )
        }
        folder = str(self.folder.absolute())
        for name, own in self.hosts.items():
            merged: Variables = {"inventory_dir": (folder, None)}
            chain = [ALL, *chains.get(name, [UNGROUPED])]
            for group_name in chain:
                if group_name in self.groups:
                    merged.update(self.groups[group_name].variables)
            for group_name in chain:
                merged.update(group_files.get(group_name, {}))
            layers = [(one, used[kind][one]) for kind in ("inventory", "files") for one in chain if one in used[kind]]
            compare_groups(name, layers, own.keys() | host_files.get(name, {}).keys(), above, told)
            merged.update(own)
            merged.update(host_files.get(name, {}))
            take(name, merged, draft.host(_bare(name), None), told)
        draft.notes.extend(told.notes())

    def _above(self) -> dict[str, set[str]]:
        """All groups above each group."""
        above: dict[str, set[str]] = {name: {ALL} for name in self.groups}
        for name in sorted(self.groups, key=self._depths().__getitem__):
            for child in self.groups[name].children:
                above[child] |= {name, *above[name]}
        return above

    def _chains(self) -> dict[str, list[str]]:
        """The groups of each host, from the weakest to the strongest: by depth, priority, then name."""
        depths = self._depths()
        ranked = sorted(
            (name for name in self.groups if name not in (ALL, UNGROUPED)),
            key=lambda name: (depths[name], self._priority(name), name),
        )
        chains: dict[str, list[str]] = {}
        for group_name in ranked:
            for host in self._members(group_name):
                chains.setdefault(host, []).append(group_name)
        return chains

    def _priority(self, name: str) -> int:
        raw, place = self.groups[name].variables.get("ansible_group_priority", (1, None))
        return fields.whole(raw, 0, 1_000_000, "not a group priority", place)

    def _depths(self) -> dict[str, int]:
        parents: dict[str, list[str]] = {name: [] for name in self.groups}
        for name, group in self.groups.items():
            for child, place in group.children.items():
                if child not in self.groups:
                    raise InventoryError(
                        "no such group", place=place, found=child, expected="a group of this inventory"
                    )
                if name != ALL:
                    parents[child].append(name)
        depths: dict[str, int] = {}

        def depth(name: str, below: tuple[str, ...]) -> int:
            if name in below:
                place = self.groups[below[-1]].children.get(name)
                raise InventoryError(
                    "the group contains itself", place=place, found=name, expected="no circle of groups"
                )
            if len(below) > MAX_DEPTH:
                raise InventoryError("groups are nested too deeply", place=self.groups[name].origin, found=name)
            if name not in depths:
                depths[name] = max((depth(above, (*below, name)) + 1 for above in parents[name]), default=1)
            return depths[name]

        for name in self.groups:
            depth(name, ())
        return depths

    def _members(self, name: str) -> dict[str, None]:
        found: dict[str, None] = {}
        waiting, seen = [name], {name}
        while waiting:
            group = self.groups[waiting.pop()]
            found.update(group.hosts)
            waiting.extend(child for child in group.children if child not in seen)
            seen.update(group.children)
        return found


MAX_DEPTH = 200  # groups of groups; real inventories have three


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("[") else name


__all__ = ["ALL", "UNGROUPED", "AnsibleGroup", "AnsibleSource", "Var", "Variables"]
