"""Parses ssh_config files into lines, reads included files, and checks values. Decides nothing."""

import difflib
import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn_inventory.errors import for_shell
from mnspawn_inventory.formats.ssh_keywords import KEYWORDS

from . import values as ssh_values

# the rest of the line is one value
_RAW = {"proxycommand", "remotecommand", "localcommand", "knownhostscommand"}
_MAX_DEPTH = 16  # of Include, as OpenSSH
_ALIKE = 0.7  # difflib's ratio: `prot`, `identityfiles`, `hostnmae` are alike; a keyword of a later release is not
_NO_ARGUMENT = {"all", "canonical", "final"}
_WITH_ARGUMENT = {"exec", "host", "originalhost", "user", "localuser", "localnetwork", "tagged"} | {
    "version",
    "sessiontype",
    "command",
}


@dataclass(slots=True)
class Line:
    """One line with a keyword; `origin` is file:line."""

    keyword: str
    words: tuple[str, ...]
    origin: str
    included: "list[list[Line]]" = field(default_factory=list)


def parse(path: Path, folder: Path, depth: int = 0, *, must_be_safe: bool = True) -> list[Line]:
    """A file's lines.

    Args:
        folder: where relative names of included files start.
        must_be_safe: nobody else may write to it. Included ones must always be, as for ssh.

    Raises:
        UsageError: it can't be read or is not ssh_config; `place` is file:line.
    """
    try:
        if must_be_safe:
            _check_permissions(path)
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as exc:
        raise UsageError(f"can't read it: {exc.strerror}", place=str(path)) from exc
    return list(_parse_lines(text, path, folder, depth))


def _parse_lines(text: str, path: Path, folder: Path, depth: int) -> Iterator[Line]:
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
        words: tuple[str, ...]
        if keyword in _RAW:
            words = (rest.strip(),)
        elif keyword == "proxyjump":  # no quotes, and what comes after the first word does not count
            words = (re.split(r"[\s#]", rest.lstrip("= \t"), maxsplit=1)[0],)
        else:
            words = tuple(_split(rest, origin))
        if not words or not words[0]:
            raise UsageError(f"expected a value after {match.group(1)}", place=origin)
        if keyword == "ignoreunknown":
            ignored += (pattern for word in words for pattern in word.split(","))
        elif meant := misspelt(keyword, ignored):
            raise UsageError(f"expected a keyword such as {meant}, found {match.group(1)}", place=origin)
        ssh_values.check(keyword, words, origin)
        line = Line(keyword, words, origin)
        if keyword == "include":
            if depth >= _MAX_DEPTH:
                raise UsageError("too many files include each other", place=origin)
            for pattern in words:
                for name in sorted(glob.glob(str(folder / os.path.expanduser(pattern)))):
                    if os.path.isfile(name):
                        line.included.append(parse(Path(name), folder, depth + 1))
        elif keyword == "match":
            list(criteria(line))
        yield line


def misspelt(keyword: str, ignored: Iterable[str]) -> str | None:
    """Return the keyword that was probably meant; None for one that is known, ignored, or like none.

    Args:
        keyword: in lower case.
        ignored: patterns of IgnoreUnknown.
    """
    if keyword in KEYWORDS or any(fnmatchcase(keyword, pattern.lower()) for pattern in ignored):
        return None
    near = difflib.get_close_matches(keyword, KEYWORDS, 1, _ALIKE)
    return near[0] if near else None


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


def criteria(line: Line) -> Iterator[tuple[bool, str, str]]:
    """(negated, criterion, argument) of a Match line.

    Raises:
        UsageError: it is none that there is.
    """
    words = list(line.words)
    if words[0].lower() == "all" and len(words) > 1:
        raise UsageError("expected `all` alone, found more criteria of Match", place=line.origin)
    while words:
        word, _, argument = words.pop(0).partition("=")
        criterion = word.lower().removeprefix("!")
        if criterion in _WITH_ARGUMENT and not argument:
            if not words:
                raise UsageError(f"expected a pattern after Match {criterion}", place=line.origin)
            argument = words.pop(0)
        elif criterion not in _NO_ARGUMENT | _WITH_ARGUMENT:
            raise UsageError(f"no such criterion of Match: {criterion!r}", place=line.origin)
        if criterion == "localnetwork" and (problem := ssh_values.network_problem(argument)):
            raise UsageError(problem, place=line.origin)
        yield word.startswith("!"), criterion, argument


def mentions_final(lines: list[Line]) -> bool:
    return any(
        (line.keyword == "match" and any(criterion == "final" for _, criterion, _ in criteria(line)))
        or any(mentions_final(included) for included in line.included)
        for line in lines
    )


def _check_permissions(path: Path) -> None:
    status = path.stat()
    if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
        raise UsageError("others may write to it", place=str(path), hint=f"chmod go-w {for_shell(path)}")
