"""Reads the JSON of Ansible's dynamic inventories (`--list`), from a program or a file."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mnspawn_inventory import fields
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import AnsibleSource, Variables
from mnspawn_inventory.formats.json_places import JsonPlaces
from mnspawn_inventory.text import Text, decode

HOST_VARIABLES = ("ansible_", "mnspawn_")  # JSON of other programs may have objects in objects, too
SCRIPT_TIMEOUT = 60.0  # seconds; cloud APIs are slow, but a program may also hang


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object, and where its keys and values are written."""

    root: dict[str, object]
    places: JsonPlaces


def load(text: Text) -> Json:
    """Parse JSON with an object at its top.

    Raises:
        InventoryError: it is not; with the place.
    """
    try:
        document = json.loads(text.content)
    except json.JSONDecodeError as exc:
        lines = text.content.split("\n")
        written = lines[exc.lineno - 1].strip() if exc.lineno <= len(lines) else ""
        raise InventoryError(
            f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]}",
            place=Origin(text.source, exc.lineno, exc.colno),
            found=written,
        ) from None
    except (RecursionError, ValueError) as exc:  # nested too deeply, or a number that is too long
        raise InventoryError(f"not valid JSON: {exc}".splitlines()[0], place=Origin(text.source)) from None
    places = JsonPlaces(text.content, text.source)
    if not isinstance(document, dict):
        raise fields.wrong("not an inventory", type(document).__name__, "a JSON object", places.value())
    return Json(document, places)


def read_groups(
    document: Json,
    source: AnsibleSource,
    ask: Callable[[str], Variables] | None = None,
    *,
    is_certain: bool = True,
) -> None:
    """Read what `--list` prints: groups, and the hosts' variables under `_meta`.

    Args:
        ask: returns a host's variables, for old programs without `_meta` (`--host NAME`).
        is_certain: False if it may be the JSON of any other program.
    """
    meta: object = None
    for name, content in document.root.items():
        if name == "_meta":
            meta = as_object(content, document, name).get("hostvars", {})
            continue
        _group(source, name, content, document, is_certain)
    if meta is not None:
        for host, raw in as_object(meta, document, "_meta", "hostvars").items():
            if host in source.hosts:
                source.hosts[host].update(_variables(raw, document, "_meta", "hostvars", host))
    elif ask is not None:
        for host in source.hosts:
            source.hosts[host].update(ask(host))


def _group(source: AnsibleSource, name: str, content: object, document: Json, is_certain: bool) -> None:
    places = document.places
    group = source.group(name, places.key(name))
    if isinstance(content, list):
        for index, host in enumerate(as_names(content, document, name)):
            source.host(host, places.value(name, index))
            group.hosts[host] = None
        return
    table = as_object(content, document, name)
    if not table.keys() & {"hosts", "vars", "children"} and table:  # the variables of a host of this name
        if not is_certain and not any(key.startswith(HOST_VARIABLES) for key in table):
            raise InventoryError(
                "neither a group nor the variables of a host",
                place=places.key(name),
                found=f"{name} with {', '.join(table)}",
                expected="hosts, children or vars, or variables such as ansible_host",
            )
        source.host(name, places.key(name))
        group.hosts[name] = None
        group.variables.update(_variables(table, document, name))
        return
    for index, host in enumerate(as_names(table.get("hosts", []), document, name, "hosts")):
        source.host(host, places.value(name, "hosts", index))
        group.hosts[host] = None
    group.variables.update(_variables(table.get("vars", {}), document, name, "vars"))
    for index, child in enumerate(as_names(table.get("children", []), document, name, "children")):
        place = places.value(name, "children", index)
        source.group(child, place)
        group.children[child] = place


def as_object(raw: object, document: Json, *path: str | int) -> dict[str, object]:
    """The object at a path; empty for null. Raises InventoryError for anything else."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise fields.wrong(f"{_named(path)} is not an object", raw, "an object", document.places.value(*path))
    return raw


def as_names(raw: object, document: Json, *path: str | int) -> list[str]:
    """The list of names at a path. Raises InventoryError for anything else."""
    if not isinstance(raw, list):
        raise fields.wrong(f"{_named(path)} is not a list of names", raw, "a list", document.places.value(*path))
    for index, item in enumerate(raw):
        if not isinstance(item, str):
            raise fields.wrong(f"not a name in {_named(path)}", item, "text", document.places.value(*path, index))
    return raw


def _named(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _variables(raw: object, document: Json, *path: str | int) -> Variables:
    return {key: (value, document.places.value(*path, key)) for key, value in as_object(raw, document, *path).items()}


def run_script(path: Path, source: AnsibleSource) -> None:
    """Run an executable inventory with `--list` and read what it prints."""
    shown = str(path) if source.source.endswith("/") else source.source
    document = load(_output(path, shown, ["--list"]))

    def ask(host: str) -> Variables:
        answer = _output(path, shown, ["--host", host])
        if not answer.content.strip():
            return {}
        document = load(answer)
        return _variables(document.root, document)

    read_groups(document, source, ask)


def _output(path: Path, shown: str, arguments: list[str]) -> Text:
    place = Origin(shown)
    argv = [os.path.abspath(path), *arguments]
    try:
        ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SCRIPT_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise InventoryError(f"the script did not end within {SCRIPT_TIMEOUT:g} s", place=place) from None
    except OSError as exc:
        raise InventoryError(f"the script can't be run: {(exc.strerror or str(exc)).lower()}", place=place) from exc
    if ran.returncode:
        errors = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InventoryError(
            f"the script ended with status {ran.returncode}",
            place=place,
            found=errors[-1] if errors else None,
            expected="status 0",
        )
    return decode(ran.stdout, f"{shown} {' '.join(arguments)}")
