"""Open files: the agent needs several per rank, a worker finds the limit that its host gives."""

import resource
from typing import List, Tuple

_given: List[Tuple[int, int]] = []


def raise_open_files() -> None:
    """Take what the hard limit allows; an agent of many ranks would not get along with the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # not allowed here: then the soft limit stays
    _given.append((soft, hard))


def restore_open_files() -> None:
    """In a worker, before it executes its program."""
    if _given:
        resource.setrlimit(resource.RLIMIT_NOFILE, _given[0])
