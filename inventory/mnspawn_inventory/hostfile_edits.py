"""Changes to hostfiles that keep every comment and every other line: add, set, remove. Text to text, no I/O."""

import re
from collections.abc import Mapping, Sequence

from mnspawn_inventory import nodeset
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import hostfile
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.text import Text

EDITABLE = ("slots", "user", "port")
FIRST_WORD = re.compile(r"(\s*)(\S+)(.*)", re.DOTALL)
SLOTS = re.compile(r"\s+slots=\S+")


class HostfileDocument:
    """One hostfile that is being edited; the dialect stays what it is."""

    def __init__(self, text: str, source: str, dialect: str) -> None:
        self.source = source
        self._dialect = dialect
        self.inventory = self._read(text)
        self._lines = text.split("\n")
        if not self._lines[-1]:
            self._lines.pop()

    def text(self) -> str:
        """The file as it is now. Raises InventoryError when it can't be read any more."""
        text = "".join(f"{line}\n" for line in self._lines)
        self._read(text)
        return text

    def add(self, patterns: Sequence[str], settings: Mapping[str, object], groups: Sequence[str] = ()) -> list[str]:
        """Append hosts, one line each."""
        if groups:
            raise self._refused("groups")
        known = {host.name for host in self.inventory.hosts}
        names = [name for pattern in patterns for name in self._expand(pattern)]
        for number, name in enumerate(names):
            if name in known or name in names[:number]:
                raise InventoryError(
                    "the host is there already", place=Origin(self.source), found=name, expected="a new host"
                )
        self._lines += [self._line(name, settings) for name in names]
        return names

    def set(self, targets: Sequence[str], settings: Mapping[str, object]) -> list[str]:
        """Change slots, user and port of hosts that have a line of their own."""
        names = self._known(targets)
        for index, (prefix, word, rest) in self._host_lines():
            here = self._names_of(index)
            if not set(here) & set(names):
                continue
            if len(here) > 1 and not set(here) <= set(names):
                raise InventoryError(
                    "the line speaks of several hosts",
                    place=Origin(self.source, index + 1),
                    found=word,
                    expected="one host",
                )
            said = {host.name: host for host in self.inventory.hosts}[here[0]]
            self._lines[index] = prefix + self._changed(word, rest, said, settings)
        return names

    def remove(self, targets: Sequence[str]) -> list[str]:
        """Take lines away; a range is replaced by what is left of it."""
        names = self._known(targets)
        for index, (prefix, word, rest) in reversed(list(self._host_lines())):
            here = self._names_of(index)
            left = [name for name in here if name not in names]
            if left == here:
                continue
            pattern = word.rpartition("@")[2].rpartition("]")[0] + "]" if len(here) > 1 else ""
            self._lines[index : index + 1] = [f"{prefix}{word.replace(pattern, name)}{rest}" for name in left]
        return names

    def _read(self, text: str) -> Inventory:
        draft = Draft(self.source, self._dialect)
        hostfile.read(Text(self.source, text), draft, self._dialect)
        return draft.finish()

    def _refused(self, what: str) -> InventoryError:
        return InventoryError(
            f"a hostfile can't hold {what}",
            place=Origin(self.source),
            expected=", ".join(EDITABLE),
            hint="mnspawn inventory import makes a TOML inventory of it, which can",
        )

    def _known(self, targets: Sequence[str]) -> list[str]:
        known = {host.name for host in self.inventory.hosts}
        names = [name for target in targets for name in self._expand(target)]
        for name in names:
            if name not in known:
                raise InventoryError("no such host", place=Origin(self.source), found=name)
        return names

    def _expand(self, pattern: str) -> list[str]:
        from mnspawn_inventory.names import check_host

        place = Origin(self.source)
        expanded = nodeset.expand(pattern, place) if nodeset.has_range(pattern) else [pattern]
        return [check_host(name, place) for name in expanded]

    def _host_lines(self) -> list[tuple[int, tuple[str, str, str]]]:
        """Number, indent, first word and rest of each line that names a host."""
        found = []
        for index, line in enumerate(self._lines):
            match = FIRST_WORD.fullmatch(line)
            if match and not match[2].startswith("#"):
                word, comment, more = match[2].partition("#")
                found.append((index, (match[1], word, comment + more + match[3])))
        return found

    def _names_of(self, index: int) -> list[str]:
        draft = Draft(self.source, self._dialect)
        hostfile.read(Text(self.source, self._lines[index]), draft, self._dialect)
        return [host.name for host in draft.finish().hosts]

    def _line(self, name: str, settings: Mapping[str, object]) -> str:
        for key in settings:
            if key not in EDITABLE:
                raise self._refused(key)
        word = f"[{name}]" if ":" in name else name
        user, port, slots = (settings.get(key) for key in ("user", "port", "slots"))
        word = f"{user}@{word}" if user is not None else word
        word = f"ssh://{word}:{port}" if port is not None else word
        return word if slots is None else f"{word} slots={slots}"

    def _changed(self, word: str, rest: str, host: Host, settings: Mapping[str, object]) -> str:
        """The line with new values: the host's word is written anew, other keys and the comment stay."""
        for key in settings:
            if key not in EDITABLE:
                raise self._refused(key)
        said = {"user": host.user, "port": host.port, "slots": host.slots, **settings}
        body, hash_sign, comment = rest.partition("#")
        if SLOTS.search(body):
            slots = "" if said["slots"] is None else f" slots={said['slots']}"
            body = SLOTS.sub(slots, body, count=1)
            said["slots"] = None
        if nodeset.has_range(word):
            if settings.keys() - {"slots"}:
                raise self._refused("another user or port for a range")
            name = word
        else:
            name = self._line(host.name, {key: value for key, value in said.items() if key != "slots"})
        added = "" if said["slots"] is None else f" slots={said['slots']}"
        return f"{name}{added}{body}{hash_sign}{comment}"
