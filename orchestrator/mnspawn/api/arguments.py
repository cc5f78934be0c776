"""From the options of a Python call to its settings and hosts: for `launch` and `spawn` alike. Touches no host."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mnspawn.errors import OptionError, UsageError
from mnspawn.settings import table, to_request

if TYPE_CHECKING:
    from mnspawn_inventory import Host

OPTIONS = tuple(option.name for option in table.OPTIONS if option.is_for_calls and option.name != "hosts")
_IGNORED = ("hosts", "ips", "hostfile", "sandbox")  # a call says itself where it goes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call runs, and with which settings.

    Attributes:
        hosts: none for a sandbox, whose hosts do not exist yet.
        is_here: it runs on this machine, without SSH.
        output: how to show what the ranks write.
    """

    settings: table.Settings
    hosts: "tuple[Host, ...]"
    is_here: bool
    output: str


def resolve(
    given: Mapping[str, Any], *, is_here: bool, address: str | None = None, ignored: tuple[str, ...] = ()
) -> Place:
    """Add the environment and the settings file to the options of a call, and find its hosts.

    Args:
        given: options by name.
        is_here: whether the call names no hosts and thus runs on this machine.
        address: at which ranks on this machine reach each other.
        ignored: further options whose variables don't count.

    Raises:
        OptionError: an option can't be used, or there are no hosts.
    """
    variables = {table.OPTION[name].variable for name in (*_IGNORED, *ignored)}
    environ = {name: value for name, value in os.environ.items() if name not in variables}
    with _as_option_errors():
        resolved = table.resolve(given, environ)
        if is_here:
            resolved = replace(resolved, sandbox=None)  # the settings file may name one
        if (is_here or resolved.sandbox) and any(given.get(name) is not None for name in to_request.NARROWING):
            raise OptionError("expected hosts to choose from, found none", place="hosts")
        found = (to_request.this_machine(address),) if is_here else to_request.hosts_of(resolved, os.environ)
    is_plain = is_here and resolved.origin("output").layer == "default"
    return Place(resolved, found, is_here, "plain" if is_plain else resolved.output)


@contextlib.contextmanager
def _as_option_errors() -> Iterator[None]:
    """Raise bad usage as a ValueError, too."""
    try:
        yield
    except UsageError as exc:
        raise OptionError(exc.message, place=exc.place, hint=exc.hint) from exc.__cause__


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the line that called mnspawn: Python hides warnings about lines of libraries."""
    level, frame = 1, sys._getframe()
    while frame.f_globals.get("__name__", "").startswith("mnspawn.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
