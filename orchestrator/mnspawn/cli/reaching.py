"""What all commands that reach hosts share: their options, which hosts are meant, how we log. Needs typer."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnspawn.cli import render
from mnspawn.cli.run import hosts_of
from mnspawn.cli.words import visible
from mnspawn.errors import UsageError
from mnspawn.settings import OPTION, Option, Origin, Settings, resolve
from mnspawn.transport.base import SshOptions

if TYPE_CHECKING:
    from mnspawn_inventory import Host

SHARED = (
    "hosts", "hostfile", "inventory", "include", "exclude", "limit", "sandbox",
    "ssh_config", "transport", "host_key_check", "connect_timeout", "verbose",
)  # fmt: skip
EXPRESSION = "Names, gpu[01-16], @group, a!b, ..."
HostsArgument = Annotated[list[str] | None, typer.Argument(metavar="HOSTS", help=EXPRESSION, show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def reaching(command: Callable[..., int], *more: str) -> Callable[..., int]:
    """Give a typer command the shared options, and `more` by name; it gets their values as `settings`.

    What is said in the environment and in the settings file holds as it does for runs.
    """
    names = (*SHARED, *more)

    def call(**arguments: Any) -> int:
        given = {name: arguments.pop(name) for name in names}
        given["verbose"] = given["verbose"] or None
        positional = arguments.get("hosts_argument")
        settings = settings_of(given, positional)
        log_to_stderr(settings.verbose)
        return command(settings=settings, **arguments)

    own = [one for one in inspect.signature(command).parameters.values() if one.name != "settings"]
    call.__signature__ = inspect.Signature([*own, *(_parameter(OPTION[name]) for name in names)])  # type: ignore[attr-defined]
    call.__doc__, call.__name__ = command.__doc__, command.__name__
    return call


def _parameter(option: Option) -> inspect.Parameter:
    declared = typer.Option(
        *option.flags, help=option.help.replace("[", "\\["), metavar=option.metavar, count=option.is_repeatable
    )
    annotation: Any = Annotated[int, declared] if option.is_repeatable else Annotated[str | None, declared]
    default = 0 if option.is_repeatable else None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def settings_of(given: dict[str, object], positional: Sequence[str] | None) -> Settings:
    """The values of the options; hosts that stand by themselves count as --hosts.

    Raises:
        UsageError: a value can't be used, or hosts are named twice.
    """
    if not positional:
        return resolve(given, os.environ)
    if given.get("hosts") is not None:
        raise UsageError("expected hosts once, found --hosts as well", place="HOSTS")
    settings = resolve({**given, "hosts": ",".join(positional)}, os.environ)
    return replace(settings, origins={**settings.origins, "hosts": Origin("positional", "HOSTS")})


def chosen_hosts(settings: Settings, *, else_all: bool = False) -> "tuple[Host, ...]":
    """The hosts that are meant; none for a sandbox.

    Args:
        else_all: all of the user's own inventory, where nobody says which.

    Raises:
        UsageError: there are none, or what was given can't be used.
    """
    if (
        not settings.sandbox
        and else_all
        and not (settings.hosts or settings.ips or settings.hostfile or settings.inventory)
    ):
        from mnspawn.cli.inventory import chosen
        from mnspawn_inventory.allocation import find_allocation
        from mnspawn_inventory.resolve import read_own

        if find_allocation(os.environ) is None and (own := read_own(os.environ, ".")) is not None and own.hosts:
            return chosen(own, None, settings.include, settings.exclude, settings.limit)
    return hosts_of(settings, os.environ)


def ssh_options(settings: Settings) -> SshOptions:
    return SshOptions(settings.ssh_config, settings.connect_timeout, settings.host_key_check)


def log_to_stderr(verbosity: int) -> None:
    """As for runs: errors always, everything of ours from -vv on, of libraries from -vvv on."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            render.print_ours(visible(line) for line in self.format(record).splitlines())

    handler = Handler()
    handler.setFormatter(logging.Formatter("mnspawn: %(name)s: %(message)s"))
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.ERROR if verbosity < 3 else logging.DEBUG)
    logging.getLogger("mnspawn").setLevel(logging.DEBUG if verbosity >= 2 else logging.WARNING)


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
