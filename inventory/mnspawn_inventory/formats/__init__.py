"""The formats that inventories come in: which one a file is, and the reader of each."""

import os
from pathlib import Path

from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import hostfile
from mnspawn_inventory.model import Inventory
from mnspawn_inventory.text import read_text


def read_inventory(
    path: str | os.PathLike[str], format_name: str | None = None, *, cwd: str | os.PathLike[str] = "."
) -> Inventory:
    """Read an inventory file of any format.

    Args:
        path: the file; errors name it as it is written here.
        format_name: one of FORMATS; by default the format is found out from name and content.

    Raises:
        InventoryError: the file can't be read, or is not of its format.
    """
    source = os.fspath(path)
    text = read_text(Path(cwd) / Path(source).expanduser(), source)
    draft = Draft(source, format_name or "hostfile")
    hostfile.read(text, draft)
    inventory = draft.finish()
    if not inventory.hosts:
        raise InventoryError("no hosts", place=Origin(source), expected="at least one host")
    return inventory
