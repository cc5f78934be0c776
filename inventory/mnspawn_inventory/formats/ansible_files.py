"""Ansible's inventories on disk: files, programs and folders, with the group_vars and host_vars beside them."""

import os
from pathlib import Path

from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import ansible_ini, ansible_json, ansible_yaml
from mnspawn_inventory.formats.ansible import AnsibleSource, Variables
from mnspawn_inventory.formats.ansible_json import Json
from mnspawn_inventory.formats.detect import detect, is_script
from mnspawn_inventory.text import Text, decode, read_bytes, read_text

IGNORED = (".cfg", ".retry", ".orig", ".bak", ".pyc", ".pyo", ".swp", ".rpm", ".md", ".txt", ".rst", "~")
EXTENSIONS = ("", ".yml", ".yaml", ".json")


def read_file(draft: Draft, path: Path, text: Text) -> None:
    """Read a text in the draft's format into it; `path` is where the file is."""
    source = AnsibleSource(text.source)
    _read_groups(source, draft.format, text)
    source.apply(draft, _read_beside(source, path))


def read_json(draft: Draft, path: Path, document: Json, shown: str) -> None:
    """Read JSON that may be that of any other program."""
    draft.format = "ansible-json"
    source = AnsibleSource(shown)
    ansible_json.read_groups(document, source, is_certain=False)
    source.apply(draft, _read_beside(source, path))


def read_script(draft: Draft, path: Path, shown: str) -> None:
    """Run a program and read what it prints."""
    draft.format = "ansible-script"
    source = AnsibleSource(shown)
    ansible_json.run_script(path, source)
    source.apply(draft, _read_beside(source, path))


def read_folder(draft: Draft, folder: Path, shown: str) -> None:
    """Read the files of a folder one after the other, as Ansible does, into one inventory."""
    draft.format = "ansible-folder"
    source = AnsibleSource(f"{shown}/")
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name.endswith(IGNORED) or not entry.is_file():
            continue
        name = str(Path(shown) / entry.name)
        content = read_bytes(entry, name)
        if is_script(content[:4], os.access(entry, os.X_OK)):
            ansible_json.run_script(entry, source)
            continue
        text = decode(content, name)
        try:
            found = detect(entry, text)
        except InventoryError:  # it looks like an ssh_config in part, and Ansible has none
            found = "hostfile"
        is_ansible = found.startswith("ansible-")
        _read_groups(source, found if is_ansible else "ansible-json" if found == "json" else "ansible-ini", text)
    source.apply(draft, _read_beside(source, folder / "any"))


def _read_groups(source: AnsibleSource, format_name: str, text: Text) -> None:
    if format_name == "ansible-ini":
        ansible_ini.read(text, source)
    elif format_name == "ansible-yaml":
        ansible_yaml.read(text, source)
    else:
        ansible_json.read_groups(ansible_json.load(text), source)


# -- group_vars and host_vars


def _read_beside(source: AnsibleSource, path: Path) -> tuple[dict[str, Variables], dict[str, Variables]]:
    """Variables by group and by host, from the files beside the inventory, as Ansible finds them."""
    folder = path.resolve().parent
    shown = source.folder
    groups = _read_variables(folder / "group_vars", shown / "group_vars", ["all", "ungrouped", *source.groups])
    hosts = _read_variables(folder / "host_vars", shown / "host_vars", list(source.hosts))
    return groups, hosts


def _read_variables(folder: Path, shown: Path, wanted: list[str]) -> dict[str, Variables]:
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
            variables.update(ansible_yaml.read_variables(read_text(folder / relative, str(shown / relative))))
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
