"""`mnspawn inventory`: shows, checks, converts and edits lists of hosts in every format."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mnspawn.cli.inventory_files import (
    FileOption,
    HostfileOption,
    JsonOption,
    Source,
    print_json,
    print_notes,
    print_problems,
    takes_file,
)
from mnspawn.cli.render import print_ours, print_out
from mnspawn.cli.wording.run import message_lines, visible
from mnspawn_inventory import Host, Inventory, InventoryError, Origin, read_inventory
from mnspawn_inventory.export import export as export_text
from mnspawn_inventory.export import group_json, host_json
from mnspawn_inventory.exposed import notes_of as exposed_notes

from . import inventory_edits

app = typer.Typer(
    name="inventory",
    help="Show, check, convert and edit lists of hosts.",
    no_args_is_help=True,
    add_completion=False,
)

EXPRESSION = "Names, gpu[01-16], @group, a!b, ..."
HostsArgument = Annotated[list[str] | None, typer.Argument(metavar="[HOSTS]...", help=EXPRESSION)]
FilesArgument = Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="By default your own inventory.")]
IncludeOption = Annotated[
    str | None, typer.Option("--include", metavar="HOSTS", help="Keep only these hosts and devices.")
]
ExcludeOption = Annotated[str | None, typer.Option("--exclude", metavar="HOSTS", help="Drop these hosts and devices.")]
LimitOption = Annotated[str | None, typer.Option("--limit", metavar="HOSTS", help="Keep only these hosts.")]


def chosen(found: Inventory, hosts: list[str] | None, **narrowing: str | None) -> tuple[Host, ...]:
    """Return the hosts that arguments and options choose."""
    from mnspawn_inventory import select

    return select.among(found, hosts=",".join(hosts) if hosts else None, places={"hosts": Origin("HOSTS")}, **narrowing)


# -- commands


@app.command("list")
@takes_file
def list_hosts(
    source: Source,
    hosts: HostsArgument = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    limit: LimitOption = None,
    names: Annotated[bool, typer.Option("--names", help="Print only names, one per line.")] = False,
    fold: Annotated[bool, typer.Option("--fold", help="Print only names, as ranges.")] = False,
) -> None:
    """List hosts in their order."""
    from mnspawn_inventory import fold as fold_names

    found = source.read()
    kept = chosen(found, hosts, include=include, exclude=exclude, limit=limit)
    if source.as_json:
        print_json({"hosts": [shown_host(host) for host in kept]})
    elif fold:
        print_out(f"{fold_names(host.name for host in kept)}\n")
    elif names:
        print_out("".join(f"{host.name}\n" for host in kept))
    else:
        print_out(table(kept))
    print_notes(found.notes)
    print_problems(kept)


def shown_host(host: Host) -> dict[str, Any]:
    """Return one host as JSON, with masked secrets."""
    from mnspawn_inventory.secret_names import MASK, is_secret

    document = host_json(host)
    env = document["env"]
    if isinstance(env, dict):
        document["env"] = {
            name: MASK if isinstance(value, str) and is_secret(name, value) else value for name, value in env.items()
        }
    return document


COLUMNS = ("NAME", "ADDRESS", "USER", "PORT", "SLOTS", "GROUPS")


def table(hosts: tuple[Host, ...]) -> str:
    """Return the hosts as columns, with "-" for missing values."""
    rows = [COLUMNS]
    for host in hosts:
        values = (host.name, host.address, host.user, host.port, host.slots, ",".join(host.groups) or None)
        rows.append(tuple("-" if value is None else visible(str(value)) for value in values))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


@app.command()
@takes_file
def show(source: Source, hosts: HostsArgument = None) -> None:
    """Show all values of hosts (by default of all hosts), and where each is written."""
    found = source.read()
    kept = chosen(found, hosts)
    if source.as_json:
        documents = [
            {**shown_host(host), "origins": {field: str(place) for field, place in host.origins}} for host in kept
        ]
        print_json({"hosts": documents})
    else:
        print_out("\n".join(_described(host) for host in kept))
    print_notes(found.notes)
    print_problems(kept)


def _described(host: Host) -> str:
    lines = [(host.name, str(host.origin("name") or ""))]
    for field, value in shown_host(host).items():
        if field in ("name", "groups") or value is None or value == {}:
            continue
        if isinstance(value, dict):
            for name, one in value.items():
                shown = " ".join(f"{source}:{where}" for source, where in one.items()) if isinstance(one, dict) else one
                lines.append((f"  {field}.{name} = {shown}", str(host.origin(f"{field}.{name}") or "")))
            continue
        shown = ",".join(map(str, value)) if isinstance(value, list) else value
        lines.append((f"  {field} = {shown}", str(host.origin(field) or "")))
    if host.groups:
        lines.append((f"  groups = {','.join(host.groups)}", ""))
    shown_lines = [(visible(text), visible(place)) for text, place in lines]
    width = min(max(len(text) for text, _ in shown_lines), 48)
    return "".join(f"{text.ljust(width)}  {place}".rstrip() + "\n" for text, place in shown_lines)


@app.command()
def export(
    hosts: HostsArgument = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            "--format",
            "-f",
            metavar="FORMAT",
            help="toml, hostfile, ansible-yaml, ssh-config or json.",
        ),
    ] = "toml",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    inventory: FileOption = None,
    hostfile: HostfileOption = None,
    from_format: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="Read the file in this format.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the hosts in another format. Notes on stderr name what that format can't hold."""
    from mnspawn_inventory.export import only
    from mnspawn_inventory.store import edit

    found = Source(inventory, hostfile, from_format).read()
    if hosts:
        found = only(found, chosen(found, hosts))
    for host in found.hosts:
        host.check_usable()
    text, notes = export_text(found, "json" if as_json else to)
    if output is None or output == "-":
        print_out(text.encode())
    elif Path(output).exists() and not Path(output).is_file():  # a pipe or device
        _write_to(Path(output), text)
    elif not Path(output).parent.is_dir():
        raise InventoryError("there is no such folder", place=Origin("--output"), found=str(Path(output).parent))
    else:
        edit(Path(output), lambda before: text)
    print_notes((*found.notes, *notes))


def _write_to(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise InventoryError(f"the file can't be written: {reason}", place=Origin(str(path))) from exc


@app.command()
@takes_file
def validate(source: Source, files: FilesArgument = None) -> int:
    """Check inventories: print their formats and sizes, or what is wrong and where. The exit status is then 2."""
    given = [*(files or []), *(file for file in (source.inventory, source.hostfile) if file)]
    results = [_validated(file, partial(read_inventory, file, source.format_name)) for file in given]
    if not given:
        found = Source().read()
        results = [_validated(found.source, lambda: found)]
    if source.as_json:
        print_json({"files": results})
    for result in [] if source.as_json else results:
        if result["error"] is None:
            groups = f", {result['groups']} groups" if result["groups"] else ""
            print_out(f"{result['file']}: {result['format']}, {result['hosts']} hosts{groups}\n")
            print_notes(tuple(result["notes"]))
        else:
            print_ours(message_lines(result["error"]["text"], result["error"]["hint"]))
    return 2 if any(result["error"] for result in results) else 0


def _validated(file: str, read: Callable[[], Inventory]) -> dict[str, Any]:
    try:
        found = read()
        for host in found.hosts:
            host.check_usable()
    except InventoryError as exc:
        place = exc.place
        error = {
            "text": str(exc),
            "file": place.source if place else file,
            "line": place.line or None if place else None,
            "column": place.column or None if place else None,
            "message": exc.message,
            "found": exc.found,
            "expected": exc.expected,
            "hint": exc.hint,
        }
        return {"file": file, "format": None, "hosts": None, "groups": None, "notes": [], "error": error}
    return {
        "file": file,
        "format": found.format,
        "hosts": len(found.hosts),
        "groups": len(found.groups),
        "notes": [*found.notes, *exposed_notes(found.hosts)],
        "error": None,
    }


@app.command()
@takes_file
def groups(source: Source) -> None:
    """List the groups with their hosts."""
    from mnspawn_inventory import fold as fold_names

    found = source.read()
    if source.as_json:
        print_json({"groups": [group_json(group) for group in found.groups]})
    else:
        print_out("".join(f"@{group.name}  {fold_names(group.hosts) or '-'}\n" for group in found.groups))


@app.command()
def path(inventory: FileOption = None, hostfile: HostfileOption = None, as_json: JsonOption = False) -> None:
    """Print the file that edits go to; --json: all files that are read."""
    from mnspawn_inventory.resolve import own_files

    target = Source(inventory, hostfile).target()
    user, project = own_files(os.environ, ".")
    if as_json:
        files = {"user": user, "project": project}
        print_json(
            {
                "path": str(target),
                **{name: {"path": str(file), "exists": file.is_file()} for name, file in files.items()},
            }
        )
    else:
        print_out(f"{target}\n")


for name, command in (
    ("add", inventory_edits.add),
    ("set", inventory_edits.set_fields),
    ("remove", inventory_edits.remove),
    ("import", inventory_edits.import_file),
    ("edit", inventory_edits.edit),
):
    app.command(name)(command)
