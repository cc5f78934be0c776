"""Hostfiles: plain lists, `h slots=N` (Open MPI, DeepSpeed, Horovod), `h:N` (Horovod, MPICH), in dialects."""

from dataclasses import dataclass

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.draft import Draft, unknown_key
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.expression import port_of
from mnspawn_inventory.text import Line, Text, Word


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one tool reads its hostfiles.

    Attributes:
        keys: what may stand before "=", and the field that it sets ("" where we have no use for it).
        repeats_add: a host named again has more slots; else naming it again is an error.
    """

    keys: dict[str, str]
    repeats_add: bool = False


_MPI_KEYS = {
    "slots": "slots",
    "max_slots": "",
    "max-slots": "",
    "slots_max": "",
    "slots-max": "",
    "count": "slots",
    "cpu": "slots",
}
_OWN_KEYS = {field: field for field in fields.FIELDS if field != "prelude"}

DIALECTS = {
    "hostfile": Dialect({**_MPI_KEYS, **_OWN_KEYS, "username": "user", "ifname": "network"}),
    "openmpi": Dialect({**_MPI_KEYS, "username": "user"}, repeats_add=True),
    "deepspeed": Dialect({"slots": "slots"}),
    "horovod": Dialect({"slots": "slots"}),
    "mpich": Dialect({"ifname": "network", "binding": "", "map": "", "user": "user"}, repeats_add=True),
}


def read(text: Text, draft: Draft, dialect: str = "hostfile") -> None:
    """Read a hostfile into the draft."""
    rules = DIALECTS[dialect]
    counted: dict[str, int] = {}
    for line in text.lines():
        words = line.without_comment().words()
        if words:
            _read_host(words, draft, rules, counted)
    if rules.repeats_add:
        for name, times in counted.items():
            if times > 1:
                values = draft.host(name, None)
                given = values.get("slots")
                values.set("slots", given if isinstance(given, int) else times, draft.place_of(name))


def _read_host(words: list[Word], draft: Draft, rules: Dialect, counted: dict[str, int]) -> None:
    settings = [_setting(word, rules) for word in words[1:]]
    fields_said = [field for field, _, _ in settings]
    user, found_names, port, slots = _host(words[0], "slots" in fields_said)
    for name in found_names:
        is_new = not draft.has_host(name)
        if not is_new and not rules.repeats_add:
            first = draft.place_of(name)
            raise InventoryError(
                f"the host was named before, in line {first.line if first else '?'}",
                place=words[0].place,
                found=name,
                expected="each host once",
            )
        values = draft.host(name, words[0].place)
        counted[name] = counted.get(name, 0) + 1
        if user is not None:
            values.set("user", user, words[0].place)
        if port is not None:
            values.set("port", port, words[0].place)
        more = [] if slots is None else [("slots", slots, words[0].place)]
        for field, raw, place in [*more, *settings]:
            if field == "slots" and not is_new:
                before = values.get("slots")
                raw = str(fields.slots(raw, place) + (before if isinstance(before, int) else counted[name] - 1))
            if field:
                values.set(field, raw, place)


def _host(word: Word, has_slots: bool) -> tuple[str | None, list[str], int | None, str | None]:
    """User, names, port and slots of the first word."""
    if word.text[:6].lower() == "ssh://":
        endpoint = names.parse_endpoint(word.text, word.place)
        return endpoint.user, [endpoint.host], endpoint.port, None
    user, at, address = word.text.rpartition("@")
    if at:
        names.check_user(user, word.place)
    here = word.place.moved(len(user) + len(at))
    pattern, number = names.split_port(address)
    number_place = here.moved(len(pattern) + 1)
    if nodeset.has_range(pattern):
        found = [names.check_host(name, here) for name in nodeset.expand(pattern, here)]
    else:
        found = [names.check_host(pattern, here)]
    port, slots = None, None
    if number is not None:
        port = (
            names.check_port(number, number_place)
            if has_slots
            else port_of(number, bool(at) or pattern.startswith("["))
        )
        if port is None:
            fields.slots(number, number_place)
            slots = number
    return user if at else None, found, port, slots


def _setting(word: Word, rules: Dialect) -> tuple[str, str, Origin]:
    key, equals, raw = word.text.partition("=")
    if not equals or not key or not raw:
        hint = "write key=value without blanks around '='" if word.text in rules.keys or "=" in word.text else None
        raise InventoryError("not a setting", place=word.place, found=word.text, expected="key=value", hint=hint)
    if key not in rules.keys:
        raise unknown_key(key, rules.keys, word.place)
    place = word.place.moved(len(key) + 1)
    field = rules.keys[key]
    if not field and key != "binding" and key != "map":
        fields.slots(raw, place)
    return field, raw, place


def read_repeated(text: Text, draft: Draft) -> None:
    """Read a node file in which a host has as many lines as slots (PBS, LSF)."""
    counted: dict[str, int] = {}
    for line in text.lines():
        word = _only_word(line)
        if word is None:
            continue
        draft.host(word.text, word.place)
        counted[word.text] = counted.get(word.text, 0) + 1
    for name, times in counted.items():
        draft.host(name, None).set("slots", times, draft.place_of(name))


def _only_word(line: Line) -> Word | None:
    words = line.without_comment().words()
    if len(words) > 1:
        raise InventoryError(
            "more than a host name", place=words[1].place, found=words[1].text, expected="one host a line"
        )
    return words[0] if words else None
