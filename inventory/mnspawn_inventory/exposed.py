"""Secrets that are written where other accounts can read them: a note for each, with what to do."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mnspawn_inventory.errors import for_shell
from mnspawn_inventory.model import Host
from mnspawn_inventory.notes import HostNotes
from mnspawn_inventory.secret_names import is_secret


def notes_of(hosts: Iterable[Host], cwd: str | os.PathLike[str] = ".") -> tuple[str, ...]:
    """A line for each such value, with its place. Files that only their owner can read may hold secrets."""
    notes = HostNotes()
    open_files: dict[str, bool] = {}
    for host in hosts:
        for name, value in host.env:
            place = host.origin(f"env.{name}")
            if place is None or not is_secret(name, value):
                continue
            source = place.source
            if source not in open_files:
                open_files[source] = _is_open(Path(cwd) / Path(source).expanduser())
            if open_files[source]:
                instead = f'{{ env = "{name}" }} or {{ file = "PATH" }}, or chmod go= {for_shell(source)}'
                notes.add(
                    host.name,
                    place,
                    f"{name} is a secret, and others can read this file: write {instead}",
                )
    return notes.lines()


def _is_open(path: Path) -> bool:
    """Whether accounts other than the owner's can read it; a program's output is not stored."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))
