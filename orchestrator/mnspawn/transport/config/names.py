"""Refuses names of hosts and users that a shell would take as code, rather than quote them. Pure."""

import re

from mnspawn.errors import UsageError

# what OpenSSH 9.6 refuses too: such a name would be code in somebody's ProxyCommand or Match exec
_BAD_HOST = re.compile(r"^-|[\s\x00-\x20\x7f'`\"$\\;&<>|(){}]|^$")
_BAD_USER = re.compile(r"^-|['`\";&<>|(){}\x00-\x1f\x7f]|\\$|\s\\|^$")


class UnsafeName(UsageError):
    """A name that a shell would take as code."""


def check_host(name: str, place: str | None = None) -> None:
    """Check that a name is harmless.

    Raises:
        UnsafeName: a shell would take it as code, or it is not UTF-8.
    """
    _check(name, _BAD_HOST, "host name", place)


def check_user(name: str, place: str | None = None) -> None:
    """As `check_host`."""
    _check(name, _BAD_USER, "user name", place)


def _check(name: str, bad: re.Pattern[str], what: str, place: str | None) -> None:
    if any("\udc80" <= char <= "\udcff" for char in name):  # a byte that was read as it is
        raise UnsafeName(f"{what} {name!r} is not UTF-8", place=place)
    if bad.search(name):
        reason = f"{what} {name!r} has characters that a shell would take as code, or none at all"
        raise UnsafeName(reason, place=place)
