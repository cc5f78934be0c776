"""Inventories as text: hostfile, TOML, Ansible YAML, ssh_config or JSON, with notes on what is lost. Pure."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mnspawn_inventory import fields, names
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.model import Group, Host, Inventory
from mnspawn_inventory.settings import own_hosts, settings_of
from mnspawn_inventory.toml_text import to_toml

EXPORTS = ("toml", "hostfile", "ansible-yaml", "ssh-config", "json")

ANSIBLE = {
    "address": "ansible_host",
    "user": "ansible_user",
    "port": "ansible_port",
    "identity": "ansible_ssh_private_key_file",
    "python": "ansible_python_interpreter",
}
SSH_KEYWORDS = {
    "address": "HostName",
    "user": "User",
    "port": "Port",
    "identity": "IdentityFile",
    "jump": "ProxyJump",
    "proxy_command": "ProxyCommand",
}


def export(inventory: Inventory, format_name: str) -> tuple[str, tuple[str, ...]]:
    """The text of the inventory in a format, and a note for each field that the format can't hold.

    Raises:
        InventoryError: there is no such export.
    """
    if format_name not in EXPORTS:
        raise InventoryError(
            "no such export", place=Origin("--format"), found=format_name, expected="one of " + ", ".join(EXPORTS)
        )
    if format_name == "toml":
        return to_toml(inventory), ()
    if format_name == "json":
        return json.dumps(to_json(inventory), indent=2, ensure_ascii=False) + "\n", ()
    if format_name == "ansible-yaml":
        return to_ansible(inventory), ()
    if format_name == "ssh-config":
        return to_ssh_config(inventory), tuple(_lost(inventory, set(SSH_KEYWORDS), format_name))
    return to_hostfile(inventory), tuple(_lost(inventory, {"user", "port", "slots", "max_slots"}, format_name))


def _lost(inventory: Inventory, held: set[str], format_name: str) -> Iterator[str]:
    used = {field for host in inventory.hosts for field in settings_of(host)}
    if inventory.groups:
        used.add("groups")
    for field in sorted(used - held):
        yield f"{format_name} can't hold {field}"


def to_json(inventory: Inventory) -> dict[str, object]:
    """`{"hosts": [...], "groups": [...]}`: all fields of all hosts, null where there is no value."""
    return {
        "hosts": [host_json(host) for host in inventory.hosts],
        "groups": [group_json(group) for group in inventory.groups],
    }


def host_json(host: Host) -> dict[str, object]:
    """One host with all its fields."""
    settings = settings_of(host)
    first = ("address", "user", "port", "slots")
    return {
        "name": host.name,
        **{field: settings.get(field) for field in first},
        "groups": list(host.groups),
        **{field: settings.get(field) for field in fields.FIELDS if field not in first},
        "env": settings.get("env", {}),
        "labels": settings.get("labels", {}),
    }


def group_json(group: Group) -> dict[str, object]:
    """One group with its members."""
    return {"name": group.name, "hosts": list(group.hosts), "children": list(group.children)}


def to_hostfile(inventory: Inventory) -> str:
    """`[user@]name [slots=N] [max_slots=N]`; as a URL if there is a port, which could look like slots."""
    lines = []
    for host in inventory.hosts:
        name = f"[{host.ssh_name}]" if ":" in host.ssh_name else host.ssh_name
        user = f"{host.user}@" if host.user else ""
        name = user + name if host.port is None else f"ssh://{user}{name}:{host.port}"
        counts = {"slots": host.slots, "max_slots": host.max_slots}
        lines.append(" ".join([name, *(f"{key}={count}" for key, count in counts.items() if count is not None)]))
    return "".join(f"{line}\n" for line in lines)


def to_ssh_config(inventory: Inventory) -> str:
    """A `Host` block for each host, with what ssh needs to reach it."""
    lines = []
    for host in inventory.hosts:
        lines.append(f"Host {plain_name(host.name)}")
        for field in SSH_KEYWORDS:
            value = getattr(host, field)
            if field == "address" and value is None and not names.is_plain(host.name):
                value = host.ssh_name
            if value is not None:
                lines.append(f"    {ssh_line(field, value)}")
    return "".join(f"{line}\n" for line in lines)


def plain_name(name: str) -> str:
    """A host's name for formats whose names have no user and port: `me@h:2201` becomes `me-h-2201`."""
    return name if names.is_plain(name) else re.sub(r"[^A-Za-z0-9_.]+", "-", name.removeprefix("ssh://")).strip("-")


def ssh_line(field: str, value: object) -> str:
    """A line of ssh_config."""
    text = str(value)
    if field == "proxy_command":  # ssh takes all of the line
        return f"{SSH_KEYWORDS[field]} {text}"
    if field in ("address", "identity"):
        text = text.replace("%", "%%")  # ssh would read it as a token
    return f'{SSH_KEYWORDS[field]} "{text}"' if " " in text else f"{SSH_KEYWORDS[field]} {text}"


def only(inventory: Inventory, hosts: Sequence[Host]) -> Inventory:
    """The inventory with only these hosts, also in its groups."""
    kept = {host.name for host in hosts}
    groups = tuple(
        replace(group, hosts=tuple(name for name in group.hosts if name in kept)) for group in inventory.groups
    )
    return replace(inventory, hosts=tuple(hosts), groups=groups)


def to_ansible(inventory: Inventory) -> str:
    """A YAML inventory: hosts and their variables under `all`, groups as lists of names below it."""
    from mnspawn_inventory.formats.yaml_nodes import dump  # late: only this export needs it

    hosts: dict[str, object] = {_ansible_name(host.name): _ansible_variables(host) or None for host in inventory.hosts}
    everything: dict[str, object] = {"hosts": hosts}
    children = {group.name: _ansible_group(group, inventory) for group in inventory.groups}
    if children:
        everything["children"] = children
    return dump({"all": everything})


def _ansible_name(name: str) -> str:
    plain = plain_name(name)
    return f"[{plain}]" if ":" in plain else plain


def _ansible_variables(host: Host) -> dict[str, object]:
    variables: dict[str, object] = {}
    for field, value in settings_of(host).items():
        if field == "transport" and value in ("local", "paramiko"):
            variables["ansible_connection"] = value
        else:
            variables[ANSIBLE.get(field, f"mnspawn_{field}")] = value
    if host.address is None and not names.is_plain(host.name):
        variables["ansible_host"] = host.ssh_name
    if host.jump is not None:
        variables["ansible_ssh_common_args"] = f"-J {host.jump}"  # for Ansible's own connections
    if host.proxy_command is not None:
        variables["ansible_ssh_common_args"] = shlex.join(["-o", f"ProxyCommand={host.proxy_command}"])
    return variables


def _ansible_group(group: Group, inventory: Inventory) -> dict[str, object] | None:
    members: dict[str, object] = {}
    if own := own_hosts(group, inventory):
        members["hosts"] = {_ansible_name(name): None for name in own}
    if group.children:
        members["children"] = dict.fromkeys(group.children)
    return members or None
