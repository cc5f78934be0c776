"""The settings of hosts and groups as plain values, for writers of inventories. Pure."""

from pathlib import Path

from mnspawn_inventory import fields, names
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.model import Group, Host, Inventory, SecretRef


def settings_of(host: Host) -> dict[str, object]:
    """The settings of a host by field, in the order of the fields; `env` and `labels` are tables."""
    found: dict[str, object] = {}
    for field in fields.FIELDS:
        value = getattr(host, field)
        if value is not None:
            found[field] = list(value) if isinstance(value, tuple) else value
    env: dict[str, object] = dict(host.env)
    for name, secret in host.secrets:  # where a secret is kept, never what it is
        env[name] = {"env": secret.variable} if secret.variable else {"file": secret.file or ""}
    if env:
        found["env"] = env
    if host.labels:
        found["labels"] = dict(host.labels)
    return found


def flat_settings(host: Host) -> dict[str, object]:
    """The settings of a host, with `env.NAME` and `labels.NAME` as keys."""
    found: dict[str, object] = {}
    for key, value in settings_of(host).items():
        if isinstance(value, dict):
            found.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            found[key] = value
    return found


def as_secret(raw: object, place: Origin | None, folder: Path) -> object:
    """`{env: NAME}` and `{file: PATH}` as a reference to a secret, the file below `folder`; other values as they are.

    Raises:
        InventoryError: it is a table, but no reference.
    """
    if not isinstance(raw, dict):
        return raw
    if len(raw) != 1 or not {"env", "file"} & raw.keys() or not all(isinstance(one, str) for one in raw.values()):
        raise InventoryError(
            "not a reference to a secret",
            place=place,
            found=str(raw),
            expected='{ env = "NAME" } or { file = "PATH" }',
        )
    if "env" in raw:
        if not names.VARIABLE_NAME.fullmatch(raw["env"]):
            raise InventoryError("not a variable's name", place=place, found=raw["env"], expected="such as HF_TOKEN")
        return SecretRef(variable=raw["env"])
    file = fields.text(raw["file"], "a file", place)
    return SecretRef(file=file if file.startswith("~") else str(folder / file))


def own_hosts(group: Group, inventory: Inventory) -> list[str]:
    """The members of a group that are in none of its child groups."""
    groups = {one.name: one for one in inventory.groups}
    below = {name for child in group.children if child in groups for name in groups[child].hosts}
    return [name for name in group.hosts if name not in below]
