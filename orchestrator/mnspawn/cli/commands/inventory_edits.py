"""The commands of `mnspawn inventory` that change a file: add, set, remove, import, edit."""

from typing import Annotated, Any

import typer

from mnspawn.cli.inventory_files import (
    FileOption,
    FormatOption,
    HostfileOption,
    JsonOption,
    Source,
    print_notes,
    report,
    takes_file,
)
from mnspawn_inventory import InventoryError, Origin, read_inventory

SETTINGS = (
    "KEY=VALUE: address, data_address, network, user, port, identity, jump, proxy_command, transport, slots, "
    "max_slots, devices, python, workdir, prelude, env.NAME, labels.NAME; env.NAME.env=VARIABLE or "
    "env.NAME.file=PATH for a secret; KEY= removes a value."
)
WordsArgument = Annotated[list[str], typer.Argument(metavar="HOSTS... [KEY=VALUE]...", help=SETTINGS)]
AddressOption = Annotated[str | None, typer.Option("--address", metavar="ADDRESS", help="Set address=ADDRESS.")]
UserOption = Annotated[str | None, typer.Option("--user", metavar="USER", help="Set user=USER.")]
PortOption = Annotated[str | None, typer.Option("--port", metavar="PORT", help="Set port=PORT.")]
SlotsOption = Annotated[str | None, typer.Option("--slots", metavar="N", help="Set slots=N.")]


@takes_file
def add(
    source: Source,
    words: WordsArgument,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="Add the hosts to this group.")
    ] = None,
    address: AddressOption = None,
    user: UserOption = None,
    port: PortOption = None,
    slots: SlotsOption = None,
) -> None:
    """Add hosts: names or ranges, with their settings."""
    settings_too = {"address": address, "user": user, "port": port, "slots": slots}
    targets, settings = _taken_apart(words, settings_too)
    path = source.target()
    added = source.change(path, lambda document: document.add(targets, settings, group or ()), create=True)
    report("added", added, path, source.as_json)


@takes_file
def set_fields(
    source: Source,
    words: WordsArgument,
    address: AddressOption = None,
    user: UserOption = None,
    port: PortOption = None,
    slots: SlotsOption = None,
) -> None:
    """Set fields of hosts, ranges and @groups; KEY= removes a value."""
    targets, settings = _taken_apart(words, {"address": address, "user": user, "port": port, "slots": slots})
    if not settings:
        raise InventoryError("nothing to set", expected="KEY=VALUE")
    path = source.target(targets)
    done = source.change(path, lambda document: document.set(targets, settings))
    report("set", done, path, source.as_json)


@takes_file
def remove(
    source: Source,
    targets: Annotated[list[str], typer.Argument(metavar="HOSTS...", help="Names, ranges and @groups.")],
) -> None:
    """Remove hosts from everywhere, or a @group (its hosts stay)."""
    parts = _parts(targets)
    path = source.target(parts)
    done = source.change(path, lambda document: document.remove(parts))
    report("removed", done, path, source.as_json)


def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An inventory of any format, or - for stdin.")],
    format_name: FormatOption = None,
    update: Annotated[bool, typer.Option("--update", help="Also change existing hosts.")] = False,
    inventory: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the hosts and groups of a file into your own inventory."""
    from mnspawn_inventory.editors.toml import TomlDocument, conflicts
    from mnspawn_inventory.toml_text import runs

    found = read_inventory("/dev/stdin" if file == "-" else file, format_name)
    for host in found.hosts:
        host.check_usable()
    own = Source(inventory)
    path = own.target()

    def work(document: Any) -> list[str]:
        if not isinstance(document, TomlDocument):
            raise InventoryError(
                "hosts are imported into TOML inventories", place=Origin(str(path)), expected="a TOML file"
            )
        if not update and (differing := conflicts(document.inventory, found)):
            name, field = differing[0]
            raise InventoryError(
                f"{name} already exists with another {field}"
                + (f", and {len(differing) - 1} more" if differing[1:] else ""),
                place=Origin(str(path)),
                hint="--update replaces its values with those of the file",
            )
        document.merge(runs(found.hosts), found)
        return [host.name for host in found.hosts]

    report("imported", own.change(path, work, create=True), path, as_json)
    print_notes(found.notes)


def edit(inventory: FileOption = None, hostfile: HostfileOption = None, as_json: JsonOption = False) -> None:
    """Open the inventory in $VISUAL or $EDITOR, and save it if it is valid."""
    from mnspawn.cli.editor import edit_by_hand

    path = Source(inventory, hostfile).target()
    changed = edit_by_hand(path)
    report("edited" if changed else "unchanged", [], path, as_json)


def _taken_apart(words: list[str], options: dict[str, str | None]) -> tuple[tuple[str, ...], dict[str, object]]:
    """Divide the words of a command into hosts and settings."""
    from mnspawn_inventory.assign import parse_settings

    settings = [word for word in words if "=" in word]
    settings += [f"{key}={value}" for key, value in options.items() if value is not None]
    targets = _parts([word for word in words if "=" not in word])
    if not targets:
        raise InventoryError("no hosts", expected="names or ranges before KEY=VALUE")
    return targets, parse_settings(settings)


def _parts(words: list[str]) -> tuple[str, ...]:
    """Return the names, ranges and @groups in words; a word may have several, separated by commas."""
    from mnspawn_inventory.expression import parts

    return tuple(part for word in words for part in parts(word, Origin("HOSTS")))
