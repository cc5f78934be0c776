"""What the commands of `mnspawn inventory` share: their options, and where they read and write."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from mnspawn_inventory import Host, Inventory, InventoryError, Origin, read_inventory

from .render import print_ours, print_out
from .wording.run import told

FileOption = Annotated[
    str | None, typer.Option("--inventory", "-i", metavar="FILE", help="This file instead of your own inventory.")
]
HostfileOption = Annotated[str | None, typer.Option("--hostfile", metavar="FILE", help="The same, for a hostfile.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="Read the file as this format, whatever it looks like.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


STDIN = "/dev/stdin"


def file_of(inventory: str | None, hostfile: str | None) -> str | None:
    """The one file that the options name; None for the user's own inventory."""
    if inventory is not None and hostfile is not None:
        raise InventoryError(
            "--inventory and --hostfile both name a file", place=Origin("--hostfile"), expected="one of them"
        )
    file = inventory if inventory is not None else hostfile
    if file == "":
        option = "--inventory" if inventory is not None else "--hostfile"
        raise InventoryError("no file name", place=Origin(option), found="", expected="a file")
    return STDIN if file == "-" else file


def load(inventory: str | None, hostfile: str | None, format_name: str | None) -> Inventory:
    """The inventory that a command is about: the file given, else the user's own, else the allocation."""
    from mnspawn_inventory.allocation import find_allocation
    from mnspawn_inventory.resolve import read_own, user_file

    file = file_of(inventory, hostfile)
    if file is not None:
        return read_inventory(file, format_name)
    found = read_own(os.environ, ".") or find_allocation(os.environ)
    if found is None:
        raise InventoryError(
            "there is no inventory",
            place=Origin(str(user_file(os.environ))),
            hint="mnspawn inventory add HOST makes one, mnspawn inventory import FILE takes one over",
        )
    return found


def print_json(document: dict[str, Any]) -> None:
    print_out((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


def print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        print_ours(told(note))


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


def target_of(inventory: str | None, hostfile: str | None, targets: tuple[str, ...]) -> Path:
    from mnspawn_inventory.target import own_target

    file = file_of(inventory, hostfile)
    if file == STDIN:
        raise InventoryError("stdin is read, not edited", place=Origin("--inventory"), found="-", expected="a file")
    return Path(file).expanduser() if file is not None else own_target(os.environ, ".", targets)


def change_file(
    path: Path,
    work: Callable[[Any], list[str]],
    hostfile: str | None,
    format_name: str | None,
    *,
    create: bool = False,
) -> list[str]:
    """Let `work` edit the file; one that --hostfile makes is a hostfile, if its name says nothing else."""
    from mnspawn_inventory.target import change

    if format_name is None and hostfile is not None and not path.exists() and not path.suffix:
        format_name = "hostfile"
    return change(path, work, format_name=format_name, create=create)


def report(what: str, names: list[str], path: Path, as_json: bool) -> None:
    from mnspawn_inventory import fold as fold_names

    if as_json:
        print_json({"path": str(path), what: names})
        return
    groups_too = [name for name in names if name.startswith("@")]
    folded = ",".join(
        [*([fold_names(set(names) - set(groups_too))] if set(names) - set(groups_too) else []), *groups_too]
    )
    print_out(f"{path}: {what} {folded}".rstrip() + "\n")
