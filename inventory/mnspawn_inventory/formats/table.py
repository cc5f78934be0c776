"""Reads the settings of one host or group from a table of our own TOML or JSON. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mnspawn_inventory import fields
from mnspawn_inventory.draft import Draft, Values, unknown_key
from mnspawn_inventory.formats.json_places import JsonPlaces
from mnspawn_inventory.formats.toml_places import TomlPlaces
from mnspawn_inventory.settings import as_secret


def read_settings(
    values: Values,
    table: Mapping[str, object],
    draft: Draft,
    places: TomlPlaces | JsonPlaces,
    path: Sequence[str | int],
    known: Sequence[str],
) -> None:
    """Read fields, `env` and `labels`; null is no value.

    Args:
        path: where the table is in the document.
        known: all keys that it may have; those that begin with "x-" are the user's.

    Raises:
        InventoryError: a key is unknown (for lenient drafts only a note), or its field does not accept the value.
    """
    folder = Path(draft.source).parent.absolute()
    for key, raw in table.items():
        place = places.value(*path, key)
        if raw is None:
            continue
        if key in ("env", "labels"):
            if not isinstance(raw, dict):
                raise fields.wrong("not a table", raw, "names and values", place)
            for name, value in raw.items():
                where = places.value(*path, key, name)
                if key == "env":
                    values.set_env(name, as_secret(value, where, folder), where)
                else:
                    values.set_label(name, value, where)
        elif key in fields.FIELDS:
            values.set(key, raw, place)
        elif key not in known and not key.startswith("x-"):
            error = unknown_key(key, known, places.key(*path, key))
            if not draft.is_lenient:
                raise error
            draft.notes.append(str(error))
