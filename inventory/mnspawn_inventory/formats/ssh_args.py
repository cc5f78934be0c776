"""Arguments for ssh as Ansible's inventories have them: what they say of the way to a host. Pure."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin

WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # ssh.c, getopt
# what makes no difference to where a connection leads and as whom; our own connections decide it themselves
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
    """What the arguments say.

    Attributes:
        way: ("jump", list of hops) or ("proxy_command", command); None: nothing is said of it.
        settings: of address, identity, user and port, those that are said; the first of each counts, as in ssh.
        unused: what is of no use here, as it is written.
    """

    way: tuple[str, str] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def read(text: str, place: Origin | None) -> SshArguments:
    """Read arguments for ssh.

    Raises:
        InventoryError: they can't be taken apart, or a proxy in them can't be used.
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
            key, _, said = value.replace("=", " ", 1).strip().partition(" ")
            _keyword(found, key.lower(), said.strip(), value, place)
        elif letter == "F":
            found.unused.append(f"-F {value} (give it as --ssh-config)")
        elif letter not in HARMLESS_FLAGS:
            found.unused.append(f"-{letter} {value}".strip() if letter else value)
    return found


def _keyword(found: SshArguments, key: str, said: str, written: str, place: Origin | None) -> None:
    if key == "proxyjump":
        found.way = found.way or _jump(said, place)
    elif key == "proxycommand":
        found.way = found.way or way_of_command(said, place)
    elif key == "proxyusefdpass" and said.lower() not in ("no", "false"):
        raise InventoryError("a proxy that can't be used", place=place, found=written, expected="ProxyUseFdpass=no")
    elif key in FIELDS:
        found.settings.setdefault(FIELDS[key], said)
    elif key not in HARMLESS:
        found.unused.append(f"-o {written}")


def _options(words: list[str], place: Origin | None) -> Iterator[tuple[str, str]]:
    """(letter, value) of each option, as getopt has them; words that belong to none have no letter."""
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
    """A ProxyCommand as a jump where it says nothing else (`ssh -q -W %h:%p me@gate`), else as it is.

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
    """The one host that ssh is to go through; None where the command says more than that."""
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
