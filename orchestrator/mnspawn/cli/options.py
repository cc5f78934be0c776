"""`mnspawn [run]` as a typer command, made from the table of settings: for --help and for shell completion."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from mnspawn.errors import InternalError
from mnspawn.settings import table as declared
from mnspawn.settings.table import Option

from .table import COMMANDS

HELP = """Start one distributed program on many SSH hosts.

Everything after SCRIPT is passed to it unchanged. Every rank gets the environment that torch, Paddle and JAX expect \
(RANK, WORLD_SIZE, MASTER_ADDR, ...). Output comes back line by line. The first rank that fails stops all others, and \
mnspawn ends with its exit status.
"""

SCRIPT = "The Python script that every rank runs; with -m a module, with --no-python a command."
ARGS = "Arguments of the script, passed byte for byte."

EXAMPLES = """Examples:
  mnspawn --sandbox 2 --nproc-per-node 2 train.py   try it on this machine
  mnspawn --hosts gpu-01,gpu-02 train.py --lr 0.1   a worker per accelerator
  mnspawn --hostfile hosts -m package.train         a module
  mnspawn -H a:4,b:2 --dry-run train.py             look first"""

MORE = """Every option can also be given as MNSPAWN_<OPTION> in the environment and
in ~/.config/mnspawn/settings.toml (MNSPAWN_SETTINGS names another file).
The command line wins over the environment, and the environment over the file.

Ctrl-C once stops all ranks, twice kills them, three times leaves at once.
Ctrl-\\ leaves the run in the background; mnspawn attach returns to it.

Exit status: that of the rank that failed first (128 + signal if one killed
it); else 0, 2 usage, 3 a host could not be used, 4 a host refused the plan,
5 a host was lost, 124 --timeout, 129, 130, 143 HUP, INT, TERM, 70 a bug."""


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
    def run() -> None:
        raise InternalError("typer explains the run command, it doesn't call it")

    parameters = [parameter_of(option, panel=option.panel) for option in declared.OPTIONS]
    parameters += [
        _keyword(
            "version", Annotated[bool, typer.Option("--version", help="Show the version and exit.", metavar="")], False
        ),
        _keyword("script", Annotated[Path, typer.Argument(metavar="SCRIPT", help=SCRIPT)], inspect.Parameter.empty),
        _keyword(
            "args", Annotated[list[str] | None, typer.Argument(metavar="ARGS", help=ARGS, show_default=False)], None
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def parameter_of(option: Option, text: str | None = None, *, panel: str | None) -> inspect.Parameter:
    """An option of the table as a parameter that typer reads; `text` in place of its own help."""
    said: dict[str, Any] = {"help": text or _help(option), "rich_help_panel": panel, "metavar": option.metavar}
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


def _unmarked(text: str) -> str:
    """Square brackets would be read as markup."""
    return text.replace("[", "\\[")


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
