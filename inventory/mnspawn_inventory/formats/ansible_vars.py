"""The folders group_vars and host_vars beside an Ansible inventory."""

import os
from pathlib import Path

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import AnsibleSource, Variables
from mnspawn_inventory.formats.ansible_yaml import read_variables
from mnspawn_inventory.text import read_text

EXTENSIONS = ("", ".yml", ".yaml", ".json")


def read_beside(source: AnsibleSource, path: Path) -> tuple[dict[str, Variables], dict[str, Variables]]:
    """Variables by group and by host, from the files beside the inventory, as Ansible finds them."""
    folder = path.resolve().parent
    shown = source.folder
    groups = _read_folder(folder / "group_vars", shown / "group_vars", ["all", "ungrouped", *source.groups])
    hosts = _read_folder(folder / "host_vars", shown / "host_vars", list(source.hosts))
    return groups, hosts


def _read_folder(folder: Path, shown: Path, wanted: list[str]) -> dict[str, Variables]:
    try:
        present = set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):  # the usual case: no such folder
        return {}
    except OSError as exc:
        raise InventoryError(
            f"the folder can't be read: {(exc.strerror or '').lower()}", place=Origin(str(shown))
        ) from exc
    found: dict[str, Variables] = {}
    for name in dict.fromkeys(wanted):
        entry = next((name + extension for extension in EXTENSIONS if name + extension in present), None)
        if entry is None:
            continue
        variables: Variables = {}
        for relative in _files(folder, Path(entry)):
            variables.update(read_variables(read_text(folder / relative, str(shown / relative))))
        found[name] = variables
    return found


def _files(folder: Path, entry: Path) -> list[Path]:
    """The file itself, or the variable files below a folder, in order."""
    if not (folder / entry).is_dir():
        return [entry]
    files: list[Path] = []
    for name in sorted(os.listdir(folder / entry)):
        below = entry / name
        if name.startswith(".") or name.endswith("~") or len(below.parts) > 10:
            continue
        if (folder / below).is_dir():
            files.extend(_files(folder, below))
        elif below.suffix in EXTENSIONS:
            files.append(below)
    return files
