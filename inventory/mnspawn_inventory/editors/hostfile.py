"""Changes to hostfiles that keep every comment and every other line: add, set, remove. Text to text, no I/O."""

import re
from collections.abc import Collection, Sequence
from typing import ClassVar

from mnspawn_inventory import nodeset
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.editors.base import Asked, Document, Settings
from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import hostfile
from mnspawn_inventory.model import Host
from mnspawn_inventory.text import Text

# what each tool understands of what we could write
HELD = {"openmpi": ("slots", "user"), "deepspeed": ("slots", "user"), "horovod": ("slots",), "mpich": ("slots", "user")}
FIRST_WORD = re.compile(r"(\s*)(\S+)(.*)", re.DOTALL)
WRITTEN = {key: re.compile(rf"\s+{key}\s*=\s*\S+") for key in ("slots", "user", "port")}


class HostfileDocument(Document):
    """One hostfile that is being edited; the dialect stays what it is."""

    fields: tuple[str, ...] | None = ("slots", "user", "port")
    has_groups: ClassVar[bool] = False

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self.fields = HELD.get(format_name, self.fields)
        self._lines = text.removesuffix("\n").split("\n") if text else []

    def _written(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        self._lines += [self._line(name, settings) for one in asked for name, settings in one.each()]

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        wanted = {name: settings for one in asked for name, settings in one.each()}
        said = {host.name: host for host in self.inventory.hosts}
        seen: set[str] = set()
        for index, (prefix, word, rest) in self._host_lines():
            here = self._names_of(index)
            if not wanted.keys() & set(here):
                continue
            if len(here) > 1 and not set(here) <= wanted.keys():
                raise InventoryError(
                    "the line speaks of several hosts",
                    place=Origin(self.source, index + 1),
                    found=word,
                    expected="one host",
                    hint="give each its own line: mnspawn inventory remove and add do it",
                )
            if here[0] in seen and "slots" in wanted[here[0]]:  # its first line has all of its slots now
                self._lines[index] = prefix + rest[rest.index("#") :] if "#" in rest else ""
                continue
            seen.update(here)
            self._lines[index] = prefix + self._changed(word, rest, said[here[0]], wanted[here[0]])

    def _remove_hosts(self, gone: Collection[str]) -> None:
        """Take lines away; a range is replaced by what is left of it."""
        for index, (prefix, word, rest) in reversed(list(self._host_lines())):
            here = self._names_of(index)
            left = [name for name in here if name not in gone]
            if left == here:
                continue
            pattern = word.rpartition("@")[2].rpartition("]")[0] + "]" if len(here) > 1 else ""
            self._lines[index : index + 1] = [f"{prefix}{word.replace(pattern, name)}{rest}" for name in left]

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
        draft = Draft(self.source, self.format)
        hostfile.read(Text(self.source, self._lines[index]), draft, self.format)
        return [host.name for host in draft.finish().hosts]

    def _line(self, name: str, settings: Settings) -> str:
        user, port, slots = (settings.get(key) for key in ("user", "port", "slots"))
        word = f"[{name}]" if ":" in name else name
        if self.format == "mpich":
            word = word if slots is None else f"{word}:{slots}"
            return word if user is None else f"{word} user={user}"
        word = f"{user}@{word}" if user is not None else word
        word = f"ssh://{word}:{port}" if port is not None else word
        return word if slots is None else f"{word} slots={slots}"

    def _changed(self, word: str, rest: str, host: Host, settings: Settings) -> str:
        """The line with new values: the host's word is written anew, other keys and the comment stay."""
        said: dict[str, object] = {"user": host.user, "port": host.port, "slots": host.slots, **settings}
        body, hash_sign, comment = rest.partition("#")
        for key, pattern in WRITTEN.items():
            if pattern.search(body):
                body = pattern.sub("" if said[key] is None else f" {key}={said[key]}", body, count=1)
                said[key] = None
        if nodeset.has_range(word):
            if settings.keys() - {"slots"}:
                raise self.refused("another user or port for a range")
            name = word if said["slots"] is None else f"{word} slots={said['slots']}"
        else:
            name = self._line(host.name, said)
        return f"{name}{body}{hash_sign}{comment}"


class NodeFileDocument(Document):
    """A node file with a line for each slot (PBS, LSF)."""

    fields = ("slots",)
    has_groups: ClassVar[bool] = False

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._lines = text.removesuffix("\n").split("\n") if text else []

    def _written(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        for one in asked:
            for name, settings in one.each():
                self._lines += [name] * _count(settings)

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        for one in asked:
            for name, settings in one.each():
                there = self._lines_of({name})
                count = _count(settings)
                self._lines[there[-1] + 1 : there[-1] + 1] = [name] * (count - len(there))
                self._blank(there[count:])

    def _remove_hosts(self, gone: Collection[str]) -> None:
        self._blank(self._lines_of(gone))

    def _lines_of(self, names: Collection[str]) -> list[int]:
        return [index for index, line in enumerate(self._lines) if line.partition("#")[0].strip().strip("[]") in names]

    def _blank(self, indices: Sequence[int]) -> None:
        """Take lines away, but for their comments."""
        for index in reversed(indices):
            _, hash_sign, comment = self._lines[index].partition("#")
            self._lines[index : index + 1] = [hash_sign + comment] if hash_sign else []


def _count(settings: Settings) -> int:
    slots = settings.get("slots")
    return slots if isinstance(slots, int) else 1
