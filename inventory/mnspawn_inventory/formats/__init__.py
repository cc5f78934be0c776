"""Readers of inventory files: chooses the reader for a file's format."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean
from mnspawn_inventory.model import Inventory

if TYPE_CHECKING:
    from mnspawn_inventory.text import Text

# Readers are imported where they are used: a run with --hosts needs none of them.
FORMATS = (
    "toml",
    "hostfile",
    "openmpi",
    "deepspeed",
    "horovod",
    "mpich",
    "ansible-ini",
    "ansible-yaml",
    "ansible-json",
    "ansible-script",
    "ssh-config",
    "slurm",
    "pbs",
    "lsf",
    "ips",
    "json",
)
OWN = "toml"
NOT_A_HOSTFILE = ("not a setting", "not a host name", "not a user name")  # errors that suggest a file of another kind


def read_inventory(
    path: str | os.PathLike[str],
    format_name: str | None = None,
    *,
    cwd: str | os.PathLike[str] = ".",
) -> Inventory:
    """Read an inventory file of any format.

    Args:
        path: the file; errors name it as written here. A folder is read as Ansible reads one.
        format_name: one of FORMATS; by default the format is detected from name and content.
        cwd: what a relative path is relative to.

    Raises:
        InventoryError: the file can't be read, is not of its format, has no hosts (TOML and JSON may have none), or
            none of its hosts can be used.
    """
    source = os.fspath(path)
    check_format(format_name, Origin("--format"))
    draft = Draft(source, format_name or "")
    read_into(draft, Path(cwd) / Path(source).expanduser(), source, format_name)
    inventory = draft.finish()
    if not inventory.hosts and inventory.format not in (OWN, "json"):
        raise InventoryError("no hosts", place=Origin(source), expected="at least one host")
    if inventory.hosts and all(host.problem is not None for host in inventory.hosts):
        inventory.hosts[0].check_usable()
    return inventory


def check_format(name: str | None, place: Origin) -> None:
    """Raises InventoryError if there is no such format."""
    if name is not None and name not in FORMATS:
        raise InventoryError(
            "no such format",
            place=place,
            found=name,
            expected="one of " + ", ".join(FORMATS),
            hint=did_you_mean(name, FORMATS),
        )


def read_into(draft: Draft, path: Path, shown: str, format_name: str | None = None) -> None:
    """Read a file into a draft; its values win over those already there.

    Args:
        shown: what errors call the file.
        format_name: by default the format is detected.
    """
    from mnspawn_inventory.formats.detect import detect, is_script
    from mnspawn_inventory.text import decode, read_bytes

    if format_name is None and path.is_dir():
        from mnspawn_inventory.formats.ansible_files import read_folder

        read_folder(draft, path, shown)
        return
    content = b"" if format_name == "ansible-script" else read_bytes(path, shown)
    if format_name == "ansible-script" or (format_name is None and is_script(content[:4], os.access(path, os.X_OK))):
        from mnspawn_inventory.formats.ansible_files import read_script

        read_script(draft, path, shown)
        return
    text = decode(content, shown)
    draft.format = format_name or detect(path, text)
    try:
        read_decoded(draft, path, text)
    except InventoryError as exc:
        if format_name is None and draft.format == "hostfile" and exc.message in NOT_A_HOSTFILE:
            exc.hint = exc.hint or "it was read as a hostfile, with lines such as 'a slots=4'"
        raise


def read_decoded(draft: Draft, path: Path, text: "Text") -> None:
    """Read a text in the draft's format; files beside `path` (group_vars) are read, too."""
    from mnspawn_inventory.formats import hostfile

    if draft.format == OWN:
        from mnspawn_inventory.formats import own

        own.read(text, draft)
    elif draft.format in hostfile.DIALECTS:
        hostfile.read(text, draft, draft.format)
    elif draft.format in ("pbs", "lsf"):
        hostfile.read_repeated(text, draft)
    elif draft.format == "ssh-config":
        from mnspawn_inventory.formats import ssh_config

        ssh_config.read(text, draft)
    elif draft.format == "json":  # our own export has a list of hosts, Ansible's JSON has groups
        from mnspawn_inventory.formats import ansible_files, ansible_json, own_json

        document = ansible_json.load(text)
        if own_json.is_own(document):
            own_json.read(document, draft)
        else:
            ansible_files.read_json(draft, path, document, text.source)
    elif draft.format.startswith("ansible-"):
        from mnspawn_inventory.formats import ansible_files

        ansible_files.read_file(draft, path, text)
    else:
        _read_list(draft, text)


def _read_list(draft: Draft, text: "Text") -> None:
    """Read a file of Slurm node lists or of Paddle's lists of addresses."""
    from mnspawn_inventory.allocation import add_addresses, nodelist

    for line in text.lines():
        content = line.text.strip()
        place = line.place(len(line.text) - len(line.text.lstrip()))
        if content and draft.format == "ips":
            add_addresses(content, draft, place)
        elif content:
            for name in nodelist(content, place):
                draft.host(name, place)
