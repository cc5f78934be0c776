"""Edits of inventory files: which file an edit goes to, and how its text is replaced."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mnspawn_inventory.draft import Draft
from mnspawn_inventory.editors import EDITED, Document, open_document
from mnspawn_inventory.errors import InventoryError, Origin, for_shell
from mnspawn_inventory.formats import OWN, check_format, read_decoded
from mnspawn_inventory.formats.detect import detect, is_script
from mnspawn_inventory.model import Inventory
from mnspawn_inventory.resolve import own_files
from mnspawn_inventory.store import edit
from mnspawn_inventory.text import Text, decode, read_text


def own_target(environ: Mapping[str, str], cwd: str | os.PathLike[str], targets: tuple[str, ...] = ()) -> Path:
    """The project's file if it has hosts (and knows one of `targets`, if given), else the user's."""
    user, project = own_files(environ, cwd)
    if not project.is_file():
        return user
    inventory = _read(read_text(project), project, OWN)
    if not inventory.hosts and not inventory.groups:
        return user
    if targets and user.is_file():
        known = {host.name for host in inventory.hosts} | {f"@{group.name}" for group in inventory.groups}
        if known.isdisjoint(_names(targets)):
            return user
    return project


def _names(targets: tuple[str, ...]) -> set[str]:
    from mnspawn_inventory.nodeset import expand, has_range

    return {name for target in targets for name in (expand(target, None) if has_range(target) else [target])}


def change(
    path: Path,
    work: Callable[[Document], list[str]],
    *,
    format_name: str | None = None,
    create: bool = False,
) -> list[str]:
    """Open the file, let `work` edit it, write it back.

    Args:
        format_name: the file's format; by default detected, for a new file TOML.
        create: make the file if it does not exist.

    Returns:
        What `work` returns.

    Raises:
        InventoryError: the file can't be edited, or `work` refuses; the file is unchanged.
    """
    check_format(format_name, Origin("--format"))
    if path.is_dir():
        raise _refused("a folder is read, not edited", path)
    done: list[str] = []

    def changed(text: str) -> str:
        found = _format_of(text, path, format_name)
        if found not in EDITED:
            option = "" if format_name is None else f" --format {format_name}"
            raise _refused(f"files in the format {found} are read, not edited", path, option)
        document = open_document(text, str(path), found)
        done.extend(work(document))
        return document.text()

    edit(path, changed, create=create)
    return done


def _refused(message: str, path: Path, option: str = "") -> InventoryError:
    """The error for what can't be edited, with the command that makes TOML of it."""
    command = f"mnspawn inventory import {for_shell(path)}{option}"
    return InventoryError(
        message,
        place=Origin(str(path)),
        expected="a TOML inventory or a hostfile",
        hint=f"{command} takes its hosts into your own inventory, where they can be edited"
        if path.exists()
        else "give a new inventory a name that ends in .toml",
    )


def _format_of(text: str, path: Path, format_name: str | None) -> str:
    if is_script(text[:4].encode(), path.exists() and os.access(path, os.X_OK)):
        raise _refused("a program makes this inventory, and only it can change that", path)
    if format_name is not None:
        return format_name
    return detect(path, decode(text.encode(), str(path))) if text.strip() or path.suffix else OWN


def _read(text: Text, path: Path, format_name: str) -> Inventory:
    """Read a text that is being edited; unknown keys are accepted."""
    draft = Draft(str(path), format_name, is_lenient=True)
    read_decoded(draft, path, text)
    return draft.finish()


def replace_text(path: Path, before: str, after: str) -> None:
    """Write a text that was edited by hand.

    Raises:
        InventoryError: the text is not a valid inventory, or the file has changed since `before` was read.
    """
    text = decode(after.encode(), str(path))
    if not is_script(after[:4].encode(), path.exists() and os.access(path, os.X_OK)):
        _read(text, path, OWN if path.suffix == ".toml" or not before.strip() else detect(path, text))

    def changed(now: str) -> str:
        if decode(now.encode(), str(path)).content != before:
            raise InventoryError("the file was changed in the meantime", place=Origin(str(path)), hint="edit it again")
        return after

    edit(path, changed)
