"""What commands about runs share: their options, finding a run, following one."""

import asyncio
import os
import select
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mnspawn.api import runs as api
from mnspawn.api.runs import KnownRun, Listener, ViewOptions, ViewResult, pick, registry
from mnspawn.errors import HostError, HostsUnusable, UsageError
from mnspawn.events import Event, Stream
from mnspawn.output.sinks import ConsoleSink
from mnspawn.report import RunReport
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings

from . import reaching, render
from .console import closing
from .wording.run import EventWording, error_lines, message_lines

if TYPE_CHECKING:
    from mnspawn_inventory import Host

T = TypeVar("T")
LISTS = ("hosts", "hostfile", "inventory")
REACH = (*LISTS, "ssh_config", "transport", "host_key_check", "connect_timeout", "verbose")
SHOW = ("output", "timestamps", "color", "sanitize", "log_dir")
HELPS = {
    "hosts": "Ask these hosts; they must include all hosts of the run. "
    "logs and tail choose among the hosts of a run that is known here.",
    "hostfile": "Ask the hosts of this file.",
    "inventory": "Ask the hosts of this inventory, or choose among them with --hosts.",
    "connect_timeout": "Give up on a host after this time.",
    "log_dir": "Copy what is shown, byte for byte, to DIR/RUN.",
    "ranks": "Choose these ranks, such as 0,3-5.",
}
REFUSAL_LOOK = 0.1  # seconds between looks whether stdout is still written
takes_settings = partial(reaching.takes_settings, helps=HELPS)
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The run's id, the beginning of its id, or its name (--name).", show_default=False
    ),
]


def application(name: str, summary: str, command: Callable[..., int], epilog: str | None = None) -> typer.Typer:
    """A typer application of one command."""
    app = typer.Typer(add_completion=False)
    app.command(name, help=summary, epilog=epilog, context_settings={"help_option_names": ["--help", "-h"]})(command)
    return app


# -- finding


def asked_hosts(settings: Settings, *, is_required: bool = False) -> "tuple[Host, ...]":
    """The hosts that the command line names; none when it names none.

    Raises:
        UsageError: they can't be used.
    """
    if not is_required and not any(_is_argument(settings, name) for name in LISTS):
        return ()
    return to_request.hosts_of(settings, os.environ)


def find_run(word: str, settings: Settings, *, misses_one: bool = True) -> KnownRun:
    """The run that a word means: told by the hosts that the command line names; else known here, else told by the
    hosts that the environment or the settings file names.

    Arguments:
        misses_one: as in `api.find_runs`; not for those who would stop the run because a host is lost.

    Raises:
        UsageError: there is none, or several.
        HostsUnusable: it may be on hosts that did not answer.
    """
    hosts = asked_hosts(settings)
    if not hosts:
        try:
            return _with_ssh_options(registry().find(word), settings)
        except UsageError:
            if all(getattr(settings, name) is None for name in LISTS):
                raise
            hosts = asked_hosts(settings, is_required=True)
    ssh = to_request.ssh_of(settings)
    runs, answers = asyncio.run(api.find_runs(hosts, transport=settings.transport, ssh=ssh, misses_one=misses_one))
    errors = [answer.error for answer in answers if answer.error is not None]
    try:
        return pick(runs, word, "a run that these hosts know all of", "give all hosts of the run; mnspawn ps --hosts")
    except UsageError:
        if errors:
            raise HostsUnusable(errors) from None
        raise


def find_part(word: str, settings: Settings) -> tuple[KnownRun, str | None]:
    """The run that a word means, as `find_run` has it, and the hosts of it that are wanted; None for all.

    --hosts with some of the hosts of a run that is known here chooses among them: nobody else needs to be asked.
    """
    from mnspawn_inventory import Inventory, InventoryError
    from mnspawn_inventory.select import among

    expression = settings.hosts
    if expression is not None and [name for name in LISTS if _is_argument(settings, name)] == ["hosts"]:
        with suppress(UsageError, InventoryError):
            known = registry().find(word)
            if len(among(Inventory(known.hosts), hosts=expression)) < len(known.hosts):
                return _with_ssh_options(known, settings), expression
    return find_run(word, settings), None


def _with_ssh_options(known: KnownRun, settings: Settings) -> KnownRun:
    """Return a known run with the SSH options of this command line instead of those it began with."""
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
    return settings.origin(name).layer in ("argument", "positional")


# -- looking


class ViewWording(EventWording):
    """Words the events of a run that others started; connecting is not shown."""

    def live(self, event: Event) -> str | None:
        return None


def look(
    known: KnownRun,
    options: ViewOptions,
    listeners: Sequence[Listener] = (),
    *,
    reader: int | None = None,
    is_refused: Callable[[], bool] | None = None,
) -> ViewResult | None:
    """Look at a run; None when nobody takes the output any more. An end that is seen is remembered on this machine.

    Arguments:
        reader, is_refused: as in `until_nobody_reads`.
    """
    view = api.view(known, listeners, options)
    looking = view if reader is None else until_nobody_reads(view, reader, is_refused)
    seen: ViewResult | None = asyncio.run(closing(looking, listeners))
    if seen is not None and seen.has_ended:
        remember_end(known, seen.report, is_better=options.is_in_charge)
    return seen


def remember_end(known: KnownRun, report: RunReport, *, is_better: bool = False) -> None:
    """Call `api.remember_end`; a full disk here is no reason not to follow a run."""
    try:
        api.remember_end(known, report, is_better=is_better)
    except OSError as exc:
        say_forgotten(exc)


def say_forgotten(error: OSError) -> None:
    say(f"the run is not remembered on this machine: {error.strerror or error}")


async def until_nobody_reads(
    looking: Coroutine[Any, Any, T], reader: int, is_refused: Callable[[], bool] | None = None
) -> T | None:
    """Wait for the end of `looking`, or until nobody takes what it shows any more (then None).

    Arguments:
        reader: a descriptor, somebody reads its other end (`| head -1`).
        is_refused: whether it can't be written any more (a full disk), asked now and then.
    """
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    looked = asyncio.create_task(looking, name="look")
    tasks = [looked, asyncio.create_task(gone.wait(), name="reader")]
    if is_refused is not None:
        tasks.append(asyncio.create_task(_until(is_refused), name="disk"))
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


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the thread that writes knows no event of ours
        await asyncio.sleep(REFUSAL_LOOK)


def has_refused(console: ConsoleSink, mode: str) -> bool:
    """Whether writing stdout failed (the console has reported why), other than by its reader going away."""
    if mode == "none" or Stream.STDOUT in console.wanted_streams:
        return False
    poll = select.poll()
    poll.register(1, 0)
    return not poll.poll(0)


def print_errors(errors: Mapping[str, HostError]) -> None:
    """Write on stderr why hosts could not be asked."""
    if errors:
        render.print_ours(error_lines(HostsUnusable(list(errors.values()))))


def say(text: str, hint: str | None = None) -> None:
    """Write a message of ours on stderr."""
    render.print_ours(message_lines(text, hint))
