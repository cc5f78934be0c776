"""What Ansible's inventories have in common: groups and variables, their precedence, and what we take from them."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from mnspawn_inventory import fields, names
from mnspawn_inventory.draft import ALL, Draft, Values
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible_template import Opaque, Var, Variables, render
from mnspawn_inventory.said import as_secret

UNGROUPED = "ungrouped"

# our field -> variables of Ansible's that say it; the first that is there wins, as in Ansible's ssh connection
TEXT_VARIABLES = {
    "address": ("ansible_host", "ansible_ssh_host"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "identity": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "python": ("ansible_python_interpreter",),
}
DISCOVERED = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent")  # values that name no interpreter
CONNECTIONS = {
    "local": "local",
    "ansible.builtin.local": "local",
    "paramiko": "paramiko",
    "paramiko_ssh": "paramiko",
    "ansible.builtin.paramiko_ssh": "paramiko",
    "ssh": None,
    "ansible.builtin.ssh": None,
    "smart": None,
}
SSH_ARGS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
OURS = "mnspawn_"  # our own fields as Ansible variables: mnspawn_slots, mnspawn_env, ...


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
        folder = str(self.folder.absolute())
        for name, own in self.hosts.items():
            merged: Variables = {"inventory_dir": (folder, None)}
            chain = [ALL, *chains.get(name, [UNGROUPED])]
            for group_name in chain:
                if group_name in self.groups:
                    merged.update(self.groups[group_name].variables)
            for group_name in chain:
                merged.update(group_files.get(group_name, {}))
            merged.update(own)
            merged.update(host_files.get(name, {}))
            take(name, merged, draft.host(_bare(name), None), draft.notes)

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


def take(name: str, variables: Variables, values: Values, notes: list[str]) -> None:
    """Set what we know of a host from its merged variables; other variables are Ansible's own business."""
    known = {
        **variables,
        "inventory_hostname": (name, None),
        "inventory_hostname_short": (name.split(".")[0], None),
        "ansible_playbook_python": (sys.executable, None),  # the one that reads this
    }
    for target, candidates in TEXT_VARIABLES.items():
        for candidate in candidates:
            if candidate in variables:
                raw, place = render(candidate, known)
                if target == "python" and raw in DISCOVERED:
                    break
                if raw not in (None, ""):
                    values.set(target, _as_text(raw, candidate, place), place)
                break
    if "ansible_connection" in variables:
        raw, place = render("ansible_connection", known)
        if raw not in CONNECTIONS:
            notes.append(f"{place}: {name}: the connection {raw!r} is not SSH")
        elif CONNECTIONS[str(raw)] is not None:
            values.set("transport", CONNECTIONS[str(raw)], place)
    for variable in SSH_ARGS:
        if variable in variables:
            raw, place = render(variable, known)
            hop = _jump(str(raw), place)
            if hop is not None:
                values.set("jump", hop, place)
                break
            if str(raw).strip():
                notes.append(f"{place}: {name}: {variable} is not used; write what it says into ssh_config")
    for variable in variables:
        if variable.startswith(OURS):
            raw, place = render(variable, known)
            _set_own(values, variable[len(OURS) :], raw, place, Path(str(variables["inventory_dir"][0])))


def _set_own(values: Values, target: str, raw: object, place: Origin | None, folder: Path) -> None:
    if target in ("env", "labels"):
        if not isinstance(raw, dict):
            raise fields.wrong(f"not a table for {OURS}{target}", raw, "names and values", place)
        for name, value in raw.items():
            setter = values.set_env if target == "env" else values.set_label
            setter(str(name), as_secret(value, place, folder) if target == "env" else value, place)
        return
    values.set(target, raw, place)


def _as_text(raw: object, variable: str, place: Origin | None) -> str:
    if isinstance(raw, Opaque | bool) or not isinstance(raw, str | int):
        found = raw.tag if isinstance(raw, Opaque) else str(raw)
        raise InventoryError(f"not a value for {variable}", place=place, found=found, expected="plain text")
    return str(raw)


def _jump(text: str, place: Origin | None) -> str | None:
    """The jump host in ssh's arguments: -J, ProxyJump, or a ProxyCommand that is `ssh -W %h:%p HOST`."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise InventoryError("quotes don't match", place=place, found=text, expected="arguments for ssh") from None
    options = iter(words)
    for word in options:
        if word == "-J" or (word.startswith("-J") and len(word) > 2):
            return word[2:] or next(options, "")
        if word.startswith("-o"):
            setting = word[2:].strip() or next(options, "")
            key, _, value = setting.replace("=", " ", 1).strip().partition(" ")
            if key.lower() == "proxyjump":
                return value.strip()
            if key.lower() == "proxycommand":
                return _hop_of_command(value)
    return None


def _hop_of_command(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0].rpartition("/")[2] != "ssh" or not {"-W", "-W%h:%p"} & set(words):
        return None
    user, port, hop = "", "", ""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-o", "-i", "-F"):
            next(rest, "")
        elif word in ("-p", "-l"):
            value = next(rest, "")
            port, user = (f":{value}", user) if word == "-p" else (port, f"{value}@")
        elif not word.startswith("-"):
            hop = hop or word
    return f"{'' if '@' in hop else user}{hop}{port}" if hop else None


__all__ = ["ALL", "UNGROUPED", "AnsibleGroup", "AnsibleSource", "Var", "Variables", "take"]
