"""`mnspawn [run]`: from a command line to a run, its console, and its exit status."""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from mnspawn import api
from mnspawn import settings as declared
from mnspawn.api import Listener, RunRequest
from mnspawn.cli import render
from mnspawn.cli.app import COMMANDS
from mnspawn.cli.words import EventWording, visible
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.logs.journal import EventsSink
from mnspawn.logs.sinks import ConsoleSink, OutputMode
from mnspawn.plan import Program
from mnspawn.settings import Option, Settings
from mnspawn.transport.base import SshOptions

if TYPE_CHECKING:
    from mnspawn_inventory import Host, InventoryError

T = TypeVar("T")

HELP = """Start one distributed program on many SSH hosts.

Everything behind SCRIPT belongs to it, whatever it looks like. Every rank finds in its environment what it needs to \
meet the others (RANK, WORLD_SIZE, MASTER_ADDR, ...: for torch, Paddle and JAX). Output comes back line by line. The \
first rank that fails stops all, and its exit status is ours.
"""

SCRIPT = "What every rank runs; with -m a module, with --no-python any command."
ARGS = "Its arguments, byte for byte."

EXAMPLES = """Examples:
  mnspawn --sandbox 2 --nproc-per-node 2 train.py   try it on this machine
  mnspawn --hosts gpu-01,gpu-02 train.py --lr 0.1   a trainer per accelerator
  mnspawn --hostfile hosts -m package.train         a module
  mnspawn -H a:4,b:2 --dry-run train.py             look first"""

MORE = """Every option can also be given as MNSPAWN_<OPTION> in the environment and
in ~/.config/mnspawn/settings.toml (MNSPAWN_SETTINGS names another file).
Arguments win over the environment, and that over the file.

Ctrl-C once stops all ranks, twice kills them, three times leaves at once.

Exit status: that of the rank that failed first (128 + signal if one killed
it); else 0, 2 usage, 3 a host could not be used, 4 a host refused the plan,
5 a host was lost, 124 --timeout, 129, 130, 143 HUP, INT, TERM, 70 our bug."""


def build() -> Any:
    """The command as typer builds it from the table of settings."""
    application = typer.Typer(add_completion=False)
    application.command(
        name="run",
        help=_unmarked(HELP),
        epilog=epilog(),
        context_settings={"help_option_names": ["--help", "-h"], "allow_interspersed_args": False},
    )(_command())
    return typer.main.get_command(application)


def epilog() -> str:
    """What stands below the options in --help; \\b keeps typer from filling the lines."""
    others = "\n".join(f"  mnspawn {name:<12} {command.help}" for name, command in COMMANDS.items())
    commands = f"Other commands (mnspawn COMMAND --help):\n{others}"
    return "\n\n".join(f"\b\n{part}" for part in (_unmarked(EXAMPLES), commands, *MORE.split("\n\n")))


def _command() -> Any:
    def run(ctx: typer.Context, **given: Any) -> int:
        del given["script"], given["args"], given["version"]  # there for --help and completion
        arguments = {name: value for name, value in given.items() if value is not None and value is not False}
        if not arguments["verbose"]:
            del arguments["verbose"]
        return perform(declared.resolve(arguments, os.environ), ctx.obj or ())

    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_parameter(option) for option in declared.OPTIONS]
    parameters += [
        _keyword(
            "version", Annotated[bool, typer.Option("--version", help="Show the version and leave.", metavar="")], False
        ),
        _keyword("script", Annotated[Path, typer.Argument(metavar="SCRIPT", help=SCRIPT)], inspect.Parameter.empty),
        _keyword(
            "args", Annotated[list[str] | None, typer.Argument(metavar="ARGS", help=ARGS, show_default=False)], None
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _parameter(option: Option) -> inspect.Parameter:
    said: dict[str, Any] = {"help": _help(option), "rich_help_panel": option.panel, "metavar": option.metavar}
    said["show_default"] = False
    if option.is_flag and option.is_repeatable:
        return _keyword(option.name, Annotated[int, typer.Option(*option.flags, count=True, **said)], 0)
    if option.is_flag:
        return _keyword(option.name, Annotated[bool, typer.Option(*option.flags, **said)], False)
    annotation: Any = list[str] | None if option.is_repeatable else str | None
    return _keyword(option.name, Annotated[annotation, typer.Option(*option.flags, **said)], None)


def _help(option: Option) -> str:
    default, text = option.default, _unmarked(option.help)
    if option.is_flag or default is None or default == ():
        return text
    shown = (
        ",".join(default) if isinstance(default, tuple) else f"{default:g}" if isinstance(default, float) else default
    )
    return f"{text} Default: {shown}."


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


def _unmarked(text: str) -> str:
    """Square brackets would be read as markup."""
    return text.replace("[", "\\[")


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def perform(settings: Settings, words: Sequence[str]) -> int:
    """Do what the settings say with the program that `words` are; give the exit status.

    Raises:
        UsageError: what was given can't be used.
        MnspawnError: no trainer was started.
    """
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
    try:
        return await outcome
    finally:
        for listener in listeners:
            await listener.aclose()


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
    ranks = None if settings.ranks is None else {rank for span in settings.ranks for rank in span}
    wording = EventWording(host_count, settings.verbose)
    console = ConsoleSink(mode, ranks=ranks, wording=wording, stdout=stdout)
    console.show_live(wording.connecting())
    _log_to(console, settings.verbose)
    return [console] if events is None else [console, events]
