"""ssh_config(5) as OpenSSH reads it: which values hold for a host, each with the file and line that it comes from.

Read once per run and asked once per host. Both library transports use it, so that a host is the same host whichever
is chosen; asyncssh's own parser stops at trailing comments and Match exec tokens, paramiko's knows no Include. Not
there: CanonicalizeHostname (the openssh transport has it).
"""

import getpass
import glob
import hashlib
import logging
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn.transport.ssh_keywords import misspelt

log = logging.getLogger(__name__)

# the rest of the line is one value
_RAW = {"proxycommand", "remotecommand", "localcommand", "knownhostscommand"}
_APPENDED = {"identityfile", "certificatefile", "sendenv", "setenv"}
_MAX_DEPTH = 16  # of Include, as OpenSSH
_NO_ARGUMENT = {"all", "canonical", "final"}
_WITH_ARGUMENT = {"exec", "host", "originalhost", "user", "localuser", "localnetwork", "tagged"} | {
    "version",
    "sessiontype",
    "command",
}


@dataclass(frozen=True, slots=True)
class Value:
    """What a line gives to a keyword."""

    words: tuple[str, ...]
    origin: str

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(slots=True)
class _Line:
    keyword: str
    words: tuple[str, ...]
    origin: str
    included: "list[list[_Line]]" = field(default_factory=list)


class SshConfig:
    """The files, parsed.

    Args:
        path: the only file to read; else ~/.ssh/config and /etc/ssh/ssh_config, where they exist.

    Raises:
        UsageError: a file can't be read or is not ssh_config; `place` is file:line.
    """

    def __init__(self, path: Path | None = None) -> None:
        user = Path("~/.ssh/config").expanduser()
        system = Path("/etc/ssh/ssh_config")
        self._files: list[list[_Line]] = []
        if path is not None:
            self._files.append(_parse(path, Path("~/.ssh").expanduser(), 0))
        else:
            if user.exists():
                _check_permissions(user)
                self._files.append(_parse(user, user.parent, 0))
            if system.exists():
                self._files.append(_parse(system, system.parent, 0))
        self._has_final = any(_mentions_final(file) for file in self._files)

    def lookup(self, name: str, user: str | None = None, port: int | None = None) -> "HostConfig":
        """What holds for the host that the user calls `name`, with the user and port that were given beside it."""
        first = _Lookup(name, name, user, port, is_final=False)
        first.read(self._files)
        if not self._has_final:
            return first.found
        second = _Lookup(name, first.found.hostname, user, port, is_final=True)
        second.found.values.update(first.found.values)
        for keyword in _APPENDED & first.found.values.keys():
            second.found.values[keyword] = list(first.found.values[keyword])
        second.read(self._files)
        return second.found


class HostConfig:
    """The values of one host. Tokens (%h ...), ${VARIABLES} and ~ are expanded where OpenSSH does so."""

    def __init__(self, name: str, user: str | None, port: int | None) -> None:
        self.name = name
        self.values: dict[str, list[Value]] = {}
        if user is not None:
            self.values["user"] = [Value((user,), "given")]
        if port is not None:
            self.values["port"] = [Value((str(port),), "given")]

    def get(self, keyword: str) -> Value | None:
        found = self.values.get(keyword)
        return found[0] if found else None

    def all(self, keyword: str) -> list[Value]:
        return self.values.get(keyword, [])

    def text(self, keyword: str) -> str | None:
        value = self.get(keyword)
        return value.text if value else None

    def flag(self, keyword: str, default: bool) -> bool:
        value = self.get(keyword)
        if value is None:
            return default
        if value.text.lower() not in ("yes", "true", "no", "false"):
            raise UsageError(f"expected yes or no, found {value.text!r}", place=value.origin)
        return value.text.lower() in ("yes", "true")

    def number(self, keyword: str) -> int | None:
        """A whole number, or a time as sshd_config(5) writes them (1m30s)."""
        value = self.get(keyword)
        if value is None or value.text.lower() == "none":
            return None
        if not re.fullmatch(r"(?:\d+[smhdw])*\d*", value.text.lower()):
            raise UsageError(f"expected a number, found {value.text!r}", place=value.origin)
        units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
        return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([smhdw]?)", value.text.lower()))

    @property
    def hostname(self) -> str:
        value = self.get("hostname")
        if value is None:
            return self.name
        return _expand(value.text, {"%": "%", "h": self.name}, value.origin)

    @property
    def user(self) -> str:
        return self.text("user") or getpass.getuser()

    @property
    def port(self) -> int:
        return self.number("port") or 22

    def expand(self, value: Value, word: str | None = None) -> str:
        """A file name, command or the like with its tokens, variables and leading ~ expanded."""
        text = word if word is not None else value.text
        text = re.sub(r"\$\{(.*?)\}", lambda match: _variable(match.group(1), value.origin), text)
        text = _expand(text, self.tokens(), value.origin)
        return os.path.expanduser(text)

    def tokens(self) -> dict[str, str]:
        local, host, port, user = socket.gethostname(), self.hostname, str(self.port), self.user
        jump = self.text("proxyjump") or ""
        digest = hashlib.sha1(f"{local}{host}{port}{user}{jump}".encode(), usedforsecurity=False).hexdigest()
        return {
            "%": "%",
            "C": digest,
            "d": os.path.expanduser("~"),
            "h": host,
            "i": str(os.getuid()),
            "j": jump,
            "k": self.text("hostkeyalias") or self.name,
            "L": local.partition(".")[0],
            "l": local,
            "n": self.name,
            "p": port,
            "r": user,
            "u": getpass.getuser(),
        }


class _Lookup:
    """One pass over the files for one host."""

    def __init__(self, name: str, host: str, user: str | None, port: int | None, *, is_final: bool) -> None:
        self.found = HostConfig(name, user, port)
        self._host = host  # what Host patterns are held against
        self._is_final = is_final

    def read(self, files: Sequence[list[_Line]]) -> None:
        for file in files:
            self._read_file(file, True)

    def _read_file(self, lines: list[_Line], is_active: bool) -> None:
        may_match = is_active  # a file included by a block that does not hold gives nothing at all
        for line in lines:
            if line.keyword == "host":
                is_active = may_match and matches_any(self._host, line.words)
            elif line.keyword == "match":
                is_active = may_match and self._matches(line)
            elif line.keyword == "include":
                for included in line.included:
                    self._read_file(included, is_active)
            elif is_active:
                self._take(line)

    def _take(self, line: _Line) -> None:
        values = self.found.values
        if line.keyword in _APPENDED:
            given = values.setdefault(line.keyword, [])
            if all(value.words != line.words for value in given):
                given.append(Value(line.words, line.origin))
        elif line.keyword in ("proxyjump", "proxycommand"):  # whichever comes first
            if "proxyjump" not in values and "proxycommand" not in values:
                values[line.keyword] = [Value(line.words, line.origin)]
        else:
            values.setdefault(line.keyword, [Value(line.words, line.origin)])

    def _matches(self, line: _Line) -> bool:
        holds = True
        for is_negated, criterion, argument in _criteria(line):
            if not holds:
                return False
            holds = self._holds(criterion, argument, line.origin) is not is_negated
        return holds

    def _holds(self, criterion: str, argument: str, origin: str) -> bool:
        facts: dict[str, Callable[[], str]] = {
            "host": lambda: self.found.hostname if "hostname" in self.found.values else self._host,
            "originalhost": lambda: self.found.name,
            "user": lambda: self.found.user,
            "localuser": getpass.getuser,
            "tagged": lambda: self.found.text("tag") or "",
            "sessiontype": lambda: "exec",
            "command": lambda: "",
        }
        if criterion == "all":
            return True
        if criterion in ("canonical", "final"):
            return self._is_final
        if criterion == "exec":
            return _succeeds(self.found.expand(Value((argument,), origin)))
        if criterion in facts:
            return matches_any(facts[criterion](), argument.split(","))
        raise UsageError(f"Match {criterion} is not supported here", place=origin, hint="use the openssh transport")


# -- lines


def _parse(path: Path, folder: Path, depth: int) -> list[_Line]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as exc:
        raise UsageError(f"can't read it: {exc.strerror}", place=str(path)) from exc
    return list(_parse_lines(text, path, folder, depth))


def _parse_lines(text: str, path: Path, folder: Path, depth: int) -> Iterator[_Line]:
    ignored: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        origin = f"{path}:{number}"
        stripped = raw.strip(" \t\r\f\ufeff")
        if not stripped or stripped.startswith("#"):
            continue
        match = re.match(r'("[^"]*"|[^\s=]+)(?:\s*=\s*|\s+|$)(.*)', stripped)
        if match is None:
            raise UsageError(f"expected a keyword, found {stripped!r}", place=origin)
        keyword, rest = match.group(1).strip('"').lower(), match.group(2)
        words = (rest.strip(),) if keyword in _RAW else tuple(_split(rest, origin))
        if not words or not words[0]:
            raise UsageError(f"expected a value after {match.group(1)}", place=origin)
        if keyword == "ignoreunknown":
            ignored += (pattern for word in words for pattern in word.split(","))
        elif meant := misspelt(keyword, ignored):
            raise UsageError(f"expected a keyword such as {meant}, found {match.group(1)}", place=origin)
        line = _Line(keyword, words, origin)
        if keyword == "include":
            if depth >= _MAX_DEPTH:
                raise UsageError("too many files include each other", place=origin)
            for pattern in words:
                for name in sorted(glob.glob(str(folder / os.path.expanduser(pattern)))):
                    if os.path.isfile(name):
                        line.included.append(_parse(Path(name), folder, depth + 1))
        elif keyword == "match":
            list(_criteria(line))
        yield line


def _split(text: str, origin: str) -> Iterator[str]:
    """Words as OpenSSH splits them: quotes, a few escapes, a comment at the end."""
    position = 0
    while position < len(text):
        if text[position] in " \t":
            position += 1
            continue
        if text[position] == "#":
            return
        word, quote = "", ""
        while position < len(text) and (quote or text[position] not in " \t"):
            char, following = text[position], text[position + 1 : position + 2]
            if char == "\\" and following and (following in "\"'\\" or (not quote and following == " ")):
                word, position = word + following, position + 2
                continue
            if not quote and char in "\"'":
                quote = char
            elif char == quote:
                quote = ""
            else:
                word += char
            position += 1
        if quote:
            raise UsageError(f"a {quote} is not closed", place=origin)
        yield word


def _criteria(line: _Line) -> Iterator[tuple[bool, str, str]]:
    """(negated, criterion, argument) of a Match line."""
    words = list(line.words)
    while words:
        word, _, argument = words.pop(0).partition("=")
        criterion = word.lower().removeprefix("!")
        if criterion in _WITH_ARGUMENT and not argument:
            if not words:
                raise UsageError(f"expected a pattern after Match {criterion}", place=line.origin)
            argument = words.pop(0)
        elif criterion not in _NO_ARGUMENT | _WITH_ARGUMENT:
            raise UsageError(f"no such criterion of Match: {criterion!r}", place=line.origin)
        yield word.startswith("!"), criterion, argument


def _mentions_final(lines: list[_Line]) -> bool:
    return any(
        (line.keyword == "match" and any(criterion == "final" for _, criterion, _ in _criteria(line)))
        or any(_mentions_final(included) for included in line.included)
        for line in lines
    )


def _check_permissions(path: Path) -> None:
    status = path.stat()
    if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
        raise UsageError("others may write to it", place=str(path), hint=f"chmod go-w {path}")


# -- patterns, tokens, commands


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    """As match_pattern_list of OpenSSH: a negated pattern that matches decides."""
    found, lowered = False, text.lower()
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        is_plain = "*" not in bare and "?" not in bare  # most are, and some files have thousands
        if bare.lower() == lowered if is_plain else _pattern(bare).fullmatch(text):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(char) or re.escape(char) for char in pattern), re.IGNORECASE | re.DOTALL)


def _expand(text: str, tokens: dict[str, str], origin: str) -> str:
    def token(match: re.Match[str]) -> str:
        if match.group(1) not in tokens:
            raise UsageError(f"unknown token {match.group(0)!r}", place=origin)
        return tokens[match.group(1)]

    return re.sub(r"%(.?)", token, text)


def _variable(name: str, origin: str) -> str:
    if name not in os.environ:
        raise UsageError(f"the environment has no {name}", place=origin)
    return os.environ[name]


@lru_cache(maxsize=1024)
def _succeeds(command: str) -> bool:
    """Whether a Match exec command does. Asked once per run and command: that is once per host, with %h."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    silent = subprocess.DEVNULL
    return subprocess.run([shell, "-c", command], stdin=silent, stdout=silent, stderr=silent).returncode == 0
