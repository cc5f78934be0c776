"""known_hosts files: which keys a host may have, and adding or replacing them. Reads each file once; asks no host."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn.transport import keys
from mnspawn.transport.ssh_config import matches_any


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
        return matches_any(name, self.patterns)


class KnownHosts:
    """Several files, read when they are first asked for.

    Raises (from `entries`):
        UsageError: a line is not known_hosts; `place` is file:line.
    """

    def __init__(self) -> None:
        self._files: dict[Path, list[Entry]] = {}
        self._exact: dict[Path, dict[str, list[Entry]]] = {}

    def entries(self, files: Sequence[Path], names: Iterable[str]) -> list[Entry]:
        """The lines that speak of one of the names."""
        found: dict[tuple[Path, int], Entry] = {}
        for path in files:
            self._load(path)
            for name in names:
                exact = self._exact[path].get(name, [])
                others = [entry for entry in self._files[path] if entry.speaks_of(name)]
                found.update({(entry.path, entry.number): entry for entry in [*exact, *others]})
        return list(found.values())

    def add(self, path: Path, entry: Entry) -> None:
        """Count an entry that was just written."""
        self._load(path)
        self._put(path, entry)

    def forget(self, path: Path) -> None:
        """Read the file again next time."""
        self._files.pop(path, None)
        self._exact.pop(path, None)

    def _load(self, path: Path) -> None:
        if path in self._files:
            return
        self._files[path], self._exact[path] = [], {}
        for entry in read(path):
            self._put(path, entry)

    def _put(self, path: Path, entry: Entry) -> None:
        if any(char in pattern for pattern in entry.patterns for char in "*?!|"):
            self._files[path].append(entry)
            return
        for name in entry.patterns:
            self._exact[path].setdefault(name.lower(), []).append(entry)


def read(path: Path) -> list[Entry]:
    """All lines of a file; a file that is not there has none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise UsageError(f"can't read it: {exc.strerror}", place=str(path)) from exc
    return [entry for number, line in enumerate(lines, 1) if (entry := _parse(line, path, number))]


def _parse(line: str, path: Path, number: int) -> Entry | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0)[1:] if words[0].startswith("@") else ""
    place = f"{path}:{number}"
    if marker not in ("", "cert-authority", "revoked"):
        raise UsageError(f"expected @cert-authority or @revoked, found @{marker}", place=place)
    if len(words) < 3:
        raise UsageError("expected names, a key type and a key", place=place)
    try:
        key = base64.b64decode(words[2], validate=True)
        keys.kind_of(key)
    except (ValueError, binascii.Error):
        raise UsageError("the key is damaged (not base64, or cut short)", place=place) from None
    if words[0].startswith("|") and len(words[0].split("|")) != 4:
        raise UsageError(f"expected |1|salt|hash, found {words[0]!r}", place=place)
    return Entry(marker, tuple(words[0].split(",")), key, path, number)


def names_of(host: str, port: int, alias: str | None = None) -> tuple[str, ...]:
    """What known_hosts calls a host: with the port unless that is 22. An alias stands alone."""
    if alias:
        return (alias.lower(),)
    return (host.lower(),) if port == 22 else (f"[{host.lower()}]:{port}",)


def _hash(name: str, salt: str) -> str:
    try:
        digest = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
    except binascii.Error:
        return ""
    return f"|1|{salt}|{base64.b64encode(digest).decode()}"


def hashed(name: str) -> str:
    """A name as `HashKnownHosts yes` writes it."""
    return _hash(name, base64.b64encode(secrets.token_bytes(20)).decode())


def is_hashed(path: Path) -> bool:
    """Whether a file's names are hashed, so that what is added should be too."""
    return any(entry.patterns[0].startswith("|1|") for entry in read(path))


def write(path: Path, name: str, new: Sequence[bytes], *, hash_names: bool, replace: bool = False) -> list[Entry]:
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
    lines = [f"{shown} {keys.kind_of(key)} {base64.b64encode(key).decode()}\n" for key in new if key not in known]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if replace and stale:
            _rewrite(path, {entry.number: entry for entry in stale}, name, lines)
        elif lines:
            _append(path, lines)
    except OSError as exc:
        raise UsageError(f"can't write it: {exc.strerror}", place=str(path)) from exc
    return [entry for entry in read(path) if entry.key in new and entry.speaks_of(name)]


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write("".join(lines).encode())
    if path.stat().st_size == len("".join(lines).encode()):
        path.chmod(0o600)


def _rewrite(path: Path, stale: dict[int, Entry], name: str, lines: Sequence[str]) -> None:
    kept = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if number in stale:
            others = [pattern for pattern in stale[number].patterns if pattern.lower() != name]
            if not others or stale[number].patterns[0].startswith("|") or len(others) == len(stale[number].patterns):
                continue
            line = line.replace(",".join(stale[number].patterns).encode(), ",".join(others).encode(), 1)
        kept.append(line)
    if kept and not kept[-1].endswith(b"\n"):
        kept[-1] += b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(b"".join(kept) + "".join(lines).encode())
    temporary.chmod(path.stat().st_mode & 0o777)
    temporary.replace(path)
