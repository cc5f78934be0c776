"""Arguments for ssh in Ansible's inventories: the way to a host, and its user, port, key and address. Pure."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin

WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # ssh.c, getopt
# options that do not change which host and user a connection reaches
HARMLESS_FLAGS = frozenset("CNnqTtvxak")
HARMLESS = frozenset(
    [
        *("batchmode", "compression", "connectionattempts", "controlmaster", "controlpath", "controlpersist"),
        *("loglevel", "requesttty", "serveralivecountmax", "serveraliveinterval", "tcpkeepalive", "visualhostkey"),
    ]
)
FIELDS = {"hostname": "address", "identityfile": "identity", "user": "user", "port": "port"}
LETTERS = {"i": "identity", "l": "user", "p": "port"}
FORWARDED = ("%h:%p", "[%h]:%p")


@dataclass
class SshArguments:
    """What the arguments mean.

    Attributes:
        way: ("jump", list of hops) or ("proxy_command", command); None if they have neither.
        settings: values for address, identity, user and port; the first of each wins, as in ssh.
        unused: arguments that are not used, as written.
    """

    way: tuple[str, str] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def read(text: str, place: Origin | None) -> SshArguments:
    """Read arguments for ssh.

    Raises:
        InventoryError: their quotes don't match, or their proxy can't be used.
    """
    found = SshArguments()
    try:
        words = shlex.split(text)
    except ValueError:
        raise InventoryError("quotes don't match", place=place, found=text, expected="arguments for ssh") from None
    for letter, value in _options(words, place):
        if letter == "J":
            found.way = found.way or _jump(value, place)
        elif letter in LETTERS:
            found.settings.setdefault(LETTERS[letter], value)
        elif letter == "o":
            key, _, argument = value.replace("=", " ", 1).strip().partition(" ")
            _keyword(found, key.lower(), argument.strip(), value, place)
        elif letter == "F":
            found.unused.append(f"-F {value} (give it as --ssh-config)")
        elif letter not in HARMLESS_FLAGS:
            found.unused.append(f"-{letter} {value}".strip() if letter else value)
    return found


def _keyword(found: SshArguments, key: str, value: str, written: str, place: Origin | None) -> None:
    if key == "proxyjump":
        found.way = found.way or _jump(value, place)
    elif key == "proxycommand":
        found.way = found.way or way_of_command(value, place)
    elif key == "proxyusefdpass" and value.lower() not in ("no", "false"):
        raise InventoryError("a proxy that can't be used", place=place, found=written, expected="ProxyUseFdpass=no")
    elif key in FIELDS:
        found.settings.setdefault(FIELDS[key], value)
    elif key not in HARMLESS:
        found.unused.append(f"-o {written}")


def _options(words: list[str], place: Origin | None) -> Iterator[tuple[str, str]]:
    """(letter, value) of each option, as getopt parses them; the letter of other words is empty."""
    rest = iter(words)
    for word in rest:
        if len(word) < 2 or not word.startswith("-"):
            yield "", word
            continue
        for index, letter in enumerate(word[1:], start=2):
            if letter not in WITH_VALUE:
                yield letter, ""
                continue
            value = word[index:] or next(rest, None)
            if value is None:
                raise InventoryError(
                    "an option without its value", place=place, found=word, expected="arguments for ssh"
                )
            yield letter, value.strip()
            break


def _jump(hops: str, place: Origin | None) -> tuple[str, str]:
    if hops.lower() == "none":
        return "jump", "none"
    return "jump", names.check_jump(hops, place)


def way_of_command(command: str, place: Origin | None) -> tuple[str, str]:
    """A ProxyCommand, as a jump if it is nothing else (`ssh -q -W %h:%p me@gate`).

    Raises:
        InventoryError: there is no command.
    """
    if not command:
        raise InventoryError("a proxy that can't be used", place=place, found="ProxyCommand=", expected="a command")
    if command.lower() == "none":
        return "jump", "none"
    hop = _hop(command)
    return ("proxy_command", command) if hop is None else ("jump", hop)


def _hop(command: str) -> str | None:
    """The one host that the command jumps through; None if it does anything else."""
    try:
        words = shlex.split(command)
        options = list(_options(words[1:], None))
    except (ValueError, InventoryError):
        return None
    if not words or words[0] not in ("ssh", "/usr/bin/ssh"):
        return None
    values = dict(options)
    hosts = [value for letter, value in options if not letter]
    if len(hosts) != 1 or len(values) != len(options) or values.get("W") not in FORWARDED:
        return None
    if not values.keys() <= {"", "W", "p", "l"} | HARMLESS_FLAGS:
        return None
    user = f"{values['l']}@" if "l" in values and "@" not in hosts[0] else ""
    hop = f"{user}{hosts[0]}{':' + values['p'] if 'p' in values else ''}"
    try:
        return names.check_jump(hop, None)
    except InventoryError:  # `ssh ssh://me@gate:22`, an alias of an odd name: ssh itself knows what to do
        return None
