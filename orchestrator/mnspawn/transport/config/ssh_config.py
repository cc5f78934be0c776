"""Evaluates ssh_config(5) as OpenSSH does: the values for a host, each with the file and line that it comes from.

Read once per run, evaluated once per host. Both library transports use it, so both reach the same host; asyncssh's own
parser fails on trailing comments and Match exec tokens, paramiko's on Include. Lacks CanonicalizeHostname, which the
openssh transport has.
"""

import getpass
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import ConnectTimeout, TransportUnavailable, UsageError
from mnspawn_inventory.formats.ssh_patterns import matches_any

from . import names
from . import values as ssh_values
from .lines import Line, criteria, mentions_final, parse
from .match_exec import Commands, Late

_APPENDED = {"identityfile", "certificatefile", "sendenv"}


@dataclass(frozen=True, slots=True)
class Value:
    """The value that a line gives to a keyword."""

    words: tuple[str, ...]
    origin: str

    @property
    def text(self) -> str:
        return " ".join(self.words)


class SshConfig:
    """The parsed files. Call `close` in the end, so that no command of a `Match exec` is left.

    Args:
        path: the only file to read; else ~/.ssh/config and /etc/ssh/ssh_config, where they exist.
        patience: seconds that the commands of one look-up may take.

    Raises:
        UsageError: a file can't be read or is not ssh_config; `place` is file:line.
    """

    def __init__(self, path: Path | None = None, *, patience: float = 15.0) -> None:
        self._patience = patience
        self._commands = Commands()
        folder, system = Path("~/.ssh").expanduser(), Path("/etc/ssh")
        self._files: list[list[Line]] = []
        if path is not None:
            self._files.append(parse(path, folder, must_be_safe=False))
        else:
            if (folder / "config").exists():
                self._files.append(parse(folder / "config", folder))
            if (system / "ssh_config").exists():
                self._files.append(parse(system / "ssh_config", system, must_be_safe=False))
        self._has_final = any(mentions_final(file) for file in self._files)

    def lookup(self, name: str, user: str | None = None, port: int | None = None) -> "HostConfig":
        """Return the values for the host that the user calls `name`, given the user and port that came with it.

        Raises:
            UsageError: something can't be used; `place` is file:line.
            HostError: a command takes too long, or only ssh itself can tell.
        """
        succeeds = _Patient(self._commands, self._patience)
        first = _Lookup(HostConfig(name, user, port), name, succeeds, is_final=False)
        first.read(self._files)
        if not self._has_final:
            return first.found
        host = first.found.hostname.lower()
        second = _Lookup(HostConfig(name, user, port), host, succeeds, is_final=True)
        second.found.values.update(first.found.values)
        given = first.found.get("hostname")  # settled by now, as for ssh
        second.found.values["hostname"] = [Value((host.replace("%", "%%"),), given.origin if given else "default")]
        for keyword in _APPENDED & first.found.values.keys():
            second.found.values[keyword] = list(first.found.values[keyword])
        second.read(self._files)
        return second.found

    def close(self) -> None:
        self._commands.close()


class _Patient:
    """Runs commands for one look-up, which share its time limit."""

    def __init__(self, commands: Commands, patience: float) -> None:
        self._commands = commands
        self._patience = patience
        self._deadline = time.monotonic() + patience

    def __call__(self, command: str, name: str, origin: str) -> bool:
        try:
            return self._commands.succeed(command, self._deadline)
        except OSError as exc:
            hint = "the environment's SHELL runs it"
            raise UsageError(
                f"the command of Match exec can't be run: {exc.strerror}", place=origin, hint=hint
            ) from exc
        except Late:
            raise ConnectTimeout(
                f"{origin}: the command of Match exec does not end within {self._patience:g} s",
                host=name,
                hint=f"see what it waits for: {command}",
            ) from None


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

    def flag(self, keyword: str) -> bool:
        return (self.text(keyword) or "no").lower() in ("yes", "true")

    def seconds(self, keyword: str) -> int | None:
        value = self.get(keyword)
        return None if value is None or value.text == "none" else ssh_values.seconds_of(value.text)

    @property
    def hostname(self) -> str:
        value = self.get("hostname")
        if value is None:
            return self.name
        return expand_tokens(value.text, {"%": "%", "h": self.name}, value.origin)

    @property
    def user(self) -> str:
        return self.text("user") or getpass.getuser()

    @property
    def port(self) -> int:
        text = self.text("port")
        return 22 if text is None else ssh_values.port_of(text) or 0

    def expand(self, value: Value, word: str | None = None, tokens: dict[str, str] | None = None) -> str:
        """A file name, command or the like with its tokens, variables and leading ~ expanded."""
        text = os.path.expanduser(word if word is not None else value.text)
        tokens = tokens or self.tokens()
        parts = re.split(r"(\$\{.*?\})", text)  # what comes out of a variable is not looked at again
        return "".join(
            _variable(part[2:-1], value.origin) if index % 2 else expand_tokens(part, tokens, value.origin)
            for index, part in enumerate(parts)
        )

    def tokens(self, host: str | None = None) -> dict[str, str]:
        """What each %-token stands for.

        Args:
            host: where the host is dialled, for %h; while the files are still read it is not known yet.
        """
        local, port, user = socket.gethostname(), str(self.port), self.user
        host = host if host is not None else self.hostname.lower()
        jump = self.text("proxyjump") or ""
        alias = self.text("hostkeyalias")
        parts = os.fsencode(f"{local}{host}{port}{user}{jump}")
        return {
            "%": "%",
            "C": hashlib.sha1(parts, usedforsecurity=False).hexdigest(),
            "d": os.path.expanduser("~"),
            "h": host,
            "i": str(os.getuid()),
            "j": jump,
            "k": alias.lower() if alias else self.name,
            "L": local.partition(".")[0],
            "l": local,
            "n": self.name,
            "p": port,
            "r": user,
            "u": getpass.getuser(),
        }


class _Lookup:
    """One pass over the files for one host."""

    def __init__(self, found: HostConfig, host: str, succeeds: _Patient, *, is_final: bool) -> None:
        self.found = found
        self._host = host  # what Host patterns are held against
        self._succeeds = succeeds
        self._is_final = is_final

    def read(self, files: Sequence[list[Line]]) -> None:
        for file in files:
            self._read_file(file, True)

    def _read_file(self, lines: list[Line], is_active: bool) -> None:
        may_match = is_active  # a file included by a block that does not apply contributes nothing
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

    def _take(self, line: Line) -> None:
        values = self.found.values
        if line.keyword in _APPENDED:
            given = values.setdefault(line.keyword, [])
            if line.keyword == "sendenv" or all(value.words != line.words for value in given):
                given.append(Value(line.words, line.origin))
        elif not self._has_way(line.keyword):
            values.setdefault(line.keyword, [Value(line.words, line.origin)])

    def _has_way(self, keyword: str) -> bool:
        """Of ProxyJump and ProxyCommand whichever comes first holds; but `ProxyJump none` leaves room for a command."""
        if keyword == "proxyjump":
            return "proxycommand" in self.found.values
        return keyword == "proxycommand" and (self.found.text("proxyjump") or "none").lower() != "none"

    def _matches(self, line: Line) -> bool:
        holds = True
        for is_negated, criterion, argument in criteria(line):
            if not holds:
                return False
            holds = self._holds(criterion, argument, line.origin) is not is_negated
        return holds

    def _holds(self, criterion: str, argument: str, origin: str) -> bool:
        found = self.found
        facts: dict[str, Callable[[], str]] = {
            "host": lambda: found.hostname if "hostname" in found.values else self._host,
            "originalhost": lambda: found.name,
            "user": lambda: found.user,
            "localuser": getpass.getuser,
            "tagged": lambda: found.text("tag") or "",
            "sessiontype": lambda: "exec",
            "command": lambda: "",
        }
        if criterion == "all":
            return True
        if criterion in ("canonical", "final"):
            return self._is_final
        if criterion == "exec":
            return self._succeeds(self._command(argument, origin), found.name, origin)
        if criterion in facts:
            is_host = criterion in ("host", "originalhost")
            return matches_any(facts[criterion](), argument.split(","), ignores_case=is_host)
        raise TransportUnavailable(
            f"{origin}: only ssh itself knows Match {criterion}", host=found.name, hint="--transport openssh"
        )

    def _command(self, argument: str, origin: str) -> str:
        """The command line of a Match exec: names in it reach a shell."""
        value = Value((argument,), origin)
        tokens = self.found.tokens(self.found.hostname)
        if re.search("%[hnk]", argument):
            for name in (tokens["h"], tokens["n"], tokens["k"]):
                names.check_host(name, origin)
        if "%r" in argument:
            names.check_user(tokens["r"], origin)
        return self.found.expand(value, tokens=tokens)


# -- tokens


def expand_tokens(text: str, tokens: dict[str, str], origin: str | None) -> str:
    """Replace %h and the like.

    Raises:
        UsageError: there is no such token here.
    """

    def token(match: re.Match[str]) -> str:
        if match.group(1) not in tokens:
            raise UsageError(f"unknown token {match.group(0)!r}", place=origin)
        return tokens[match.group(1)]

    return re.sub(r"%(.?)", token, text)


def _variable(name: str, origin: str) -> str:
    if name not in os.environ:
        raise UsageError(f"the environment has no {name}", place=origin)
    return os.environ[name]
