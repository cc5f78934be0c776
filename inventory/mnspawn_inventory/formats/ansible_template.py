"""The part of Jinja that inventories use for addresses and users: `{{ name }}` and `{{ lookup('env', 'X') }}`."""

import os
import re
from dataclasses import dataclass

from mnspawn_inventory.errors import InventoryError, Origin

Var = tuple[object, Origin | None]
Variables = dict[str, Var]

TEMPLATE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\|\s*d(?:efault)?\(\s*(?:'([^']*)'|\"([^\"]*)\"|([0-9]+))\s*\)")
ENV = re.compile(r"(?:lookup|query|q)\(\s*['\"](?:ansible\.builtin\.)?env['\"]\s*,\s*['\"](\w+)['\"]\s*\)")
MAX_DEPTH = 20  # templates in templates; more is a circle


class Literal(str):
    """Text whose braces are not templates (`!unsafe`)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """A tagged value (`!vault`) that only Ansible can read."""

    tag: str


class Unevaluated(InventoryError):
    """A value that only Ansible can evaluate; hosts that need it can't be used."""


def render(name: str, variables: Variables) -> Var:
    """A variable's value with its templates replaced.

    Raises:
        Unevaluated: a template is not supported, or names an unknown variable.
    """
    value, place = variables[name]
    return _render(value, place, variables, 0), place


def _render(value: object, place: Origin | None, variables: Variables, depth: int) -> object:
    if isinstance(value, dict):
        return {key: _render(item, place, variables, depth) for key, item in value.items()}
    if isinstance(value, list):
        return [_render(item, place, variables, depth) for item in value]
    if isinstance(value, Literal):
        return str(value)
    if not isinstance(value, str) or ("{{" not in value and "{%" not in value):
        return value
    whole = TEMPLATE.fullmatch(value.strip())
    if whole and "{{" not in whole[1]:
        return _evaluate(whole[1], value, place, variables, depth)
    rendered = TEMPLATE.sub(lambda match: str(_evaluate(match[1], value, place, variables, depth)), value)
    if "{{" in rendered or "{%" in rendered:
        raise _refused(value, place)
    return rendered


def _evaluate(expression: str, value: str, place: Origin | None, variables: Variables, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise Unevaluated("a template that refers to itself", place=place, found=value)
    if environment := ENV.fullmatch(expression):
        return os.environ.get(environment[1], "")
    if default := DEFAULT.fullmatch(expression):
        if default[1] not in variables:
            return next(part for part in default.groups()[1:] if part is not None)
        expression = default[1]
    if NAME.fullmatch(expression):
        if expression not in variables:
            raise Unevaluated(
                f"a template with the unknown variable {expression}",
                place=place,
                found=value,
                expected="a variable of this host",
            )
        inner, inner_place = variables[expression]
        return _render(inner, inner_place or place, variables, depth + 1)
    raise _refused(value, place)


def _refused(value: str, place: Origin | None) -> Unevaluated:
    return Unevaluated(
        "a template that only Ansible can evaluate",
        place=place,
        found=value,
        expected="text, {{ variable }} or {{ lookup('env', 'NAME') }}",
        hint="write the value itself; ansible-inventory does not evaluate templates either",
    )
