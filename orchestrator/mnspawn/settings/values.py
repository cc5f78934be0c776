"""One function per kind of option value: what was found -> a checked value, or BadValue. Pure.

Values come as text (command line, environment) or as TOML's types (settings file, Python).
"""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn.plan.contract import DEFAULT, choose
from mnspawn.plan.launch_plan import Forwarded, FromFile
from mnspawn_agent.protocol.checks import MAX_SECONDS

from . import env_file

MOST_WORKERS = 4096  # on one host: an agent takes no more (checks.MAX_RANKS), and more is a typing error


class BadValue(ValueError):
    """A value that can't be used; the text says what was expected and found, the caller knows where."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a value may refer to: the environment, and the folder that relative paths start from (None: ours)."""

    environ: Mapping[str, str]
    folder: Path | None = None


Parser = Callable[[object, Context], object]
_SHOWN = 60  # of a bad value, in a message


def _bad(expected: str, found: object) -> BadValue:
    shown = repr(found)
    return BadValue(f"expected {expected}, found {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'}")


def text(found: object, context: Context) -> str:
    """Text with something in it."""
    if not isinstance(found, str) or not found.strip():
        raise _bad("text", found)
    if "\0" in found:
        raise _bad("text without NUL characters", found)
    return found


def host_list(found: object, context: Context) -> str:
    """Comma-separated hosts; what the entries mean is the inventory's to say."""
    if isinstance(found, list | tuple) and found and all(isinstance(host, str) for host in found):
        found = ",".join(found)
    if not isinstance(found, str) or not found.strip():
        raise _bad("one host or more, separated by commas", found)
    return found


def path(found: object, context: Context) -> Path:
    """A path on this machine; "-" stays, "~/" is the home, a settings file's relative paths start at its folder."""
    if isinstance(found, Path):
        return found
    if not isinstance(found, str) or not found or "\0" in found:
        raise _bad("a path", found)
    home = context.environ.get("HOME", "")
    if found.startswith("~/") and home:
        return Path(home, found[2:])
    return context.folder / found if context.folder and found != "-" else Path(found)


def _whole(found: object, lowest: int, highest: int, expected: str) -> int:
    number = found
    if isinstance(found, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", found, re.ASCII):
        number = int(found)
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise _bad(expected, found)
    return number


def label(found: object, context: Context) -> str:
    """A name for people that stays on one line of a list, is no option, and no HOSTS:PATTERN of `tail`."""
    if not isinstance(found, str) or not re.fullmatch(r"[^\s:-][^\s:]{0,63}", found) or not found.isprintable():
        raise _bad("a name without blanks and colons, up to 64 characters", found)
    return found


def size(found: object, context: Context) -> int:
    """A number of bytes: 65536, 64K, 10M, 2G (of 1024 each)."""
    expected = "a size such as 64K, 10M or 2G"
    if isinstance(found, str):
        match = re.fullmatch(r"\s*([0-9]{1,15})\s*([KMGT]?)(?:i?B)?\s*", found, re.ASCII | re.IGNORECASE)
        if not match:
            raise _bad(expected, found)
        found = int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")
    return _whole(found, 1, 1 << 62, expected)


def count(found: object, context: Context) -> int:
    """A number of things, at least one."""
    return _whole(found, 1, 10**6, "a whole number from 1")


def level(found: object, context: Context) -> int:
    """How often a flag was given."""
    return _whole(int(found) if isinstance(found, bool) else found, 0, 10, "a whole number from 0 to 10")


def port(found: object, context: Context) -> int:
    """A TCP port."""
    return _whole(found, 1, 65535, "a port from 1 to 65535")


def nproc(found: object, context: Context) -> int | str:
    """Workers per host: a number, or what to count."""
    if isinstance(found, str) and found.strip() in ("auto", "gpu", "cpu"):
        return found.strip()
    return _whole(found, 1, MOST_WORKERS, f"a whole number from 1 to {MOST_WORKERS}, auto, gpu or cpu")


def seconds(found: object, context: Context) -> float:
    """A duration, more than nothing and less than agents take."""
    value = _duration(found)
    if not value:
        raise _bad("seconds, more than 0", found)
    return value


def patience(found: object, context: Context) -> float:
    """A duration that may be nothing."""
    value = _duration(found)
    if value is None:
        raise _bad("seconds, 0 or more", found)
    return value


def _duration(found: object) -> float | None:
    value: object = found
    if isinstance(found, str) and re.fullmatch(r"\s*[0-9.]+(e[+-]?[0-9]{1,3})?\s*", found, re.ASCII | re.IGNORECASE):
        try:
            value = float(found)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        return None
    return float(value)


def switch(found: object, context: Context) -> bool:
    """On or off."""
    if isinstance(found, bool):
        return found
    word = found.strip().lower() if isinstance(found, str) else ""
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise _bad("true or false", found)


def choice(*words: str) -> Parser:
    """One of some words."""

    def parse(found: object, context: Context) -> str:
        if isinstance(found, str) and found.strip() in words:
            return found.strip()
        raise _bad(f"{', '.join(words[:-1])} or {words[-1]}", found)

    return parse


def ranks(found: object, context: Context) -> tuple[range, ...]:
    """Ranks such as "0,3-5", as ranges in ascending order that don't overlap."""
    expected = "ranks such as 0,3-5"
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if isinstance(found, list | tuple):
        found = ",".join(str(one) for one in found)
    if not isinstance(found, str):
        raise _bad(expected, found)
    spans = []
    for part in found.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", part, re.ASCII)  # no run is larger
        if not match:
            raise _bad(expected, found)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise _bad(f"{expected}, with the smaller rank first", found)
        spans.append((first, last))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(range(first, last + 1) for first, last in merged)


def network(found: object, context: Context) -> str:
    """A network such as 10.0.0.0/8, or an interface's name (Linux: 15 bytes, without slash or blank)."""
    expected = "a network such as 10.0.0.0/8 or the name of an interface"
    word = found.strip() if isinstance(found, str) else ""
    if "/" in word:
        try:
            return str(ipaddress.ip_network(word, strict=False))
        except ValueError:
            raise _bad(expected, found) from None
    if not re.fullmatch(r"[^\s/\0]{1,15}", word):
        raise _bad(expected, found)
    return word


def contracts(found: object, context: Context) -> tuple[str, ...]:
    """Names of contracts; `default` stands for those that are set when nothing is said."""
    words = found.split(",") if isinstance(found, str) else found
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
        raise _bad("contracts, separated by commas", found)
    names: list[str] = []
    for word in words:
        names.extend(DEFAULT if word.strip() == "default" else (word.strip(),))
    chosen = tuple(dict.fromkeys(names))
    try:
        choose(chosen)
    except UsageError as exc:
        raise BadValue(exc.message) from None
    return chosen


def variables(found: object, context: Context) -> tuple[tuple[str, str], ...]:
    """Environment variables: a table, or NAME=VALUE, NAME and @FILE items (NAME alone takes our own value).

    In one text (MNSPAWN_ENV), items are separated and quoted as in a shell.
    """
    if isinstance(found, Mapping):
        return tuple(_variable(name, value) for name, value in found.items())
    if isinstance(found, str):
        try:
            items: list[object] = list(shlex.split(found))
        except ValueError as exc:
            raise BadValue(f"expected NAME=VALUE items, quoted as in a shell, found {str(exc).lower()}") from None
    elif isinstance(found, list | tuple):
        items = list(found)
    else:
        raise _bad("NAME=VALUE items", found)
    given: dict[str, str] = {}
    for item in items:
        if isinstance(item, tuple) and len(item) == 2:
            name, value = _variable(*item)
        elif isinstance(item, str) and item.startswith("@"):
            given |= _of_file(item[1:], context)
            continue
        elif isinstance(item, str):
            name, equals, value = item.partition("=")
            name, value = _variable(name, value if equals else context.environ.get(name))
            value = value if equals else Forwarded(value)
        else:
            raise _bad("NAME=VALUE, NAME or @FILE", item)
        given[name] = value
    return tuple(given.items())


def _of_file(name: str, context: Context) -> dict[str, str]:
    given: dict[str, str] = {}
    try:
        for entry in env_file.read(path(name, context)):
            if entry.value is not None:
                given[entry.name] = FromFile(entry.value)
            elif entry.name in context.environ:
                given[entry.name] = Forwarded(context.environ[entry.name])
            else:
                raise BadValue(f"{entry.place}: expected {entry.name} to be set in our own environment, found it unset")
    except env_file.BadFile as exc:
        raise BadValue(str(exc)) from None
    return given


def _variable(name: object, value: object) -> tuple[str, str]:
    # The name is shown, the value never: it may be a secret.
    if not isinstance(name, str) or not re.fullmatch(r"[^\s=\0]+", name):
        raise _bad("the name of a variable", name)
    if value is None:
        raise BadValue(f"expected {name} to be set in our own environment, found it unset")
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value:
        raise BadValue(f"expected text without NUL characters as the value of {name}")
    return name, value
