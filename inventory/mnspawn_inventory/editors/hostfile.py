"""Edits hostfiles and node files line by line, keeping comments and all other lines. Text to text, no I/O."""

import re
from collections.abc import Collection, Mapping, Sequence

from mnspawn_inventory import nodeset
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.editors.document import Asked, Document, Settings
from mnspawn_inventory.formats import hostfile
from mnspawn_inventory.model import Host, Inventory
from mnspawn_inventory.names import endpoint_of, split_port
from mnspawn_inventory.text import Text

# the fields that each tool understands
HELD = {
    "openmpi": ("slots", "max_slots", "user"),
    "deepspeed": ("slots", "user"),
    "horovod": ("slots",),
    "mpich": ("slots", "user"),
}
COMMENT = re.compile(r"#|(?<!:)//")  # "//" begins a comment for Open MPI, and is in no name
FIRST_WORD = re.compile(r"(\s*)((?:(?!(?<!:)//)[^\s#])*)(.*)", re.DOTALL)
# the keys for each field, in all dialects
WORDS = {
    "slots": "slots|count|cpu",
    "max_slots": "max[-_]slots|slots[-_]max",
    "user": "user|username",
    "port": "port",
}
WRITTEN = {field: re.compile(rf"(\s+(?:{words})\s*=\s*)\S+") for field, words in WORDS.items()}


class _Lines(Document):
    """A file whose lines name hosts."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._first = text
        self._lines = text.removesuffix("\n").split("\n") if text else []

    def _written(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


class HostfileDocument(_Lines):
    """One hostfile; its dialect stays the same."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self.holds = HELD.get(format_name, ("slots", "max_slots", "user", "port"))

    def _before(self, text: str) -> Inventory:
        """As before the edit, but with the new names of hosts that now share an address, or no longer do."""
        before, after = (Text(self.source, one) for one in (self._first, text))
        known = {**hostfile.names_in(before, self.format), **hostfile.names_in(after, self.format)}
        draft = Draft(self.source, self.format, is_lenient=True)
        hostfile.read(before, draft, self.format, known)
        return draft.finish()

    def _add(self, asked: Sequence[Asked], groups: Sequence[str]) -> None:
        self._lines += [self._line(name, settings) for one in asked for name, settings in one.each()]

    def _set_hosts(self, asked: Sequence[Asked]) -> None:
        wanted: dict[str, dict[str, object]] = {}
        for one in asked:
            for host_name, settings in one.each():
                wanted.setdefault(host_name, {}).update(settings)
        for index, (_, _, hosts) in self._hosts_of_lines():
            here = {host.name for host in hosts}
            if len(hosts) > 1 and here & wanted.keys() and not _is_one(here, wanted):
                self._put_apart(index, [host.name for host in hosts])
        lines = self._hosts_of_lines()
        first = {hosts[0].name: index for index, (_, _, hosts) in lines}
        for index, (prefix, word, hosts) in lines:
            name = hosts[0].name
            rest = self._lines[index][len(prefix + word) :]
            if name in wanted and "slots" in wanted[name] and index > first[name]:  # the first line gets all slots
                comment = COMMENT.search(rest)
                self._lines[index : index + 1] = [prefix + rest[comment.start() :]] if comment else []
            elif name in wanted:
                self._lines[index] = prefix + self._changed(word, rest, hosts[0], wanted[name])

    def _remove_hosts(self, gone: Collection[str]) -> None:
        """Remove lines; a range is replaced by the rest of its hosts."""
        for index, (_, _, hosts) in self._hosts_of_lines():
            left = [host.name for host in hosts if host.name not in gone]
            if len(left) < len(hosts):
                self._put_apart(index, left)

    def _put_apart(self, index: int, names: Sequence[str]) -> None:
        """Give each host of a range a line of its own."""
        prefix, word, rest = _taken_apart(self._lines[index])
        user, at, address = word.rpartition("@")
        pattern, number = split_port(address)
        suffix = "" if number is None else f":{number}"
        heads = [word] if len(names) == 1 and pattern == names[0] else [f"{user}{at}{name}{suffix}" for name in names]
        self._lines[index : index + 1] = [f"{prefix}{head}{rest}" for head in heads]

    def _hosts_of_lines(self) -> list[tuple[int, tuple[str, str, list[Host]]]]:
        """Number, indent, first word and hosts of each line that names hosts, from the last line to the first."""
        found = []
        known = hostfile.names_in(Text(self.source, self._written()), self.format)
        for index, line in enumerate(self._lines):
            prefix, word, _ = _taken_apart(line)
            if word:
                draft = Draft(self.source, self.format)
                hostfile.read(Text(self.source, line), draft, self.format, known)
                found.append((index, (prefix, word, list(draft.finish().hosts))))
        return found[::-1]

    def _line(self, name: str, settings: Settings) -> str:
        user, port, slots = (settings.get(key) for key in ("user", "port", "slots"))
        host = endpoint_of(name).host
        word = f"[{host}]" if ":" in host else host
        if self.format == "mpich":
            word = word if slots is None else f"{word}:{slots}"
            return word if user is None else f"{word} user={user}"
        word = f"{user}@{word}" if user is not None else word
        word = f"ssh://{word}:{port}" if port is not None else word
        counts = {"slots": slots, "max_slots": settings.get("max_slots")}
        return " ".join([word, *(f"{key}={count}" for key, count in counts.items() if count is not None)])

    def _changed(self, word: str, rest: str, host: Host, settings: Settings) -> str:
        """The line with new values: the host's word is rewritten, other keys and the comment stay."""
        values: dict[str, object] = {**{field: getattr(host, field) for field in WORDS}, **settings}
        comment = COMMENT.search(rest)
        body = rest[: comment.start()] if comment else rest
        tail = rest[len(body) :]
        for key, pattern in WRITTEN.items():
            if pattern.search(body):
                body = pattern.sub("" if values[key] is None else rf"\g<1>{values[key]}", body, count=1)
                values[key] = None
        if nodeset.has_range(word):
            user, at, address = word.rpartition("@")
            if host.port is None:  # the number after its colon counts slots
                word = f"{user}{at}{split_port(address)[0]}"
            counts = {key: values[key] for key in ("slots", "max_slots") if values[key] is not None}
            name = " ".join([word, *(f"{key}={count}" for key, count in counts.items())])
        else:
            name = self._line(host.name, values)
        return f"{name}{body}{tail}"


def _taken_apart(line: str) -> tuple[str, str, str]:
    """Indent, first word and the rest; the word is empty in a line that names no host."""
    match = FIRST_WORD.fullmatch(line)
    assert match is not None  # each part may be empty
    return match[1], match[2], match[3]


def _is_one(names: Collection[str], wanted: Mapping[str, Settings]) -> bool:
    """Whether the hosts of a range all get the same slots, so that the range may stay."""
    return all(name in wanted and wanted[name].keys() <= {"slots"} for name in names)


class NodeFileDocument(_Lines):
    """A node file with a line for each slot (PBS, LSF)."""

    holds = ("slots",)

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
        """Remove lines, but keep their comments."""
        for index in reversed(indices):
            _, hash_sign, comment = self._lines[index].partition("#")
            self._lines[index : index + 1] = [hash_sign + comment] if hash_sign else []


def _count(settings: Settings) -> int:
    slots = settings.get("slots")
    return slots if isinstance(slots, int) else 1
