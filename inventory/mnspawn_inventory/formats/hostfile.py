"""Reads hostfiles: plain lists, `h slots=N` (Open MPI, DeepSpeed, Horovod), `h:N` (Horovod, MPICH), node files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.draft import Draft, unknown_key
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.expression import port_of
from mnspawn_inventory.text import Line, Text, Word

_FirstWord = tuple[str | None, list[str], int | None, str | None]  # user, names, port, slots
_Setting = tuple[str, str, str, Origin]  # key, the field that it sets, value and its place


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
    reader = _Reader(draft, rules, names_in(text, dialect) if known is None else known)
    for words in _lines(text, rules):
        reader.read_host(words)
    reader.count_up()


def names_in(text: Text, dialect: str = "hostfile") -> dict[names.Endpoint, str]:
    """The names of the hosts of a file, unique for hosts of the same address (see `Host.name`)."""
    rules = DIALECTS[dialect]
    found: dict[names.Endpoint, None] = {}
    for words in _lines(text, rules):
        host = _host(words[0], rules, _has_slots(words))
        found.update(dict.fromkeys(_endpoints(host, [_setting(word, rules) for word in words[1:]])))
    return names.unique_names(found)


def _lines(text: Text, rules: Dialect) -> Iterator[list[Word]]:
    """The words of each line that is not empty."""
    for line in text.lines():
        line = line.without_comment()
        if rules.has_slashes:
            line = Line(line.source, line.number, line.text.split("//", 1)[0])
        words = line.words()
        if words:
            yield _joined(words) if rules.blanks_around_equals else words


def _endpoints(host: _FirstWord, settings: Sequence[_Setting]) -> list[names.Endpoint]:
    """The hosts of a line, with the line's user and port."""
    user, found, port, _ = host
    for _, field, raw, place in settings:
        if field == "user":
            user = names.check_user(raw, place)
        elif field == "port":
            port = names.check_port(raw, place)
    return [names.Endpoint(name, user, port) for name in found]


def _has_slots(words: Sequence[Word]) -> bool:
    return any(word.text.startswith("slots=") for word in words[1:])


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

    def read_host(self, words: list[Word]) -> None:
        """Read one line."""
        user, found, port, slots = _host(words[0], self.rules, _has_slots(words))
        settings = [_setting(word, self.rules) for word in words[1:]]
        most = next((raw for _, field, raw, _ in settings if field == "max_slots"), None)
        for _, field, raw, place in settings:
            if field == "max_slots":
                fields.slots(raw, place)
        if slots is None and most is not None and not any(field == "slots" for _, field, _, _ in settings):
            slots = most  # as Open MPI has it
        for endpoint in _endpoints((user, found, port, slots), settings):
            name = self._known.get(endpoint, endpoint.host)
            self._check_repeat(name, words[0].place)
            values = self._draft.host(name, words[0].place)
            self._lines[name] = self._lines.get(name, 0) + 1
            if slots is None and not any(field == "slots" for _, field, _, _ in settings):
                self._bare[name] = self._bare.get(name, 0) + 1
            if user is not None:
                values.set("user", user, words[0].place)
            if port is not None:
                values.set("port", port, words[0].place)
            if slots is not None:
                self._count(name, slots, words[0].place)
            for _, field, raw, place in settings:
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
            line = f", in line {first.line}" if first else ""
            raise InventoryError(
                f"the host was named before{line}",
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


def _host(word: Word, rules: Dialect, has_slots: bool) -> _FirstWord:
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
    """The key, the field that it sets, the value and its place."""
    key, equals, raw = word.text.partition("=")
    if not equals or not key or not raw:
        hint = "write key=value without blanks around '='" if word.text in rules.keys or "=" in word.text else None
        raise InventoryError("not a setting", place=word.place, found=word.text, expected="key=value", hint=hint)
    if key not in rules.keys:
        raise unknown_key(key, rules.keys, word.place)
    return key, rules.keys[key], raw, word.place.moved(len(key) + 1)


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
