"""What the commands of `mnspawn inventory` share: options, the file that they mean, and output."""

import inspect
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mnspawn_inventory import Host, Inventory, InventoryError, Origin, read_inventory

from .render import print_ours, print_out
from .wording.run import message_lines

FileOption = Annotated[
    str | None, typer.Option("--inventory", "-i", metavar="FILE", help="Use this file instead of your own inventory.")
]
HostfileOption = Annotated[
    str | None,
    typer.Option(
        "--hostfile", metavar="FILE", help="Use this file, as --inventory does; a new one becomes a hostfile."
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Read the file in this format; by default it is detected."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


STDIN = "/dev/stdin"


@dataclass(frozen=True, slots=True)
class Source:
    """The inventory that a command is about, as its options name it: a file, or else the user's own."""

    inventory: str | None = None
    hostfile: str | None = None
    format_name: str | None = None
    as_json: bool = False

    @property
    def file(self) -> str | None:
        """The one file that the options name; None for the user's own inventory."""
        if self.inventory is not None and self.hostfile is not None:
            raise InventoryError(
                "--inventory and --hostfile both name a file", place=Origin("--hostfile"), expected="one of them"
            )
        file = self.inventory if self.inventory is not None else self.hostfile
        if file == "":
            option = "--inventory" if self.inventory is not None else "--hostfile"
            raise InventoryError("no file name", place=Origin(option), found="", expected="a file")
        return STDIN if file == "-" else file

    def read(self) -> Inventory:
        """Read the file given, else the user's own inventory, else the allocation."""
        from mnspawn_inventory.allocation import find_allocation
        from mnspawn_inventory.resolve import read_own, user_file

        if self.file is not None:
            return read_inventory(self.file, self.format_name)
        found = read_own(os.environ, ".") or find_allocation(os.environ)
        if found is None:
            raise InventoryError(
                "there is no inventory",
                place=Origin(str(user_file(os.environ))),
                hint="create one with mnspawn inventory add HOST, or copy one with mnspawn inventory import FILE",
            )
        return found

    def target(self, targets: tuple[str, ...] = ()) -> Path:
        """The file that an edit of these hosts and groups goes to."""
        from mnspawn_inventory.target import own_target

        if self.file == STDIN:
            raise InventoryError("stdin is read, not edited", place=Origin("--inventory"), found="-", expected="a file")
        return Path(self.file).expanduser() if self.file is not None else own_target(os.environ, ".", targets)

    def change(self, path: Path, work: Callable[[Any], list[str]], *, create: bool = False) -> list[str]:
        """Let `work` edit the file; one that --hostfile makes is a hostfile, if its name says nothing else."""
        from mnspawn_inventory.target import change

        is_new_hostfile = self.hostfile is not None and not path.exists() and not path.suffix
        format_name = self.format_name or ("hostfile" if is_new_hostfile else None)
        return change(path, work, format_name=format_name, create=create)


def takes_file(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the options that name a file and --json; it gets them as `source`."""

    def call(inventory: Any, hostfile: Any, format_name: Any, as_json: Any, **arguments: Any) -> int | None:
        return command(source=Source(inventory, hostfile, format_name, as_json), **arguments)

    options = {"inventory": FileOption, "hostfile": HostfileOption, "format_name": FormatOption, "as_json": JsonOption}
    own = [one for one in inspect.signature(command).parameters.values() if one.name != "source"]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "as_json" else None, annotation=kind
        )
        for name, kind in options.items()
    ]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    call.__signature__ = inspect.Signature([*keywords, *added])  # type: ignore[attr-defined]
    call.__doc__, call.__name__ = command.__doc__, command.__name__
    return call


def print_json(document: dict[str, Any]) -> None:
    """Print a document on stdout."""
    print_out((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


def print_notes(notes: tuple[str, ...]) -> None:
    """Print notes on stderr."""
    for note in notes:
        print_ours(message_lines(note))


def print_problems(hosts: Iterable[Host]) -> None:
    """Print why hosts can't be used, and which of their secrets others can read."""
    from mnspawn_inventory.exposed import notes_of
    from mnspawn_inventory.notes import HostNotes

    problems = HostNotes()
    hosts = tuple(hosts)
    print_notes(notes_of(hosts))
    for host in hosts:
        if host.problem is not None:
            problems.add(host.name, None, f"can't be used: {host.problem}")
    print_notes(problems.lines())


def report(what: str, names: list[str], path: Path, as_json: bool) -> None:
    """Print what was done to which hosts and groups of a file."""
    from mnspawn_inventory import fold as fold_names

    if as_json:
        print_json({"path": str(path), what: names})
        return
    groups_too = [name for name in names if name.startswith("@")]
    folded = ",".join(
        [*([fold_names(set(names) - set(groups_too))] if set(names) - set(groups_too) else []), *groups_too]
    )
    print_out(f"{path}: {what} {folded}".rstrip() + "\n")
