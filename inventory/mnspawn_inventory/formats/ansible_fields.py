"""The fields of a host from its Ansible variables, with notes about what is not used. Pure."""

import sys
from pathlib import Path

from mnspawn_inventory import fields
from mnspawn_inventory.draft import Values
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import ssh_args
from mnspawn_inventory.formats.ansible_template import Opaque, Unevaluated, Variables, render
from mnspawn_inventory.notes import HostNotes
from mnspawn_inventory.settings import as_secret

# field -> Ansible's variables for it, the old name first, which wins
TEXT_VARIABLES = {
    "address": ("ansible_ssh_host", "ansible_host"),
    "port": ("ansible_ssh_port", "ansible_port"),
    "user": ("ansible_ssh_user", "ansible_user"),
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
# in the order in which Ansible puts them on ssh's command line, where the first value of a setting wins
SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
BEFORE = SSH_ARGS[0]  # precedes the user and port of the variables
PARAMIKO_PROXY = "ansible_paramiko_proxy_command"
OURS = "mnspawn_"  # prefix of our own fields: mnspawn_slots, mnspawn_env, ...
USED = frozenset(
    [*(name for group in TEXT_VARIABLES.values() for name in group), "ansible_connection", *SSH_ARGS, PARAMIKO_PROXY]
)


def is_used(variable: str) -> bool:
    """Whether mnspawn uses a variable."""
    return variable in USED or variable.startswith(OURS)


def read_fields(name: str, variables: Variables, values: Values, notes: HostNotes) -> None:
    """Set a host's fields from its merged variables.

    If only Ansible can evaluate one of them, this host is marked as unusable.
    """
    try:
        _FieldReader(name, variables, values, notes).read()
    except Unevaluated as exc:
        values.problem = exc


class _FieldReader:
    def __init__(self, name: str, variables: Variables, values: Values, notes: HostNotes) -> None:
        self._name = name
        self._variables = variables
        self._known = {
            **variables,
            "inventory_hostname": (name, None),
            "inventory_hostname_short": (name.split(".")[0], None),
            "ansible_playbook_python": (sys.executable, None),  # of this process
        }
        self._values = values
        self._notes = notes

    def read(self) -> None:
        for target, candidates in TEXT_VARIABLES.items():
            self._text(target, [name for name in candidates if name in self._variables])
        if "ansible_connection" in self._variables:
            raw, place = render("ansible_connection", self._known)
            if raw not in CONNECTIONS:
                self._notes.add(self._name, place, f"the connection {raw!r} is not SSH")
            elif CONNECTIONS[str(raw)] is not None:
                self._values.set("transport", CONNECTIONS[str(raw)], place)
        self._arguments()
        for variable in self._variables:
            if variable.startswith(OURS):
                raw, place = render(variable, self._known)
                folder = Path(str(self._variables["inventory_dir"][0]))
                _set_own(self._values, variable[len(OURS) :], raw, place, folder)

    def _text(self, target: str, candidates: list[str]) -> None:
        """Take the first variable that has a value; add a note if the other name has another value."""
        for position, variable in enumerate(candidates):
            raw, place = render(variable, self._known)
            if target == "python" and raw in DISCOVERED:
                return
            if raw not in (None, ""):
                text = _as_text(raw, variable, place)
                self._values.set(target, text, place)
                for other in candidates[position + 1 :]:
                    self._compare(variable, text, place, other)
                return

    def _compare(self, variable: str, text: str, place: Origin | None, other: str) -> None:
        try:
            raw, where = render(other, self._known)
        except InventoryError:  # it is not used
            return
        if raw not in (None, "") and str(raw) != text:
            source = "" if place is None else f" ({place})"
            self._notes.add(
                self._name, where, f"{other} is {str(raw)!r}, but Ansible uses {variable}, which is {text!r}{source}"
            )

    def _arguments(self) -> None:
        """Take from the arguments for ssh the way to the host, and fields that no variable sets."""
        is_set = "jump" in self._values or "proxy_command" in self._values
        for variable in SSH_ARGS:
            if variable not in self._variables:
                continue
            raw, place = render(variable, self._known)
            if raw is None:
                continue
            found = ssh_args.read(_as_text(raw, variable, place) if raw != "" else "", place)
            if found.way is not None and not is_set:
                self._values.set(*found.way, place)
                is_set = True
            for target, value in found.settings.items():
                if target not in self._values or (variable == BEFORE and target in ("user", "port")):
                    self._values.set(target, value, place)
            if found.unused:
                self._notes.add(self._name, place, f"unused in {variable}: {', '.join(found.unused)}")
        if PARAMIKO_PROXY in self._variables and self._values.get("transport") == "paramiko":
            raw, place = render(PARAMIKO_PROXY, self._known)
            if raw not in (None, ""):
                self._values.set(*ssh_args.way_of_command(_as_text(raw, PARAMIKO_PROXY, place), place), place)


def _set_own(values: Values, target: str, raw: object, place: Origin | None, folder: Path) -> None:
    if isinstance(raw, Opaque):
        raise Unevaluated(f"not a value for {OURS}{target}", place=place, found=raw.tag, expected="plain values")
    if target in ("env", "labels"):
        if not isinstance(raw, dict):
            raise fields.wrong(f"not a table for {OURS}{target}", raw, "names and values", place)
        for name, value in raw.items():
            setter = values.set_env if target == "env" else values.set_label
            setter(str(name), as_secret(value, place, folder) if target == "env" else value, place)
        return
    values.set(target, raw, place)


def _as_text(raw: object, variable: str, place: Origin | None) -> str:
    if isinstance(raw, Opaque):
        raise Unevaluated(f"not a value for {variable}", place=place, found=raw.tag, expected="plain text")
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise InventoryError(f"not a value for {variable}", place=place, found=str(raw), expected="plain text")
    return str(raw)
