"""Inventories as TOML text; hosts that differ only by a number share one table. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mnspawn_inventory.model import Group, Host, Inventory
from mnspawn_inventory.nodeset import Run
from mnspawn_inventory.settings import own_hosts, settings_of

RANGED = ("address", "data_address")  # these may count up together with the name


@dataclass(frozen=True, slots=True)
class HostRun:
    """Consecutive hosts that can share one table."""

    pattern: str
    settings: dict[str, object]
    names: tuple[str, ...]


def to_toml(inventory: Inventory) -> str:
    """The inventory in our own format."""
    blocks = [table_text(("hosts", run.pattern), run.settings) for run in runs(inventory.hosts)]
    blocks += [table_text(("groups", group.name), group_settings(group, inventory)) for group in inventory.groups]
    return "\n".join(blocks)


def group_settings(group: Group, inventory: Inventory) -> dict[str, object]:
    """The table of a group: its own hosts, and its children."""
    settings: dict[str, object] = {}
    own = own_hosts(group, inventory)
    if own or not group.children:
        settings["hosts"] = patterns(own)
    if group.children:
        settings["children"] = list(group.children)
    return settings


def patterns(names: Iterable[str]) -> list[str]:
    """Names as short patterns in the same order."""
    found: list[Run] = []
    for name in names:
        if not found or not found[-1].takes(name):
            found.append(Run())
        found[-1].add(name)
    return [run.pattern for run in found]


def runs(hosts: Iterable[Host]) -> list[HostRun]:
    """Divide the hosts into runs of equal settings, whose names and addresses count up together."""
    found: list[HostRun] = []
    shared: dict[str, object] = {}
    counted: dict[str, Run] = {}
    names: list[str] = []

    def close() -> None:
        if names:
            settings = {key: counted[key].pattern if key in counted else value for key, value in shared.items()}
            found.append(HostRun(counted["name"].pattern, settings, tuple(names)))

    for host in hosts:
        settings = settings_of(host)
        ranged = {"name": host.name, **{key: str(settings[key]) for key in RANGED if key in settings}}
        fits = (
            bool(names)
            and settings.keys() == shared.keys()
            and all(key in counted or shared[key] == value for key, value in settings.items())
            and all(counted[key].takes(value) for key, value in ranged.items())
        )
        if not fits:
            close()
            shared, counted, names = settings, {key: Run() for key in ranged}, []
        for key, value in ranged.items():
            counted[key].add(value)
        names.append(host.name)
    close()
    return found


def table_text(path: Sequence[str], settings: Mapping[str, object]) -> str:
    """A TOML table with its header."""
    lines = [f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def toml_key(key: str) -> str:
    """A key, quoted if necessary."""
    is_bare = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if is_bare else toml_value(key)


def toml_value(value: object) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, int):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
