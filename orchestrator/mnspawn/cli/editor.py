"""Opens an inventory in the user's editor, and saves it only if it is valid."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from mnspawn.system import temporary as leftovers
from mnspawn_inventory import InventoryError, Origin
from mnspawn_inventory.store import check_editable
from mnspawn_inventory.target import replace_text
from mnspawn_inventory.text import read_text

from .render import print_ours
from .wording.run import message_lines


def edit_by_hand(path: Path) -> bool:
    """Open a copy of the file in the editor, and replace the file if the copy is valid.

    Returns:
        Whether the file has changed.

    Raises:
        InventoryError: there is no editor, or the new text is not valid; then the copy is kept.
        UsageError: there is no temporary folder for the copy.
    """
    check_editable(path)
    before = read_text(path).content if path.exists() else ""
    folder = leftovers.new("mnspawn-")
    copy = folder / path.name
    copy.write_text(before, encoding="utf-8")
    while True:
        try:
            _run_editor(copy)
            if not copy.exists():
                raise InventoryError("the editor removed the file", place=Origin(str(copy)), hint="nothing was changed")
        except InventoryError:
            copy.unlink(missing_ok=True)
            folder.rmdir()
            raise
        try:
            after = read_text(copy, str(path)).content
            if after != before:
                replace_text(path, before, after)
        except InventoryError as exc:
            print_ours(message_lines(str(exc), exc.hint))
            if _wants_again():
                continue
            raise InventoryError(
                "nothing was changed", place=Origin(str(path)), hint=f"your text is in {copy}"
            ) from exc
        copy.unlink()
        folder.rmdir()
        return after != before


def _run_editor(copy: Path) -> None:
    variable = next((name for name in ("VISUAL", "EDITOR") if os.environ.get(name)), None)
    if variable is None and not sys.stdin.isatty():
        raise InventoryError(
            "there is no editor to start", place=Origin("EDITOR"), hint="set EDITOR, or use a terminal"
        )
    command = os.environ[variable] if variable else "vi"
    place = Origin(variable or "EDITOR")
    try:
        status = subprocess.run([*shlex.split(command), str(copy)], check=False).returncode
    except (OSError, ValueError) as exc:
        raise InventoryError("the editor can't be started", place=place, found=command, hint="set EDITOR") from exc
    if status:
        how = f"with status {status}" if status > 0 else f"by signal {-status}"
        raise InventoryError(f"the editor ended {how}", place=place, found=command, hint="nothing was changed")


def _wants_again() -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("edit again? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
