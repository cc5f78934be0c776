"""What the fields of messages may be: kinds and bounds of values, each bound with its reason. Pure."""

from typing import Any, Callable

Check = Callable[[Any], bool]

MAX_COUNT = 1 << 63  # offsets and sizes of files are off_t
MAX_RANK = 1 << 32  # as the head of an output frame holds it
MAX_RANKS = 4096  # workers on one host; more is a mistake
MAX_PID = 1 << 31  # pid_t; Linux stays below 1 << 22
MAX_SECONDS = 1e10  # 300 years: no process runs and no system is up for longer
MAX_TIME = 2.5e11  # seconds since the epoch: later dates have no year that can be written
MAX_WORDS = 1 << 20  # of argv; execve takes no more in its 6 MiB
MAX_NAME = 255  # NAME_MAX of every file system that matters
MAX_TEXT = 1 << 20  # characters; Linux takes no argument over 128 KiB, and an error may quote one with escapes
MAX_LINE = 1 << 16  # characters of a tail's line: 16 KiB of a file, each byte escaped
MAX_TAIL = 20  # lines
MAX_LIST = 1 << 16  # of numbers and short texts: a few for every rank of a host
MAX_REASONS = 1 << 13  # a few for every rank and file
MAX_FILES = 512  # that one tailer follows at a time; many systems allow a process 1024 descriptors
MAX_FOLLOWED = 1 << 20  # that it has followed so far: years of a file a minute
MAX_INODE = 1 << 64  # ino_t
STREAMS = (1, 2, 3)  # stdout, stderr, result
OLDEST_CODE, LARGEST_CODE = -127, 255  # a wait status has 7 bits for a signal and 8 for a status


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def integer(least: int, most: int) -> Check:
    return lambda value: is_int(value) and least <= value <= most


def number(least: float, most: float) -> Check:
    return lambda value: (is_int(value) or isinstance(value, float)) and least <= value <= most


def string(most: int) -> Check:
    """A str of at most that many characters."""
    return lambda value: isinstance(value, str) and len(value) <= most


is_str = string(MAX_TEXT)
is_line = string(MAX_LINE)
is_count = integer(0, MAX_COUNT - 1)
is_rank = integer(0, MAX_RANK - 1)
is_file_number = integer(0, MAX_FOLLOWED - 1)
is_inode = integer(0, MAX_INODE - 1)
is_stream = integer(STREAMS[0], STREAMS[-1])
is_pid = integer(1, MAX_PID - 1)
is_code = integer(OLDEST_CODE, LARGEST_CODE)  # as Popen.returncode
is_port = integer(1, 65535)
is_seconds = number(0, MAX_SECONDS)  # a duration
is_moment = number(-MAX_SECONDS, MAX_SECONDS)  # on the agent's monotonic clock: less than 0 is before the system booted
is_time = number(0, MAX_TIME)  # seconds since the epoch


def is_content(value: Any) -> bool:
    """Text that can be turned into bytes: lone surrogates only where they stand for a byte (PEP 383)."""
    try:
        return isinstance(value, str) and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:
        return False


def is_text(value: Any) -> bool:
    """Text that can stand in argv or an environment: no NUL."""
    return is_content(value) and "\0" not in value


def is_path(value: Any) -> bool:
    return is_text(value) and 0 < len(value) <= MAX_LINE


def is_token(value: Any) -> bool:
    """A name that is safe as a file name, an argument and a value: run ids."""
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    return isinstance(value, str) and 0 < len(value) <= 64 and all(c in allowed for c in value)


def is_file_name(value: Any) -> bool:
    """One component of a path, not hidden tricks like `..`."""
    return (
        is_text(value)
        and value not in ("", ".", "..")
        and "/" not in value
        and len(value.encode("utf-8", "surrogateescape")) <= MAX_NAME
    )


def is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(
        is_text(name) and name and "=" not in name and is_text(text) for name, text in value.items()
    )


def list_of(check: Check, at_most: int = MAX_LIST, at_least: int = 0) -> Check:
    return lambda value: isinstance(value, list) and at_least <= len(value) <= at_most and all(map(check, value))


def pair_of(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list) and len(value) == len(checks) and all(c(v) for c, v in zip(checks, value))
    )


def dict_of(**checks: Check) -> Check:
    """A dict with at least these names."""
    return lambda value: isinstance(value, dict) and all(check(value.get(name)) for name, check in checks.items())


def or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def shown(value: Any) -> str:
    """The beginning of what was found, for a message."""
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):  # lists in lists in lists; a number of thousands of digits
        return "a very large %s" % type(value).__name__
