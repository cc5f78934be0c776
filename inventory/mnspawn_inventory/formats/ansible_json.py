"""JSON of Ansible's dynamic inventories (`--list`), from a script or a file, and our own JSON export."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from mnspawn_inventory import fields, names
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import AnsibleSource, Variables
from mnspawn_inventory.model import SecretRef
from mnspawn_inventory.text import Text, decode

SCRIPT_TIMEOUT = 60.0  # seconds; cloud APIs are slow, but a script that hangs must not hang us


def load(text: Text) -> dict[str, object]:
    """Parse JSON with an object at its top."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        for key in keys if len(set(keys)) < len(keys) else ():
            if keys.count(key) > 1:
                raise InventoryError(
                    "a key is there twice", place=Origin(text.source), found=key, expected="each key once"
                )
        return dict(pairs)

    try:
        document = json.loads(text.content, object_pairs_hook=once)
    except json.JSONDecodeError as exc:
        lines = text.content.split("\n")
        written = lines[exc.lineno - 1].strip() if exc.lineno <= len(lines) else ""
        raise InventoryError(
            f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]}",
            place=Origin(text.source, exc.lineno, exc.colno),
            found=written,
        ) from None
    except (RecursionError, ValueError) as exc:  # nested or long beyond all use
        raise InventoryError(f"not valid JSON: {exc}".splitlines()[0], place=Origin(text.source)) from None
    if not isinstance(document, dict):
        raise fields.wrong("not an inventory", type(document).__name__, "a JSON object", Origin(text.source, 1, 1))
    return document


def read_groups(
    document: dict[str, object], source: AnsibleSource, origin: str, ask: Callable[[str], Variables] | None = None
) -> None:
    """Read what `--list` prints: groups, and the hosts' variables under `_meta`.

    Args:
        ask: gives a host's variables where there is no `_meta` (an old script's `--host NAME`).
    """
    place = Origin(origin)
    meta: object = None
    for name, content in document.items():
        if name == "_meta":
            meta = _object(content, "_meta", place).get("hostvars", {})
            continue
        _group(source, name, content, place)
    if meta is not None:
        for host, raw in _object(meta, "_meta.hostvars", place).items():
            if host in source.hosts:
                source.hosts[host].update(_variables(raw, f"_meta.hostvars.{host}", place))
    elif ask is not None:
        for host in source.hosts:
            source.hosts[host].update(ask(host))


def _group(source: AnsibleSource, name: str, content: object, place: Origin) -> None:
    group = source.group(name, place)
    if isinstance(content, list):
        content = {"hosts": content}
    table = _object(content, name, place)
    if not table.keys() & {"hosts", "vars", "children"} and table:
        table = {"hosts": [name], "vars": table}
    for host in _list(table.get("hosts", []), f"{name}.hosts", place):
        source.host(host, place)
        group.hosts[host] = None
    group.variables.update(_variables(table.get("vars", {}), f"{name}.vars", place))
    for child in _list(table.get("children", []), f"{name}.children", place):
        source.group(child, place)
        group.children[child] = place


def _object(raw: object, what: str, place: Origin) -> dict[str, object]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise fields.wrong(f"{what} is not an object", raw, "an object", place)
    return raw


def _list(raw: object, what: str, place: Origin) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        raise fields.wrong(f"{what} is not a list of names", raw, "a list of text", place)
    return raw


def _variables(raw: object, what: str, place: Origin) -> Variables:
    return {key: (value, place) for key, value in _object(raw, what, place).items()}


def run_script(path: Path, source: AnsibleSource) -> None:
    """Run an executable inventory with `--list` and read what it prints."""
    shown = str(path) if source.source.endswith("/") else source.source
    document = load(_output(path, shown, ["--list"]))

    def ask(host: str) -> Variables:
        answer = _output(path, shown, ["--host", host])
        return _variables(load(answer) if answer.content.strip() else {}, f"--host {host}", Origin(shown))

    read_groups(document, source, shown, ask)


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
        said = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InventoryError(
            f"the script ended with status {ran.returncode}",
            place=place,
            found=said[-1] if said else None,
            expected="status 0",
        )
    return decode(ran.stdout, f"{shown} {arguments[0]}")


def read_own(document: dict[str, object], draft: Draft) -> None:
    """Read our own export: `{"hosts": [{"name": ...}], "groups": [...]}`."""
    place = Origin(draft.source)
    for item in _items(document["hosts"], "hosts", place):
        _own_host(_object(item, "a host", place), draft, place)
    for item in _items(document.get("groups"), "groups", place):
        table = _object(item, "a group", place)
        name = table.get("name")
        if not isinstance(name, str):
            raise fields.wrong("a group without its name", name, '"name": text', place)
        group = draft.group(name, place)
        for child in _list(table.get("children") or [], f"{name}.children", place):
            draft.group(child, place)
            group.children[child] = place


def _items(raw: object, what: str, place: Origin) -> list[object]:
    if raw is not None and not isinstance(raw, list):
        raise fields.wrong(f"{what} is not a list", raw, "a list of objects", place)
    return raw or []


def _own_host(table: dict[str, object], draft: Draft, place: Origin) -> None:
    name = table.get("name")
    if not isinstance(name, str):
        raise fields.wrong("a host without its name", name, '"name": text', place)
    name = names.check_host(name, place)
    if draft.has_host(name):
        raise InventoryError("a host is named twice", place=place, found=name, expected="each host once")
    values = draft.host(name, place)
    for key, raw in table.items():
        if raw is None or key in ("name", "origins"):
            continue
        if key == "groups":
            for group in _list(raw, f"{name}.groups", place):
                draft.group(group, place).hosts[name] = None
        elif key == "labels":
            for label, value in _object(raw, f"{name}.labels", place).items():
                values.set_label(label, value, place)
        elif key == "env":
            for variable, value in _object(raw, f"{name}.env", place).items():
                values.set_env(variable, _reference(value), place)
        else:
            values.set(key, raw, place)


def _reference(value: object) -> object:
    if isinstance(value, dict) and set(value) == {"env"}:
        return SecretRef(variable=str(value["env"]))
    if isinstance(value, dict) and set(value) == {"file"}:
        return SecretRef(file=str(value["file"]))
    return value
