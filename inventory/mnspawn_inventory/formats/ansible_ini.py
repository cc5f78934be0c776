"""Reads Ansible's INI inventories: `[group]`, `[group:vars]`, `[group:children]`, host lines with variables."""

import ast
import re
import shlex
import warnings

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats.ansible import ALL, UNGROUPED, AnsibleSource, Variables
from mnspawn_inventory.formats.ansible_range import expand_pattern
from mnspawn_inventory.text import Line, Text

SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
NAME = re.compile(r"([^:#\s\[\]]+)\s*(?:#.*)?")
MAX_LINE = 65536  # shlex takes quadratic time for long words
MAX_LITERAL = 4096  # longer values are always text, without asking Python's parser


def read(text: Text, source: AnsibleSource) -> None:
    """Read an INI inventory as Ansible's own parser does."""
    group, kind = UNGROUPED, "hosts"
    waiting: dict[str, Origin] = {}
    declared = {ALL, UNGROUPED}
    for line in text.lines():
        content = line.text.strip()
        if not content or content[0] in "#;":
            continue
        place = line.place(len(line.text) - len(line.text.lstrip()))
        if len(content) > MAX_LINE:
            expected = f"at most {MAX_LINE} characters"
            raise InventoryError("the line is too long", place=place, found=content, expected=expected)
        if content.startswith("["):
            section = SECTION.fullmatch(content)
            if section or content.endswith("]"):
                group, kind = _section(content, section, place)
                source.group(group, place.moved(1))
                if kind == "vars" and group not in declared:
                    waiting.setdefault(group, place.moved(1))
                elif kind != "vars":
                    declared.add(group)
                continue
        if kind == "hosts":
            _read_hosts(line, place, source, group)
        elif kind == "vars":
            name, variable = _variable(content, place)
            source.group(group, None).variables[name] = variable
        else:
            child = NAME.fullmatch(content)
            if not child:
                raise InventoryError("not a group name", place=place, found=content, expected="one group a line")
            source.group(group, None).children[names.check_group(child[1], place)] = place
    for name, where in waiting.items():
        if name not in declared:
            raise InventoryError("variables for a group that does not exist", place=where, found=name)


def _section(content: str, section: "re.Match[str] | None", place: Origin) -> tuple[str, str]:
    if not section:
        raise InventoryError(
            "not a section",
            place=place,
            found=content,
            expected="[group], [group:vars] or [group:children], without blanks",
        )
    kind = section[2] or "hosts"
    if kind not in ("hosts", "vars", "children"):
        raise InventoryError(
            "unknown kind of section",
            place=place.moved(len(section[1]) + 2),
            found=kind,
            expected="hosts, vars or children",
        )
    return section[1], kind


def _read_hosts(line: Line, place: Origin, source: AnsibleSource, group: str) -> None:
    try:
        words = shlex.split(line.text, comments=True)
    except ValueError as exc:
        raise InventoryError(
            "quotes don't match", place=place, found=line.text.strip(), expected=str(exc).lower()
        ) from None
    if not words:
        return
    variables: Variables = {}
    position = 0
    for word in words[1:]:
        key, equals, raw = word.partition("=")
        found = line.text.find(key + equals if equals else word, position or len(words[0]))
        position = max(found, position)
        here = line.place(position)
        if not equals or not key:
            raise InventoryError("not a variable", place=here, found=word, expected="name=value")
        variables[key] = (parse_value(raw), here.moved(len(key) + 1))
    hosts, port = expand_pattern(words[0], place)
    for host in hosts:
        own = source.host(host, place)
        if port is not None:
            own["ansible_port"] = (port, place)
        own.update(variables)
        source.group(group, place).hosts[host] = None


def _variable(content: str, place: Origin) -> tuple[str, tuple[object, Origin]]:
    key, equals, raw = content.partition("=")
    if not equals or not key.strip():
        raise InventoryError("not a variable", place=place, found=content, expected="name=value")
    blanks = len(raw) - len(raw.lstrip())
    return key.strip(), (parse_value(raw.strip()), place.moved(len(key) + 1 + blanks))


def parse_value(text: str) -> object:
    """A value as Ansible reads it: a Python literal if possible, else text."""
    if len(text) > MAX_LITERAL or not text:
        return text
    if text.isascii() and text.replace("_", "a").isalpha():
        return {"True": True, "False": False, "None": None}.get(text, text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # not a literal, or too deep to be meant as one
        return text
    if isinstance(value, tuple | set):
        value = list(value)
    return value if isinstance(value, str | int | float | bool | list | dict) or value is None else text
