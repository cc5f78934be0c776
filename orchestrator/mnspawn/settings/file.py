"""The settings file: finds it, reads it, and tells each value's line and column."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import UsageError


@dataclass(frozen=True, slots=True)
class Entry:
    """One top-level key as the file has it; places are file:line:column."""

    key: str
    value: object
    key_place: str
    value_place: str


def find(environ: Mapping[str, str]) -> tuple[Path | None, bool]:
    """Where the settings file is, and whether it has to exist. An empty MNSPAWN_SETTINGS: no file at all."""
    named = environ.get("MNSPAWN_SETTINGS")
    if named is not None:
        return (Path(named), True) if named else (None, False)
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):  # the XDG specification ignores relative ones
        return Path(base, "mnspawn", "settings.toml"), False
    home = environ.get("HOME", "")
    return (Path(home, ".config", "mnspawn", "settings.toml"), False) if home else (None, False)


def read(path: Path, is_required: bool) -> str | None:
    """The file's text; None where there is none.

    Raises:
        UsageError: it can't be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if not is_required:
            return None
        raise UsageError("expected a settings file, found none", place=str(path)) from None
    except OSError as exc:
        if not is_required and isinstance(exc, NotADirectoryError):
            return None
        raise UsageError(f"expected a readable settings file, found: {exc.strerror}", place=str(path)) from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        column = exc.start - exc.object.rfind(b"\n", 0, exc.start)
        raise UsageError("expected UTF-8, found other bytes", place=f"{path}:{line}:{column}") from None


def parse(content: str, path: Path) -> list[Entry]:
    """The file's top-level keys.

    Raises:
        UsageError: it is not TOML.
    """
    content = content.replace("\r\n", "\n")
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as exc:
        raise _not_toml(content, path, str(exc)) from None
    return [_entry(content, path, key, value) for key, value in table.items()]


def _not_toml(content: str, path: Path, message: str) -> UsageError:
    at = re.search(r"\(at line (\d+), column (\d+)\)", message)
    if at:
        place = f"{path}:{at[1]}:{at[2]}"
    else:  # "(at end of document)"
        lines = content.split("\n")
        place = f"{path}:{len(lines)}:{len(lines[-1]) + 1}"
    what = re.sub(r"\s*\(at .*\)$", "", message)
    return UsageError(f"expected TOML, found: {what[:1].lower()}{what[1:]}", place=place)


def _entry(content: str, path: Path, key: str, value: object) -> Entry:
    """tomllib keeps no positions. A line is where a key is defined if the key is at its start and all that stands
    before is a document of its own that lacks the key: so lines inside multi-line values don't count."""
    spelt = "|".join(re.escape(form) for form in (key, f'"{key}"', f"'{key}'"))
    pattern = re.compile(rf"^[ \t]*(?:\[\[?[ \t]*)?(?P<key>{spelt})[ \t]*(?:=[ \t]*(?P<value>)|[.\]])", re.MULTILINE)
    for match in pattern.finditer(content):
        try:
            before = tomllib.loads(content[: match.start()])
        except tomllib.TOMLDecodeError:
            continue
        if key not in before:
            key_place = _place(content, path, match.start("key"))
            has_value = match.start("value") >= 0
            return Entry(key, value, key_place, _place(content, path, match.start("value")) if has_value else key_place)
    return Entry(key, value, str(path), str(path))  # spelt with escapes


def _place(content: str, path: Path, position: int) -> str:
    line = content.count("\n", 0, position) + 1
    return f"{path}:{line}:{position - content.rfind(chr(10), 0, position)}"
