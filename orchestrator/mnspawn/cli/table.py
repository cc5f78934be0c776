"""The commands, and how a command line is taken apart. Imports a command only when it is loaded."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mnspawn.settings.table import OPTIONS

from . import argv

PROGRAM = "mnspawn"
COMPLETION = "_MNSPAWN_COMPLETE"  # in the environment when a shell asks what could come next


@dataclass(frozen=True, slots=True)
class Command:
    """A command beside `run`: the module whose `app` is its typer application, imported when it is called."""

    module: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "ps": Command("mnspawn.cli.commands.ps", "List runs."),
    "status": Command("mnspawn.cli.commands.status", "Show the state of a run."),
    "logs": Command("mnspawn.cli.commands.logs", "Show what a run's ranks wrote."),
    "tail": Command("mnspawn.cli.commands.tail", "Follow a run, or any files on hosts."),
    "attach": Command("mnspawn.cli.commands.attach", "Return to a run."),
    "detach": Command("mnspawn.cli.commands.detach", "Detach a run from its terminal."),
    "stop": Command("mnspawn.cli.commands.stop", "Stop a run."),
    "signal": Command("mnspawn.cli.commands.signal", "Send a signal to the ranks of a run."),
    "report": Command("mnspawn.cli.commands.report", "Show what happened in a run."),
    "clean": Command("mnspawn.cli.commands.clean", "Remove what dead runs left on hosts."),
    "inventory": Command("mnspawn.cli.commands.inventory", "Show, check, convert and edit lists of hosts."),
    "hosts": Command("mnspawn.cli.commands.hosts", "Check hosts before a run, show their settings, accept their keys."),
    "exec": Command("mnspawn.cli.commands.exec", "Run the same command once on every host."),
}

OF_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
GENERAL = ("--help", "-h", "--version", "--install-completion", "--show-completion")
TAKES_VALUE = {flag: not option.is_flag for flag, option in OF_FLAG.items()} | dict.fromkeys(GENERAL, False)


def take_apart(words: Sequence[str]) -> argv.CommandLine:
    """Which command, which options, and what belongs to the program.

    Raises:
        UsageError: an unknown option, or one without its value.
    """
    return argv.split(words, TAKES_VALUE, COMMANDS)


def load(name: str) -> Any:
    """A command beside `run`, as typer builds it."""
    import typer

    return typer.main.get_command(importlib.import_module(COMMANDS[name].module).app)
