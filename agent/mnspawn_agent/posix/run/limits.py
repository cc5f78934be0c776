"""What the host allows a process: open files, and the size of arguments and environment (never shows values)."""

import os
import resource
import struct
from typing import Dict, List, Optional, Tuple

LONGEST = 131072  # bytes of one string with its final NUL (MAX_ARG_STRLEN, execve(2))
LEAST, MOST = 131072, 6 << 20  # bytes of all strings and pointers, whatever the stack limit (fs/exec.c)
POINTER = struct.calcsize("P")
NAMED = 3  # of the largest variables

_given: List[Tuple[int, int]] = []  # the limit of open files that the host gave us


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


def argument_limit() -> Tuple[int, int]:
    """Bytes of all strings and pointers that a process started here may have, and our soft stack limit (-1: none)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY:
        return MOST, -1
    return max(LEAST, min(MOST, soft // 4)), soft


def size_of(argv: List[str]) -> int:
    """Bytes that arguments take, with what the kernel adds to each."""
    return sum(len(os.fsencode(word)) + 1 + POINTER for word in argv)


def problem_with(arguments: int, env: Dict[str, str]) -> Optional[str]:
    """Why nothing can be started with these; None when they fit.

    Args:
        arguments: as `size_of` gives it.
    """
    sizes = {name: len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in env.items()}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    if largest and sizes[largest[0]] > LONGEST:
        return "the variable %s takes %d bytes, more than the %d that Linux allows one variable" % (
            largest[0],
            sizes[largest[0]],
            LONGEST,
        )
    total = sum(sizes.values()) + POINTER * len(sizes) + arguments
    most, stack = argument_limit()
    if total <= most:
        return None
    named = ", ".join("%s %d" % (name, sizes[name]) for name in largest[:NAMED])
    why = (
        "a quarter of its stack limit, ulimit -s %d" % (stack >> 10) if most < MOST and stack >= 0 else "Linux's limit"
    )
    return (
        "environment and arguments take %d bytes, more than the %d that this host allows (%s); "
        "arguments take %d, the largest variables: %s" % (total, most, why, arguments, named)
    )
