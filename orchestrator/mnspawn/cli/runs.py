"""What the commands about runs share: options from the table of settings, finding a run, looking at one."""

import asyncio
import inspect
import os
import select
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mnspawn import api, compose
from mnspawn.api import KnownRun, Listener, Sight, ViewOptions
from mnspawn.cli import render
from mnspawn.cli.console import closing
from mnspawn.cli.options import parameter_of
from mnspawn.cli.reaching import log_to_stderr
from mnspawn.cli.words import EventWording, error_lines, told
from mnspawn.engine.registry import Registry, default_root, pick
from mnspawn.errors import HostError, HostsUnusable, UsageError
from mnspawn.events import Event
from mnspawn.settings import OPTION, Settings, resolve

if TYPE_CHECKING:
    from mnspawn_inventory import Host

T = TypeVar("T")
LISTS = ("hosts", "hostfile", "inventory")
REACH = (*LISTS, "ssh_config", "transport", "host_key_check", "connect_timeout", "verbose")
SHOW = ("output", "timestamps", "color", "sanitize", "log_dir")
HELPS = {
    "hosts": "Ask these hosts; a run is found when all its hosts are among them.",
    "hostfile": "Ask the hosts of this file.",
    "inventory": "Ask the hosts of this inventory, or choose of them by --hosts.",
    "connect_timeout": "For reaching a host.",
    "log_dir": "Copies of what is shown, byte for byte, in DIR/RUN.",
    "ranks": "Only these ranks, such as 0,3-5.",
}
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Its id, the beginning of it, or its name (--name).", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", metavar="", help="For machines.")]


def takes_settings(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of these names; it gets their values, and those of the layers below, as `settings`."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        def call(**given: Any) -> int:
            said = {name: given.pop(name) for name in names}
            settings = resolve({name: value for name, value in said.items() if value}, os.environ)
            render.choose_colours(settings.color)
            if "output" not in names:  # else the console takes the logs, to keep lines whole
                log_to_stderr(settings.verbose)
            return function(settings=settings, **given)

        own = [one for one in inspect.signature(function).parameters.values() if one.name != "settings"]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        options = [parameter_of(OPTION[name], HELPS.get(name), panel=_panel(name)) for name in names]
        call.__signature__ = inspect.Signature([*keywords, *options])  # type: ignore[attr-defined]
        call.__doc__ = function.__doc__
        call.__name__ = function.__name__
        return call

    return decorate


def _panel(name: str) -> str | None:
    return "Hosts and SSH" if name in REACH and name != "verbose" else None


def application(name: str, summary: str, command: Callable[..., int], epilog: str | None = None) -> typer.Typer:
    """A typer application of one command."""
    app = typer.Typer(add_completion=False)
    app.command(name, help=summary, epilog=epilog, context_settings={"help_option_names": ["--help", "-h"]})(command)
    return app


# -- finding


def registry() -> Registry:
    """The runs that were started from this machine."""
    return Registry(default_root(os.environ))


def asked_hosts(settings: Settings, *, is_required: bool = False) -> "tuple[Host, ...]":
    """The hosts that the command line names; none when it names none.

    Raises:
        UsageError: they can't be used.
    """
    if not is_required and not any(_is_argument(settings, name) for name in LISTS):
        return ()
    return compose.select_hosts(settings, os.environ).hosts


def find_run(word: str, settings: Settings) -> KnownRun:
    """The run that a word means: told by the hosts that the command line names; else known here, else told by the
    hosts that the environment or the settings file names.

    Raises:
        UsageError: there is none, or several.
        HostsUnusable: it may be on hosts that did not answer.
    """
    hosts = asked_hosts(settings)
    if not hosts:
        try:
            return _reached_as_said(registry().find(word), settings)
        except UsageError:
            if all(getattr(settings, name) is None for name in LISTS):
                raise
            hosts = asked_hosts(settings, is_required=True)
    runs, answers = asyncio.run(api.find_runs(hosts, transport=settings.transport, ssh=compose.ssh_of(settings)))
    errors = [answer.error for answer in answers if answer.error is not None]
    try:
        return pick(runs, word, "a run that these hosts know all of", "give all hosts of the run; mnspawn ps --hosts")
    except UsageError:
        if errors:
            raise HostsUnusable(errors) from None
        raise


def _reached_as_said(known: KnownRun, settings: Settings) -> KnownRun:
    """A run that is known here, with what the command line says about reaching its hosts in place of what held then."""
    given = {name for name in ("ssh_config", "connect_timeout", "host_key_check") if _is_argument(settings, name)}
    ssh = known.ssh
    if "ssh_config" in given:
        ssh = replace(ssh, config=settings.ssh_config)
    if "connect_timeout" in given:
        ssh = replace(ssh, connect_timeout=settings.connect_timeout)
    if "host_key_check" in given:
        ssh = replace(ssh, host_key_check=settings.host_key_check)
    return replace(
        known, ssh=ssh, transport=settings.transport if _is_argument(settings, "transport") else known.transport
    )


def _is_argument(settings: Settings, name: str) -> bool:
    return settings.origin(name).layer == "argument"


# -- looking


class ViewWording(EventWording):
    """Events of a run that is looked at: there is no connecting to speak of."""

    def live(self, event: Event) -> str | None:
        return None


def look(
    known: KnownRun, options: ViewOptions, listeners: Sequence[Listener] = (), *, reader: int | None = None
) -> Sight | None:
    """Look at a run; None when the reader went away.

    Arguments:
        reader: a descriptor; when nobody reads it any more (`| head -1`), looking ends.
    """
    return asyncio.run(closing(_look(known, options, listeners, reader), listeners))


async def _look(
    known: KnownRun, options: ViewOptions, listeners: Sequence[Listener], reader: int | None
) -> Sight | None:
    view = api.view(known, listeners, options)
    return await view if reader is None else await until_nobody_reads(view, reader)


async def until_nobody_reads(looking: Coroutine[Any, Any, T], reader: int) -> T | None:
    """Wait for the end of `looking`, or until nobody reads a descriptor any more (then None)."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    looked = asyncio.create_task(looking, name="look")
    tasks = (looked, asyncio.create_task(gone.wait(), name="reader"))
    with select.epoll() as watch:
        with suppress(OSError):  # a file has no reader that could go
            watch.register(reader, 0)  # errors are told unasked
            loop.add_reader(watch.fileno(), gone.set)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(watch.fileno())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    return None if looked.cancelled() else looked.result()


def print_errors(errors: Mapping[str, HostError]) -> None:
    """Hosts that could not be looked at, on stderr."""
    if errors:
        render.print_ours(error_lines(HostsUnusable(list(errors.values()))))


def say(text: str, hint: str | None = None) -> None:
    """A line of ours on stderr."""
    render.print_ours(told(text, hint))
