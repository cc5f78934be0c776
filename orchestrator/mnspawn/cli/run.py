"""`mnspawn [run]`: from settings to a run, its console, and its exit status. Without typer: a run starts sooner so."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from mnspawn import api
from mnspawn.api import Listener, RunRequest
from mnspawn.cli import render
from mnspawn.cli.words import EventWording, told, visible
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.logs.journal import EventsSink
from mnspawn.logs.sinks import ConsoleSink, OutputMode
from mnspawn.plan import Program
from mnspawn.settings import Settings
from mnspawn.transport.base import SshOptions

if TYPE_CHECKING:
    from mnspawn_inventory import Host, InventoryError

T = TypeVar("T")

log = logging.getLogger(__name__)


def perform(settings: Settings, words: Sequence[str]) -> int:
    """Do what the settings say with the program that `words` are; give the exit status.

    Raises:
        UsageError: what was given can't be used.
        MnspawnError: no trainer was started.
    """
    if settings.json and not settings.dry_run and settings.origin("json").layer == "argument":
        raise UsageError("expected --dry-run with it", place="--json", hint="--events FILE tells of a run in JSON")
    program = program_of(settings, words)
    hosts = () if settings.sandbox else hosts_of(settings, os.environ)
    request = request_of(settings, program, hosts)
    listeners = listeners_of(settings, settings.sandbox or len(hosts))
    if settings.dry_run:
        plan = asyncio.run(_closing(api.plan(request, listeners), listeners))
        render.print_plan(plan.describe(reveal=settings.json), settings.json)
        return ExitStatus.OK
    report = asyncio.run(_closing(api.run(request, listeners), listeners))
    render.print_summary(report)
    return report.exit_status


async def _closing(outcome: Awaitable[T], listeners: Sequence[Listener]) -> T:
    """Whatever is said after this stands behind all output."""
    async with contextlib.AsyncExitStack() as stack:
        for listener in reversed(listeners):
            stack.push_async_callback(listener.aclose)
        result = await outcome
        try:
            await stack.aclose()
        except asyncio.CancelledError:
            # Ctrl-C while a stopped reader keeps us: the rest of the output is not wanted, what became of the run is.
            log.debug("left output that nobody read")
    return result


def request_of(settings: Settings, program: Program, hosts: "tuple[Host, ...]") -> RunRequest:
    """The settings as the engine takes them."""
    return RunRequest(
        program=program,
        hosts=hosts,
        sandbox=settings.sandbox or 0,
        nproc=settings.nproc_per_node,
        contracts=settings.contract,
        env=settings.env,
        keep_proxy=settings.keep_proxy,
        python=settings.python,
        workdir=settings.workdir,
        start_port=settings.start_port,
        master_port=settings.master_port,
        network=settings.network,
        grace=settings.grace,
        timeout=settings.timeout,
        orphan_grace=settings.orphan_grace,
        transport=settings.transport,
        ssh=SshOptions(settings.ssh_config, settings.connect_timeout, settings.host_key_check),
        handle_signals=True,
    )


def program_of(settings: Settings, words: Sequence[str]) -> Program:
    """What every rank runs.

    Raises:
        UsageError: nothing.
    """
    if not words or not words[0]:
        found = "an empty word" if words else "nothing"
        raise UsageError(f"expected a script behind the options, found {found}", hint="mnspawn --hosts a,b train.py")
    kind: Literal["script", "module", "command"] = "script"
    if settings.module:
        kind = "module"
    elif settings.no_python:
        kind = "command"
    return Program(kind, words[0], tuple(words[1:]))


def hosts_of(settings: Settings, environ: Mapping[str, str]) -> "tuple[Host, ...]":
    """The hosts that take part, from the options or the allocation that we run in; never silently this machine.

    Raises:
        UsageError, InventoryError: there are none, or what was given can't be used.
    """
    from mnspawn_inventory import InventoryError, resolve

    given = {name: getattr(settings, name) for name in ("hosts", "ips", "hostfile", "inventory")}
    try:
        selection = resolve(**{name: value and str(value) for name, value in given.items()}, environ=environ)
    except InventoryError as exc:
        raise UsageError(str(exc) if exc.place is None else _at_origin(exc, settings), hint=exc.hint) from exc
    if not selection.hosts:
        hint = "--hosts a,b, --hostfile FILE, or --sandbox 2 to try it on this machine"
        raise UsageError("expected hosts to run on, found none", hint=hint)
    for note in selection.notes:
        render.print_ours(told(note))
    return selection.hosts


def _at_origin(error: "InventoryError", settings: Settings) -> str:
    """The inventory knows options only; name the variable or file line where the option was really given."""
    text = str(error)
    for name in ("hosts", "ips", "hostfile", "inventory"):
        flag = f"--{name}"
        if error.place is not None and error.place.source == flag and settings.origin(name).layer != "argument":
            return f"{settings.origin(name)}{text.removeprefix(flag)}"
    return text


def listeners_of(settings: Settings, host_count: int) -> list[Listener]:
    """The console, and the events where they are asked for. With `--events -` stdout is theirs: the rest is on stderr.

    Raises:
        UsageError: the events' file can't be written.
    """
    events = None if settings.events is None else EventsSink.open(str(settings.events))
    stdout = 2 if settings.events is not None and str(settings.events) == "-" else 1
    mode = OutputMode.NONE if settings.dry_run else OutputMode(settings.output)
    wording = EventWording(host_count, settings.verbose)
    console = ConsoleSink(mode, ranks=settings.ranks, wording=wording, stdout=stdout)
    console.show_live(wording.connecting())
    _log_to(console, settings.verbose)
    return [console] if events is None else [console, events]


def _log_to(console: ConsoleSink, verbosity: int) -> None:
    """Logging is for operators: errors always, everything of ours from -vv on, of libraries from -vvv on."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.note("\n".join(visible(line) for line in self.format(record).splitlines()))

    handler = Handler()
    handler.setFormatter(logging.Formatter("mnspawn: %(name)s: %(message)s"))
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.ERROR if verbosity < 3 else logging.DEBUG)
    logging.getLogger("mnspawn").setLevel(logging.DEBUG if verbosity >= 2 else logging.WARNING)
