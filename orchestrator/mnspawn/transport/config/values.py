"""Checks values of ssh_config as OpenSSH does, in every block, whether it applies or not. Pure.

Checks only keywords that mnspawn reads: a later release may allow more for the others.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence

from mnspawn.errors import UsageError

_SINGLE = frozenset(
    {"addressfamily", "bindaddress", "canonicalizehostname", "certificatefile", "ciphers", "compression"}
    | {"connecttimeout", "hashknownhosts", "hostkeyalgorithms", "hostkeyalias", "hostname", "identitiesonly"}
    | {"identityagent", "identityfile", "ignoreunknown", "kexalgorithms", "macs", "nohostauthenticationforlocalhost"}
    | {"port", "proxyusefdpass", "revokedhostkeys", "stricthostkeychecking", "tag", "user"}
)
_SWITCH = ("yes", "no", "true", "false")
_CHOICES = {
    "addressfamily": ("any", "inet", "inet6"),
    "canonicalizehostname": (*_SWITCH, "always"),
    "compression": ("yes", "no"),
    "hashknownhosts": _SWITCH,
    "identitiesonly": _SWITCH,
    "nohostauthenticationforlocalhost": _SWITCH,
    "proxyusefdpass": _SWITCH,
    "stricthostkeychecking": (*_SWITCH, "ask", "off", "accept-new"),
}
# shapes of names that a release of OpenSSH has had; a list may have newer ones beside them
_ALGORITHMS = {
    "kexalgorithms": r"curve25519-.*|ecdh-.*|diffie-hellman-.*|sntrup\w+-.*|mlkem\w+-.*|kex-strict-.*|ext-info-.*",
    "ciphers": r"aes\d+-.*|chacha20-.*|3des-.*|rijndael-.*|blowfish-.*|cast128-.*|arcfour.*|none",
    "macs": r"hmac-.*|umac-.*",
    "hostkeyalgorithms": r"ssh-.*|ecdsa-.*|rsa-sha2-.*|sk-.*|webauthn-.*|x509v3-.*|mldsa.*|ssh-mldsa.*",
}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_JUMP = re.compile(
    r"(?:ssh://)?(?:[^@\s][^\s]*@)?(?:\[[^\]\s]+\]|[^@:\[\]\s]+)(?::(\d+))?/?|(?:[^@\s]+@)?[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*"
)


def check(keyword: str, words: Sequence[str], origin: str) -> None:
    """Check a value.

    Args:
        keyword: in lower case.

    Raises:
        UsageError: it can't; `place` is the origin.
    """
    problem = _problem(keyword, words)
    if problem is not None:
        raise UsageError(problem, place=origin)


def _problem(keyword: str, words: Sequence[str]) -> str | None:
    value = words[0]
    if keyword in _SINGLE and len(words) > 1:
        return f"expected one value, found {' '.join(words)!r}"
    if keyword in _CHOICES and value.lower() not in _CHOICES[keyword]:
        return f"expected {_listed(_CHOICES[keyword])}, found {value!r}"
    if keyword == "port" and port_of(value) is None:
        return f"expected a port from 1 to 65535, found {value!r}"
    if keyword == "connecttimeout" and value != "none" and seconds_of(value) is None:
        return f"expected a number of seconds, or a time such as 1m30s, found {value!r}"
    if keyword in _ALGORITHMS and not _is_algorithm_list(keyword, value):
        return f"expected names of algorithms, found {value!r}"
    if keyword in ("setenv", "sendenv"):
        return _environment_problem(keyword, words)
    if keyword in ("userknownhostsfile", "globalknownhostsfile") and len(words) > 1:
        return "expected `none` alone, found more files" if any(word.lower() == "none" for word in words) else None
    if keyword == "proxyjump":
        return _jump_problem(value)
    return None


def port_of(text: str) -> int | None:
    """A port by its number or the name of its service."""
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII):
        try:
            return socket.getservbyname(text, "tcp") if text.isascii() and "\0" not in text else None
        except OSError:
            return None
    return int(text) if 0 < int(text) < 65536 else None


def seconds_of(text: str) -> int | None:
    """A number of seconds, or a time as sshd_config(5) writes them (1m30s)."""
    if not re.fullmatch(r"(?:[0-9]+[smhdw]?)+", text.lower(), re.ASCII):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smhdw]?)", text.lower()))


def _is_algorithm_list(keyword: str, value: str) -> bool:
    """Whether some of the names can be of algorithms; what a list removes need not be there."""
    if value.startswith("-"):
        return True
    names = value.removeprefix("+").removeprefix("^").split(",")
    return any(re.fullmatch(_ALGORITHMS[keyword], name) or set(name) & set("*?") for name in names)


def _environment_problem(keyword: str, words: Sequence[str]) -> str | None:
    for word in words:
        if keyword == "setenv" and word.find("=") < 1:
            return f"expected NAME=VALUE, found {word!r}"
        if keyword == "sendenv" and "=" in word:
            return f"expected the name of a variable, found {word!r}"
    return None


def _jump_problem(value: str) -> str | None:
    if value.lower() == "none":
        return None
    for jump in value.split(","):
        match = _JUMP.fullmatch(jump)
        if match is None or (match.group(1) and not 0 < int(match.group(1)) < 65536):
            return f"expected [user@]host[:port], found {jump!r}"
    return None


def network_problem(patterns: str) -> str | None:
    """What is wrong with the networks of a `Match localnetwork`."""
    for pattern in patterns.split(","):
        try:
            ipaddress.ip_network(pattern.removeprefix("!"))
        except ValueError:
            return f"expected a network such as 10.0.0.0/8, found {pattern!r}"
    return None


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
