"""Changes to Ansible's INI inventories by whole lines and by words of host lines. No I/O."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mnspawn_inventory.editors.ansible import AnsibleDocument, Changes, Entry
from mnspawn_inventory.editors.lines import Lines
from mnspawn_inventory.formats.ansible import UNGROUPED
from mnspawn_inventory.formats.ansible_ini import SECTION, parse_value
from mnspawn_inventory.formats.ansible_range import expand_pattern, patterns_of

WORD = re.compile(r"(?:[^\s'\"\\#]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+")
VARIABLE = re.compile(r"(\s*)([^=\s]+)(\s*=\s*)(.*?)(\s*)", re.DOTALL)


@dataclass
class _Section:
    """`[group]`, `[group:vars]` or `[group:children]`: the number of its line (-1: what is before all of them)."""

    header: int
    group: str
    kind: str
    lines: list[int]  # what is in it, without comments and blank lines


class IniDocument(AnsibleDocument):
    """One Ansible inventory in INI that is being edited."""

    def __init__(self, text: str, source: str, format_name: str) -> None:
        super().__init__(text, source, format_name)
        self._lines = Lines(text)

    def _written(self) -> str:
        return self._lines.text()

    def _sections(self) -> list[_Section]:
        self._lines.renumber()
        found = [_Section(-1, UNGROUPED, "hosts", [])]
        for number, line in enumerate(self._lines.lines):
            content = line.strip()
            section = SECTION.fullmatch(content)
            if section:
                found.append(_Section(number, section[1], section[2] or "hosts", []))
            elif content and content[0] not in "#;":
                found[-1].lines.append(number)
        return found

    def _entries(self) -> list[Entry]:
        return [
            self._entry(number, section.group)
            for section in self._sections()
            if section.kind == "hosts"
            for number in section.lines
        ]

    def _entry(self, number: int, group: str) -> Entry:
        words = [match[0] for match in WORD.finditer(self._content(number))]
        hosts, _ = expand_pattern(_unquoted(words[0]), None)
        variables = {key: parse_value(raw) for key, _, raw in (_unquoted(word).partition("=") for word in words[1:])}
        return Entry(tuple(hosts), variables, group, number)

    def _content(self, number: int) -> str:
        """A host line without its comment."""
        line = self._lines.lines[number]
        end = 0
        for match in WORD.finditer(line):
            if "#" in line[end : match.start()]:
                break
            end = match.end()
        return line[:end]

    def _put_hosts(self, group: str, hosts: Mapping[str, Changes]) -> None:
        lines = [" ".join([_host(name), *_words(said)]) for name, said in hosts.items()]
        wanted = [one for one in self._sections() if one.group == (group or UNGROUPED) and one.kind == "hosts"]
        there = [one for one in wanted if one.header >= 0 or one.lines]
        if there:
            section = there[-1]
            self._lines.behind(section.lines[-1] if section.lines else section.header, *lines)
        else:
            self._append(f"[{group or UNGROUPED}]", *lines)

    def _append(self, *lines: str) -> None:
        there = self._lines.lines
        self._lines.before(len(there), *([""] if there and there[-1].strip() else []), *lines)

    def _entry_beside(self, entry: Entry, name: str) -> Entry:
        return Entry((name,), {}, entry.group, (entry.where,))

    def _change(self, entry: Entry) -> None:
        if isinstance(entry.where, tuple):  # a line of its own behind that of a range
            self._lines.behind(entry.where[0], " ".join([_host(entry.names[0]), *_words(entry.changes)]))
            return
        line = self._lines.lines[entry.where]
        content = self._content(entry.where)
        for match in reversed(list(WORD.finditer(content))[1:]):
            key = _unquoted(match[0]).partition("=")[0]
            if key in entry.changes:
                new = _words({key: entry.changes[key]})
                start = match.start() if new else len(content[: match.start()].rstrip())
                content = content[:start] + "".join(new) + content[match.end() :]
        new = _words({key: value for key, value in entry.changes.items() if key not in entry.variables})
        self._lines.replace(entry.where, " ".join([content, *new]) + line[len(self._content(entry.where)) :])

    def _group_variables(self, name: str) -> Mapping[str, object]:
        return {key: parse_value(raw) for _, key, raw in self._variables(name)}

    def _variables(self, group: str) -> Iterator[tuple[int, str, str]]:
        """Number of the line, name and value of each variable of a group."""
        for section in self._sections():
            for number in section.lines if (section.group, section.kind) == (group, "vars") else ():
                if match := VARIABLE.fullmatch(self._lines.lines[number]):
                    yield number, match[2], match[4]

    def _change_group(self, name: str, changes: Changes) -> None:
        there = {key: number for number, key, _ in self._variables(name)}
        for key, number in there.items():
            if key in changes:
                match = VARIABLE.fullmatch(self._lines.lines[number])
                assert match is not None  # `_variables` gave it
                value = changes[key]
                kept = () if value is None else (f"{match[1]}{key}{match[3]}{_value(value)}{match[5]}",)
                self._lines.replace(number, *kept)
        new = [f"{key}={_value(value)}" for key, value in changes.items() if key not in there and value is not None]
        if not new:
            return
        section = next((one for one in self._sections() if (one.group, one.kind) == (name, "vars")), None)
        if section is not None:
            self._lines.behind(section.lines[-1] if section.lines else section.header, *new)
        else:
            self._append(f"[{name}:vars]", *new)

    def _remove_hosts(self, gone: Collection[str]) -> None:
        for entry in self._entries():
            left = [name for name in entry.names if name not in gone]
            if len(left) == len(entry.names):
                continue
            line = self._lines.lines[entry.where]
            word = WORD.search(line)
            assert word is not None  # it names hosts
            _, port = expand_pattern(_unquoted(word[0]), None)
            heads = [f"{_host(one)}:{port}" if port is not None else _host(one) for one in patterns_of(left)]
            self._lines.replace(entry.where, *(line[: word.start()] + head + line[word.end() :] for head in heads))

    def _remove_group(self, name: str) -> None:
        """Its hosts stay where they are; those that are in no other group are in none then."""
        sections = self._sections()
        own = [one for one in sections if one.group == name]
        others = {host for entry in self._entries() if entry.group not in (name, UNGROUPED) for host in entry.names}
        for section in sections:
            if section.kind == "children" and section.group != name:
                for number in section.lines:
                    if self._lines.lines[number].split("#")[0].strip() == name:
                        self._lines.replace(number)
        for section in own:
            names: set[str] = set()
            for number in section.lines if section.kind == "hosts" else ():
                names.update(self._entry(number, name).names)
            if names - others or (names and self._says(section)):
                header = self._lines.lines[section.header].replace(f"[{name}", f"[{UNGROUPED}", 1)
                self._lines.replace(section.header, header)
                continue
            following = max(section.lines, default=section.header) + 1
            is_blank = following < len(self._lines.lines) and not self._lines.lines[following].strip()
            for number in (section.header, *section.lines, *([following] if is_blank else [])):
                self._lines.replace(number)

    def _says(self, section: _Section) -> bool:
        """Whether the host lines of a section have variables."""
        return any(self._entry(number, "").variables for number in section.lines)


def _unquoted(word: str) -> str:
    return shlex.split(word)[0] if word else word


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name and "[" not in name else name


def _words(said: Changes) -> list[str]:
    """`name=value` words for a host line; values of None are left out."""
    words = []
    for key, value in said.items():
        if value is not None:
            text = _value(value)
            is_literal = "'" in text and not set(text) & set('"\\')
            words.append(f'{key}="{text}"' if is_literal else f"{key}={shlex.quote(text)}")
    return words


def _value(value: object) -> str:
    """A value as Ansible reads it back: text that Python would take for something else is a Python literal."""
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, str) and (parse_value(text) != text or "\n" in text or text != text.strip()):
        return repr(text)
    return text
