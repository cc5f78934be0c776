"""Shell completion as typer gives it, for a tree whose default command is `run`. Imported only when a shell asks."""

from collections.abc import Sequence
from typing import Any

import typer

from mnspawn.errors import UsageError

from . import table


class Tree(typer.core.TyperGroup):
    """All commands, each imported when something is asked of it; options before any name are those of `run`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["run", *table.COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == "run":
            from .options import build

            return build()
        return table.load(cmd_name) if cmd_name in table.COMMANDS else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and args:
            try:
                line = table.take_apart(args)
            except UsageError:  # the line is being typed: whatever is wrong with it is told when it is run
                return super().parse_args(ctx, ["run"])
            args = [line.command, *line.options, *(["--", *line.words] if line.command == "run" else line.words)]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        found = super().shell_complete(ctx, incomplete)
        run = self.get_command(ctx, "run")
        with run.make_context("run", [], parent=ctx, resilient_parsing=True) as inner:
            return [*found, *run.shell_complete(inner, incomplete)]


def answer(words: Sequence[str]) -> int:
    """Complete a line, or install and show what makes shells ask."""
    application = typer.Typer(cls=Tree, add_completion=True, help="Start one distributed program on many SSH hosts.")
    application.callback()(lambda: None)
    command = typer.main.get_command(application)
    status = command.main(args=list(words), prog_name=table.PROGRAM, standalone_mode=False)
    return status if isinstance(status, int) else 0
