"""Tells a misspelt keyword of ssh_config(5) from one that is newer than the list of known ones. Pure."""

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from mnspawn_inventory.formats.ssh_keywords import KEYWORDS

ALIKE = 0.7  # difflib's ratio: `prot`, `identityfiles`, `hostnmae` are alike; a keyword of a later release is not


def misspelt(keyword: str, ignored: Iterable[str]) -> str | None:
    """Return the keyword that was probably meant; None for one that is known, ignored, or like none.

    Args:
        keyword: in lower case.
        ignored: patterns of IgnoreUnknown.
    """
    if keyword in KEYWORDS or any(fnmatchcase(keyword, pattern.lower()) for pattern in ignored):
        return None
    near = difflib.get_close_matches(keyword, KEYWORDS, 1, ALIKE)
    return near[0] if near else None
