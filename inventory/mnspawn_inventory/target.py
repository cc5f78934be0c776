"""Which file an edit goes to, and editing it: our own TOML and hostfiles, atomically and one edit at a time."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mnspawn_inventory.edits import Document
from mnspawn_inventory.edits import read as read_toml
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import OWN
from mnspawn_inventory.formats.detect import detect
from mnspawn_inventory.formats.hostfile import DIALECTS
from mnspawn_inventory.hostfile_edits import HostfileDocument
from mnspawn_inventory.resolve import own_files
from mnspawn_inventory.store import edit
from mnspawn_inventory.text import decode, read_text


def own_target(environ: Mapping[str, str], cwd: str | os.PathLike[str], targets: tuple[str, ...] = ()) -> Path:
    """The project's file where it has hosts (and knows `targets`, when they are given), else the user's."""
    user, project = own_files(environ, cwd)
    if not project.is_file():
        return user
    inventory = read_toml(read_text(project).content, str(project))
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
    work: Callable[[Document | HostfileDocument], list[str]],
    *,
    format_name: str | None = None,
    create: bool = False,
) -> list[str]:
    """Open the file, let `work` edit it, write it back. Gives what `work` gives.

    Args:
        format_name: the file's format; by default found out, for a new file TOML.
        create: make the file when it is not there.

    Raises:
        InventoryError: the file can't be edited, or `work` refuses; then it is as it was.
    """
    done: list[str] = []

    def changed(text: str) -> str:
        document = _open(text, path, format_name)
        done.extend(work(document))
        return document.text()

    edit(path, changed, create=create)
    return done


def _open(text: str, path: Path, format_name: str | None) -> Document | HostfileDocument:
    decoded = decode(text.encode(), str(path))
    if format_name is None:
        format_name = detect(path, decoded.content) if decoded.content.strip() or path.suffix else OWN
    if format_name == OWN:
        return Document(text, str(path))
    if format_name in DIALECTS:
        return HostfileDocument(text, str(path), format_name)
    raise InventoryError(
        f"files in the format {format_name} are read, not edited",
        place=Origin(str(path)),
        expected="a TOML inventory or a hostfile",
        hint=f"mnspawn inventory import {path} takes its hosts into an inventory that can be edited",
    )


def replace_text(path: Path, before: str, after: str) -> None:
    """Write a text that was edited by hand, unless the file has changed since `before` was read."""
    _open(after, path, OWN if path.suffix == ".toml" or not before.strip() else None)

    def changed(now: str) -> str:
        if now != before:
            raise InventoryError("the file was changed meanwhile", place=Origin(str(path)), hint="edit it again")
        return after

    edit(path, changed)
