"""Editors of inventories, one for each format: text in, text out, with nothing lost. No I/O."""

from mnspawn_inventory.editors.base import Document, Settings
from mnspawn_inventory.errors import InventoryError, Origin, for_shell

__all__ = ["Document", "Settings", "open_document"]


def open_document(text: str, source: str, format_name: str) -> Document:
    """The editor of a format with a text in it.

    Raises:
        InventoryError: the text is not of the format, or nobody can edit the format.
    """
    if format_name == "toml":
        from mnspawn_inventory.editors.toml import TomlDocument

        return TomlDocument(text, source, format_name)
    if format_name in ("hostfile", "openmpi", "deepspeed", "horovod", "mpich"):
        from mnspawn_inventory.editors.hostfile import HostfileDocument

        return HostfileDocument(text, source, format_name)
    if format_name in ("pbs", "lsf"):
        from mnspawn_inventory.editors.hostfile import NodeFileDocument

        return NodeFileDocument(text, source, format_name)
    if format_name == "ssh-config":
        from mnspawn_inventory.editors.ssh_config import SshConfigDocument

        return SshConfigDocument(text, source, format_name)
    if format_name == "ansible-ini":
        from mnspawn_inventory.editors.ansible_ini import IniDocument

        return IniDocument(text, source, format_name)
    if format_name == "ansible-yaml":
        from mnspawn_inventory.editors.ansible_yaml import YamlDocument

        return YamlDocument(text, source, format_name)
    if format_name in ("json", "ansible-json"):
        return _open_json(text, source, format_name)
    raise InventoryError(
        f"files in the format {format_name} are read, not edited",
        place=Origin(source),
        hint=f"mnspawn inventory import {for_shell(source)} takes its hosts into an inventory that can be edited",
    )


def _open_json(text: str, source: str, format_name: str) -> Document:
    from mnspawn_inventory.editors.json_text import AnsibleJsonDocument, OwnJsonDocument
    from mnspawn_inventory.formats import ansible_json, own_json
    from mnspawn_inventory.text import Text

    is_own = format_name == "json" and (not text.strip() or own_json.is_own(ansible_json.load(Text(source, text))))
    return (OwnJsonDocument if is_own else AnsibleJsonDocument)(text, source, "json" if is_own else "ansible-json")
