"""Reads and writes known_hosts files: the keys of a host. Asks no host."""

import base64
import binascii
import contextlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn_agent import ours
from mnspawn_inventory.formats.ssh_patterns import matches_any

from . import keys


@dataclass(frozen=True, slots=True)
class Entry:
    """One line."""

    marker: str  # "", "cert-authority" or "revoked"
    patterns: tuple[str, ...]
    key: bytes
    path: Path
    number: int

    @property
    def place(self) -> str:
        return f"{self.path}:{self.number}"

    def speaks_of(self, name: str) -> bool:
        if self.patterns[0].startswith("|1|"):
            return _hash(name, self.patterns[0].split("|")[2]) == self.patterns[0]
        return matches_any(name, self.patterns, ignores_case=True)


class KnownHosts:
    """Several files, read on first use, and again after a change.

    As in ssh, a broken line or an unreadable file matters only to a host that is not found: see `problem`.
    """

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}

    def entries(self, files: Sequence[Path], name: str) -> list[Entry]:
        """Return the lines for a name, each once."""
        found = (entry for path in files for entry in self._load(path).find(name))
        return list({entry.place: entry for entry in found}.values())

    def problem(self, files: Sequence[Path]) -> UsageError | None:
        """Return what is wrong with the first broken line or file; `place` is file:line."""
        return next((problem for path in files for problem in self._load(path).problems), None)

    def is_hashed(self, path: Path) -> bool:
        return bool(self._load(path).hashed)

    def record(self, path: Path, name: str, key: bytes, *, hash_names: bool) -> None:
        """Append a key and remember it without reading the file again; if it can't be written, still remember it.

        Raises:
            UsageError: the file can't be written.
        """
        file = self._load(path)
        shown = hashed(name) if hash_names else name
        file.put(Entry("", (shown,), key, path, file.lines + 1))
        with _writing(path):
            _append(path, [_line(shown, key)])
        file.version = _version(path)

    def _load(self, path: Path) -> "_File":
        version = _version(path)
        file = self._files.get(path)
        if file is None or file.version != version:
            problems: list[UsageError] = []
            file = _File(version, read(path, problems), problems)
            self._files[path] = file
        return file


class _File:
    """The lines of one file, indexed: a look-up costs about a microsecond for each hashed line."""

    def __init__(self, version: tuple[int, int, int], entries: Sequence[Entry], problems: Sequence[UsageError]) -> None:
        self.version = version
        self.problems = problems
        self.lines = 0
        self.exact: dict[str, list[Entry]] = {}
        self.hashed: list[tuple[bytes, bytes, Entry]] = []
        self.patterns: list[Entry] = []
        self._answers: dict[str, list[Entry]] = {}
        for entry in entries:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        self._answers.clear()
        self.lines = max(self.lines, entry.number)
        if entry.patterns[0].startswith("|1|"):
            salt, digest = (base64.b64decode(part) for part in entry.patterns[0].split("|")[2:4])
            self.hashed.append((salt, digest, entry))
        elif any(char in pattern for pattern in entry.patterns for char in "*?!"):
            self.patterns.append(entry)
        else:
            for name in entry.patterns:
                self.exact.setdefault(name.lower(), []).append(entry)

    def find(self, name: str) -> list[Entry]:
        if name not in self._answers:
            plain = name.encode()
            self._answers[name] = [
                *self.exact.get(name, []),
                *(entry for salt, digest, entry in self.hashed if hmac.digest(salt, plain, "sha1") == digest),
                *(entry for entry in self.patterns if entry.speaks_of(name)),
            ]
        return self._answers[name]


def _version(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:  # not there: an empty file
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read(path: Path, problems: list[UsageError] | None = None) -> list[Entry]:
    """All lines of a file; a file that is not there has none. Broken ones are left out, and told in `problems`.

    Raises:
        UsageError: the file can't be read, and nobody takes `problems`.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        problem = UsageError(f"can't read it: {exc.strerror}", place=str(path))
        if problems is None:
            raise problem from exc
        problems.append(problem)
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            entry = _parse(line, path, number)
        except UsageError as exc:
            if problems is not None:
                exc.hint = "mend or remove that line"
                problems.append(exc)
            continue
        if entry is not None:
            found.append(entry)
    return found


def _parse(line: str, path: Path, number: int) -> Entry | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0)[1:] if words[0].startswith("@") else ""
    place = f"{path}:{number}"
    if marker not in ("", "cert-authority", "revoked"):
        raise UsageError(f"expected @cert-authority or @revoked, found @{marker}", place=place)
    if len(words) > 3 and words[1].isdecimal() and words[2].isdecimal():
        return None  # a key of SSH 1, which nobody speaks any more
    if len(words) < 3:
        raise UsageError("expected names, a key type and a key", place=place)
    try:
        key = base64.b64decode(words[2], validate=True)
        if keys.kind_of(key) != words[1]:
            raise ValueError(words[1])
        if words[0].startswith("|"):
            _, kind, salt, digest = words[0].split("|")
            if kind != "1" or not base64.b64decode(salt, validate=True) or not base64.b64decode(digest, validate=True):
                raise ValueError(words[0])
    except (ValueError, binascii.Error):
        raise UsageError(
            "the key or the hashed name is damaged (not base64, cut short, or of another type)", place=place
        ) from None
    return Entry(marker, tuple(words[0].split(",")), key, path, number)


def name_of(host: str, port: int, alias: str | None = None) -> str:
    """What known_hosts calls a host: with the port unless that is 22. An alias stands alone."""
    if alias:
        return alias.lower()
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def _hash(name: str, salt: str) -> str:
    digest = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
    return f"|1|{salt}|{base64.b64encode(digest).decode()}"


def hashed(name: str) -> str:
    """A name as `HashKnownHosts yes` writes it."""
    return _hash(name, base64.b64encode(secrets.token_bytes(20)).decode())


def is_hashed(path: Path) -> bool:
    """Whether a file's names are hashed, so that what is added should be too."""
    return any(entry.patterns[0].startswith("|1|") for entry in read(path))


def write(path: Path, name: str, new: Sequence[bytes], *, hash_names: bool, replace: bool = False) -> None:
    """Append a host's keys; with `replace` its lines for other keys of the same types go first.

    Only plain lines of this host alone and hashed ones are taken out; a line that it shares with others loses its name.

    Raises:
        UsageError: the file can't be written.
    """
    old = read(path)
    kinds = {keys.kind_of(key) for key in new}
    stale = [e for e in old if not e.marker and keys.kind_of(e.key) in kinds and e.key not in new and e.speaks_of(name)]
    known = {entry.key for entry in old if not entry.marker and entry.speaks_of(name)}
    shown = hashed(name) if hash_names else name
    lines = [_line(shown, key) for key in new if key not in known]
    with _writing(path):
        if replace and stale:
            _rewrite(path, {entry.number: entry for entry in stale}, name, lines)
        elif lines:
            _append(path, lines)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        ours.make_missing(str(path.parent))
        yield
    except OSError as exc:
        raise UsageError(f"can't write it: {exc.strerror}", place=str(path)) from exc


def _line(name: str, key: bytes) -> str:
    return f"{name} {keys.kind_of(key)} {base64.b64encode(key).decode()}\n"


def _append(path: Path, lines: Sequence[str]) -> None:
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write("".join(lines).encode())


def _rewrite(path: Path, stale: dict[int, Entry], name: str, lines: Sequence[str]) -> None:
    kept = []
    for number, line in enumerate(re.findall(rb"[^\n]*\n|[^\n]+$", path.read_bytes()), 1):
        if number in stale:
            others = [pattern for pattern in stale[number].patterns if pattern.lower() != name]
            if not others or stale[number].patterns[0].startswith("|") or len(others) == len(stale[number].patterns):
                continue
            line = line.replace(",".join(stale[number].patterns).encode(), ",".join(others).encode(), 1)
        kept.append(line)
    if kept and not kept[-1].endswith(b"\n"):
        kept[-1] += b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        file.write(b"".join(kept) + "".join(lines).encode())
    temporary.replace(path)
