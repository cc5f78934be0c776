"""Gives commands that reach hosts their options, and finds the hosts that these name. Needs typer."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnspawn.errors import UsageError
from mnspawn.settings import to_request
from mnspawn.settings.table import OPTION, Settings, resolve

from . import render
from .options import parameter_of

if TYPE_CHECKING:
    from mnspawn.api.fleet import Place
    from mnspawn_inventory import Host

SHARED = (
    "hosts", "ips", "hostfile", "inventory", "include", "exclude", "limit", "sandbox",
    "ssh_config", "transport", "host_key_check", "connect_timeout", "verbose",
)  # fmt: skip
HEADING, HEADED = "Hosts and SSH", frozenset(SHARED) - {"verbose"}
EXPRESSION = "Names, gpu[01-16], @group, a!b, ..."
HostsArgument = Annotated[list[str] | None, typer.Argument(metavar="HOSTS", help=EXPRESSION, show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


def takes_settings(
    *names: str, helps: Mapping[str, str] | None = None
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a typer command the options of these names; it gets their values, and those of the layers below, as
    `settings`. Hosts in a parameter `hosts_argument` count as --hosts.

    Args:
        helps: what an option means here, where the table of settings says it for runs.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        def call(**arguments: Any) -> int:
            said = {name: arguments.pop(name) for name in names}
            given = {name: value for name, value in said.items() if value not in (None, False, 0)}
            settings = settings_of(given, arguments.get("hosts_argument"))
            render.choose_colours(settings.color)
            if "output" not in names:  # else the console takes the logs, to keep lines whole
                render.log_to(render.print_ours, settings.verbose)
            return command(settings=settings, **arguments)

        own = [one for one in inspect.signature(command).parameters.values() if one.name != "settings"]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        options = [
            parameter_of(OPTION[name], (helps or {}).get(name), panel=HEADING if name in HEADED else None)
            for name in names
        ]
        call.__signature__ = inspect.Signature([*keywords, *options])  # type: ignore[attr-defined]
        call.__doc__, call.__name__ = command.__doc__, command.__name__
        return call

    return decorate


def settings_of(given: dict[str, object], positional: Sequence[str] | None) -> Settings:
    """The values of the options; hosts that stand by themselves count as --hosts.

    Raises:
        UsageError: a value can't be used, or hosts are named twice.
    """
    if not positional:
        return resolve(given, os.environ)
    for name in ("hosts", "ips"):
        if given.get(name) is not None:
            raise UsageError(f"expected hosts once, found --{name} as well", place="HOSTS")
    hosts = ",".join(positional)
    return resolve({**given, "hosts": hosts}, os.environ).with_hosts(hosts)


def chosen_hosts(settings: Settings, *, else_all: bool = False) -> "tuple[Host, ...]":
    """The hosts that are meant; none for a sandbox.

    Args:
        else_all: all of the user's own inventory, where nobody says which.

    Raises:
        UsageError: there are none, or what was given can't be used.
    """
    return to_request.hosts_of(settings, os.environ, else_all=else_all, on_note=render.print_note)


def place_of(settings: Settings, hosts: "tuple[Host, ...]") -> "Place":
    """The hosts, and how they are reached."""
    from mnspawn.api.fleet import Place

    return Place(hosts, settings.sandbox or 0, settings.transport, to_request.ssh_of(settings))


class Progress:
    """A line on a terminal's stderr that says how far we are, and is gone in the end; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = render.has_colours(sys.stderr)
        self._has_text = False

    def show(self, text: str) -> None:
        if self._is_shown and (text or self._has_text):
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._has_text = bool(text)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.show("")
