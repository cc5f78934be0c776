"""Ansible's groups and variables, in whatever syntax they are written, and their precedence. Pure."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mnspawn_inventory import fields, groups, names
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import Origin
from mnspawn_inventory.formats.ansible_fields import is_used, read_fields
from mnspawn_inventory.formats.ansible_template import Var, Variables
from mnspawn_inventory.groups import ALL
from mnspawn_inventory.notes import HostNotes

UNGROUPED = "ungrouped"

Layer = tuple[str, Variables]  # a group, and its variables


@dataclass
class AnsibleGroup:
    """One group as it is written."""

    origin: Origin | None
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, Origin | None] = field(default_factory=dict)
    variables: Variables = field(default_factory=dict)


class AnsibleSource:
    """Collects groups and hosts in the order in which they are read; `apply` adds them to a draft."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.groups: dict[str, AnsibleGroup] = {}
        self.hosts: dict[str, Variables] = {}
        self.places: dict[str, Origin | None] = {}

    @property
    def folder(self) -> Path:
        """Where group_vars and host_vars are: beside a file, or in the folder that is read ("inventory/")."""
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
        """Add hosts and groups to the draft, each host with its variables merged by Ansible's precedence.

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
        children = {name: group.children for name, group in self.groups.items()}
        depths = groups.depths(children)
        chains = self._chains(children, depths)
        above = self._above(depths)
        notes = HostNotes()
        used = {
            kind: {name: {key: value for key, value in variables.items() if is_used(key)} for name, variables in groups}
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
            _compare_groups(name, layers, own.keys() | host_files.get(name, {}).keys(), above, notes)
            merged.update(own)
            merged.update(host_files.get(name, {}))
            read_fields(name, merged, draft.host(_bare(name), None), notes)
        draft.notes.extend(notes.lines())

    def _above(self, depths: Mapping[str, int]) -> dict[str, set[str]]:
        """All groups above each group."""
        above: dict[str, set[str]] = {name: {ALL} for name in self.groups}
        for name in sorted(self.groups, key=depths.__getitem__):
            for child in self.groups[name].children:
                above[child] |= {name, *above[name]}
        return above

    def _chains(self, children: groups.Children, depths: Mapping[str, int]) -> dict[str, list[str]]:
        """The groups of each host, from the weakest to the strongest: by depth, priority, then name."""
        ranked = sorted(
            (name for name in self.groups if name not in (ALL, UNGROUPED)),
            key=lambda name: (depths[name], self._priority(name), name),
        )
        listed = {name: group.hosts for name, group in self.groups.items()}
        chains: dict[str, list[str]] = {}
        for group_name in ranked:
            for host in groups.members(group_name, children, listed):
                chains.setdefault(host, []).append(group_name)
        return chains

    def _priority(self, name: str) -> int:
        raw, place = self.groups[name].variables.get("ansible_group_priority", (1, None))
        return fields.whole(raw, 0, 1_000_000, "not a group priority", place)


def _compare_groups(
    host: str, layers: Sequence[Layer], own: Container[str], above: Mapping[str, Container[str]], notes: HostNotes
) -> None:
    """Note each value that a host has from one group while another group has another value for it.

    Args:
        layers: from the weakest to the strongest.
        own: the host's own variables, which no group's values replace.
        above: the groups above each group, whose values are there to be replaced.
    """
    winners: dict[str, tuple[str, Var]] = {}
    for group, variables in reversed(layers):
        for key, (value, place) in variables.items():
            if key in own:
                continue
            winner, (kept, where) = winners.setdefault(key, (group, (value, place)))
            if value != kept and group != winner and group not in above.get(winner, ()):
                is_plain = isinstance(value, str | int) and isinstance(kept, str | int)
                has, had = (f" {kept!r}", f" {value!r}") if is_plain else (" that", " another value")
                lost = "" if place is None else f" ({place})"
                text = f"{key} is{has} from group {winner}; group {group} has{had}{lost}, which is not used"
                notes.add(host, where, text)


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("[") else name


__all__ = ["ALL", "UNGROUPED", "AnsibleGroup", "AnsibleSource", "Var", "Variables"]
