"""How a command line reaches a command. Imports only the command that is called."""

import os
from collections import ChainMap
from collections.abc import Sequence
from typing import Any

from mnspawn.errors import UsageError
from mnspawn.settings.table import resolve

from . import argv as command_line
from .table import COMPLETION, OF_FLAG, PROGRAM, TAKES_VALUE, load, take_apart


def start(words: Sequence[str]) -> int:
    """Run a command line.

    Raises:
        UsageError: it can't be understood; and whatever the command raises.
    """
    if COMPLETION in os.environ or words[:1] in (["--install-completion"], ["--show-completion"]):
        from .completion import answer

        return answer(words)
    line = take_apart(words)
    if "--version" in line.options:
        from mnspawn._version import __version__

        from .render import print_out

        print_out(f"mnspawn {__version__}\n")
        return 0
    if line.command != "run":
        command = load(line.command)
        return call(command, f"{PROGRAM} {line.command}", arrange(command, line.options, line.words))
    if not {"--help", "-h"}.isdisjoint(line.options):
        from .options import build

        return call(build(), f"{PROGRAM} [run]", ["--help"])
    from .commands.run import perform

    return perform(resolve(command_line.read(line.options, OF_FLAG), os.environ), line.words)


def call(command: Any, name: str, words: Sequence[str]) -> int:
    """Let typer read a command's own words and call it.

    Raises:
        UsageError: typer didn't understand the words; and whatever the command raises.
    """
    import typer

    try:
        status = command.main(args=list(words), prog_name=name, standalone_mode=False)
    except typer.TyperException as exc:
        if not exc.format_message():  # no arguments: it has printed the help
            return exc.exit_code
        context = getattr(exc, "ctx", None)
        hint = f"{context.command_path if context else name} --help".replace("[run] ", "")
        raise UsageError(_plain(exc.format_message()), hint=hint) from exc
    except typer.Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def arrange(command: Any, options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Bring options that stand before or between the names of a command and its subcommands behind the last name.

    Raises:
        UsageError: an option that no table knows.
    """
    path: list[str] = []
    held = list(options)
    position = 0
    while hasattr(command, "commands") and position < len(words):
        word = words[position]
        if command_line.is_option(word):
            own = options_of(command)
            below = [options_of(sub) for sub in command.commands.values()]
            known = dict(ChainMap(own, *below, dict(TAKES_VALUE)))
            taken, count = command_line.take_option(words, position, known)
            (path if taken[0].partition("=")[0] in own else held).extend(taken)
            position += count
        elif word in command.commands:
            path.append(word)
            command = command.commands[word]
            position += 1
        else:
            break
    return [*path, *held, *words[position:]]


def options_of(command: Any) -> dict[str, bool]:
    """A command's own options, and whether a value follows them."""
    return {
        flag: not (parameter.is_flag or parameter.count)
        for parameter in command.params
        if parameter.param_type_name == "option"
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
