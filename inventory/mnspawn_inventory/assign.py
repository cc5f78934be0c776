"""`KEY=VALUE` words of a command line as settings of a host. Pure."""

from collections.abc import Iterable

from mnspawn_inventory import fields, names
from mnspawn_inventory.draft import unknown_key
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import own
from mnspawn_inventory.secret_names import is_secret
from mnspawn_inventory.toml_text import RANGED

SOURCES = ("env", "file")  # of secrets


def parse_settings(words: Iterable[str]) -> dict[str, object]:
    """Read `slots=8`, `env.NCCL_DEBUG=INFO`, `labels.rack=r1`, `env.HF_TOKEN.env=HF_TOKEN`; `slots=` removes a value.

    Returns:
        Values by field, `env.NAME` or `labels.NAME`; None to remove a value.

    Raises:
        InventoryError: a word is not a setting, or its field does not accept the value.
    """
    settings: dict[str, object] = {}
    for word in words:
        key, equals, raw = word.partition("=")
        place = Origin(key) if key and equals else None
        if place is None:
            raise InventoryError("not a setting", found=word, expected="KEY=VALUE")
        name, value = _setting(key, raw, place)
        settings[name] = value
    return settings


def _setting(key: str, raw: str, place: Origin) -> tuple[str, object]:
    top, dot, inner = key.partition(".")
    if top == "env" and dot:
        return _variable(inner, raw, place)
    if top == "labels" and dot:
        if not names.GROUP_NAME.fullmatch(inner):
            raise InventoryError(
                "not a label's name", place=place, found=inner, expected="letters, digits, '.', '-' and '_'"
            )
        return key, raw or None
    if key not in fields.FIELDS:
        raise unknown_key(key, [*fields.FIELDS, "env.NAME", "labels.NAME"], place)
    if not raw:
        return key, None
    if key in RANGED and own.is_plural(raw):
        own.expand(raw, place)
        return key, raw
    value = fields.FIELDS[key](raw, place)
    return key, list(value) if isinstance(value, tuple) else value


def _variable(inner: str, raw: str, place: Origin) -> tuple[str, object]:
    name, _, source = inner.partition(".")
    if not names.VARIABLE_NAME.fullmatch(name) or (source and source not in SOURCES):
        raise InventoryError(
            "not a variable's name", place=place, found=inner, expected="env.NAME, env.NAME.env or env.NAME.file"
        )
    if not raw:
        return f"env.{name}", None
    if source == "env" and not names.VARIABLE_NAME.fullmatch(raw):
        raise InventoryError("not a variable's name", place=place, found=raw, expected="such as HF_TOKEN")
    if source:
        return f"env.{name}", {source: raw}
    if is_secret(name, raw):
        raise InventoryError(
            "secrets are referred to, not written down",
            place=place,
            expected=f"env.{name}.env=VARIABLE or env.{name}.file=PATH",
        )
    return f"env.{name}", raw
