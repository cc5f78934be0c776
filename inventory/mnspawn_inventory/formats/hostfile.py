"""Reads hostfiles: plain lists, `h slots=N` (Open MPI, DeepSpeed, Horovod), `h:N` (Horovod, MPICH), node files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.draft import Draft, unknown_key
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.expression import port_of
from mnspawn_inventory.text import Line, Text, Word

_Setting = tuple[str, str, Origin]  # the field that a key sets ("" if it is ignored), its value and place


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: hosts that share slots and settings."""

    endpoints: tuple[names.Endpoint, ...]
    slots: str | None
    settings: tuple[_Setting, ...]
    place: Origin


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one tool reads its hostfiles.

    Attributes:
        keys: the keys before "=", and the field that each sets ("" if it is ignored).
        repeats_add: repeating a host adds a slot; otherwise it is an error.
        has_colons: `h:4` means slots.
        blanks_around_equals: `slots = 4` is read as `slots=4`.
        has_slashes: `//` also begins a comment.
    """

    keys: dict[str, str]
    repeats_add: bool = False
    has_colons: bool = True
    blanks_around_equals: bool = False
    has_slashes: bool = False


_MPI_KEYS = {
    "slots": "slots",
    "max_slots": "max_slots",
    "max-slots": "max_slots",
    "slots_max": "max_slots",
    "slots-max": "max_slots",
    "count": "slots",
    "cpu": "slots",
}
_OWN_KEYS = {field: field for field in fields.FIELDS if field not in ("prelude", "proxy_command")}

DIALECTS = {
    "hostfile": Dialect({**_MPI_KEYS, **_OWN_KEYS, "username": "user", "ifname": "network"}),
    "openmpi": Dialect(
        {**_MPI_KEYS, "username": "user"},
        repeats_add=True,
        has_colons=False,
        blanks_around_equals=True,
        has_slashes=True,
    ),
    "deepspeed": Dialect({"slots": "slots"}, has_colons=False),
    "horovod": Dialect({"slots": "slots"}),
    "mpich": Dialect({"ifname": "network", "binding": "", "map": "", "user": "user"}, repeats_add=True),
}


def read(
    text: Text, draft: Draft, dialect: str = "hostfile", known: Mapping[names.Endpoint, str] | None = None
) -> None:
    """Read a hostfile into the draft.

    Args:
        known: the names of hosts, if the text is only a part of a file; by default those that `names_in` gives.
    """
    rules = DIALECTS[dialect]
    for line in text.lines():
        if line.text.startswith("#include "):
            draft.notes.append(f"{line.place()}: read as a comment; pdsh would include another file here")
    entries = _entries(text, rules)
    reader = _Reader(draft, rules, _names(entries) if known is None else known)
    for entry in entries:
        reader.read_entry(entry)
    reader.count_up()


def names_in(text: Text, dialect: str = "hostfile") -> dict[names.Endpoint, str]:
    """The names of the hosts of a file, unique for hosts of the same address (see `Host.name`)."""
    return _names(_entries(text, DIALECTS[dialect]))


def _names(entries: Iterable[Entry]) -> dict[names.Endpoint, str]:
    return names.unique_names(endpoint for entry in entries for endpoint in entry.endpoints)


def _entries(text: Text, rules: Dialect) -> list[Entry]:
    """The entry of each line that is not empty."""
    found = []
    for line in text.lines():
        line = line.without_comment()
        if rules.has_slashes:
            line = Line(line.source, line.number, line.text.split("//", 1)[0])
        if words := line.words():
            found.append(_entry(_joined(words) if rules.blanks_around_equals else words, rules))
    return found


def _entry(words: Sequence[Word], rules: Dialect) -> Entry:
    has_slots = any(word.text.startswith("slots=") for word in words[1:])
    user, hosts, port, slots = _first_word(words[0], rules, has_slots)
    settings = tuple(_setting(word, rules) for word in words[1:])
    for field, raw, place in settings:
        if field == "user":
            user = names.check_user(raw, place)
        elif field == "port":
            port = names.check_port(raw, place)
    endpoints = tuple(names.Endpoint(host, user, port) for host in hosts)
    return Entry(endpoints, slots, settings, words[0].place)


def _joined(words: list[Word]) -> list[Word]:
    """Join `slots`, `=`, `4` to one word."""
    joined = words[:1]
    for word in words[1:]:
        if len(joined) > 1 and (word.text.startswith("=") or joined[-1].text.endswith("=")):
            joined[-1] = Word(joined[-1].text + word.text, joined[-1].place)
        else:
            joined.append(word)
    return joined


class _Reader:
    def __init__(self, draft: Draft, rules: Dialect, known: Mapping[names.Endpoint, str]) -> None:
        self.rules = rules
        self._known = known
        self._draft = draft
        self._lines: dict[str, int] = {}
        self._given: dict[str, int] = {}  # slots as written
        self._bare: dict[str, int] = {}  # lines without slots

    def read_entry(self, entry: Entry) -> None:
        """Read one line."""
        most = next((raw for field, raw, _ in entry.settings if field == "max_slots"), None)
        for field, raw, place in entry.settings:
            if field == "max_slots":
                fields.slots(raw, place)
        has_slots = any(field == "slots" for field, _, _ in entry.settings)
        slots = most if entry.slots is None and not has_slots else entry.slots  # as in Open MPI
        for endpoint in entry.endpoints:
            name = self._known.get(endpoint, endpoint.host)
            self._check_repeat(name, entry.place)
            values = self._draft.host(name, entry.place)
            self._lines[name] = self._lines.get(name, 0) + 1
            if slots is None and not has_slots:
                self._bare[name] = self._bare.get(name, 0) + 1
            for field, value in (("user", endpoint.user), ("port", endpoint.port)):
                if value is not None:
                    values.set(field, value, entry.place)
            if slots is not None:
                self._count(name, slots, entry.place)
            for field, raw, place in entry.settings:
                if field == "slots":
                    self._count(name, raw, place)
                elif field:
                    values.set(field, raw, place)

    def count_up(self) -> None:
        """Set the slots of repeated hosts, if repeating a host adds a slot."""
        for name, times in self._lines.items() if self.rules.repeats_add else ():
            if times > 1:
                slots = self._given.get(name, 0) + self._bare.get(name, 0)
                self._draft.host(name, None).set("slots", slots, self._draft.place_of(name))

    def _check_repeat(self, name: str, place: Origin) -> None:
        if self._draft.has_host(name) and not self.rules.repeats_add:
            first = self._draft.place_of(name)
            line = f" in line {first.line}" if first else ""
            raise InventoryError(
                f"the host is already listed{line}",
                place=place,
                found=name,
                expected="each host once",
                hint="a file with a line for each slot has 'nodefile' in its name",
            )

    def _count(self, name: str, raw: str, place: Origin) -> None:
        number = fields.slots(raw, place)
        if self.rules.has_colons and self.rules.repeats_add:  # MPICH adds them up
            number += self._given.get(name, 0)
        elif name in self._given:
            raise InventoryError("slots are given twice", place=place, found=raw, expected=f"slots of {name} once")
        self._given[name] = number
        self._draft.host(name, None).set("slots", number, place)


def _first_word(word: Word, rules: Dialect, has_slots: bool) -> tuple[str | None, list[str], int | None, str | None]:
    """The user, names, port and slots of the first word."""
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
    if number is None:
        return user if at else None, found, None, None
    port: int | None
    if has_slots:
        port = names.check_port(number, number_place)
    else:
        port = port_of(number, bool(at) or pattern.startswith("["))
        if port is None and not rules.has_colons:
            raise fields.wrong("not a host name", word.text, "a host and slots=N", word.place)
    if port is None:
        fields.slots(number, number_place)
    return user if at else None, found, port, number if port is None else None


def _setting(word: Word, rules: Dialect) -> _Setting:
    """The field that a word sets, the value and its place."""
    key, equals, raw = word.text.partition("=")
    if not equals or not key or not raw:
        hint = "write key=value without blanks around '='" if word.text in rules.keys or "=" in word.text else None
        raise InventoryError("not a setting", place=word.place, found=word.text, expected="key=value", hint=hint)
    if key not in rules.keys:
        raise unknown_key(key, rules.keys, word.place)
    return rules.keys[key], raw, word.place.moved(len(key) + 1)


def read_repeated(text: Text, draft: Draft) -> None:
    """Read a node file in which a host has as many lines as slots (PBS, LSF)."""
    counted: dict[str, int] = {}
    for line in text.lines():
        word = _only_word(line)
        if word is None:
            continue
        draft.host(names.check_host(word.text, word.place), word.place)
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
