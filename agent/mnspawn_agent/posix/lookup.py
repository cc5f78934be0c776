"""Finds programs as a shell would, in the environment that a worker gets and from the folder that it starts in."""

import os
from typing import Optional


def find(name: str, path: str, folder: str) -> Optional[str]:
    """The file that a name means; None where there is none that can be executed.

    Args:
        path: as in PATH; an empty entry is `folder`.
        folder: that relative names and entries start from.
    """
    folders = [""] if "/" in name else path.split(os.pathsep)
    for entry in folders:
        found = os.path.join(folder, entry, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None
