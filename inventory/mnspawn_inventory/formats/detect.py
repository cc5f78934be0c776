"""Detects the format of a file from its name and content."""

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnspawn_inventory.text import Text

SUFFIXES = {".toml": "toml", ".yml": "ansible-yaml", ".yaml": "ansible-yaml", ".json": "json", ".ini": "ansible-ini"}
NAMES = {"config": "ssh-config", "ssh_config": "ssh-config"}
SSH_SUFFIXES = ("ssh_config", "ssh-config", ".sshconfig")
# part of the name -> format, for formats that look alike
NAMED_AFTER = {"machinefile": "mpich", "openmpi": "openmpi", "deepspeed": "deepspeed", "nodefile": "pbs", "lsf": "lsf"}
REPEATED = ("pbs", "lsf")  # one line per slot, with nothing but a name

SIGNIFICANT = re.compile(r"^[ \t]*([^\s#;].*)$", re.MULTILINE)
YAML_KEY = re.compile(r"^['\"]?[\w.-]+['\"]?:[ \t]*(?:#.*)?$")
OWN_HEADER = re.compile(r"^\[(?:hosts|groups)\.[^\]:]+\]", re.MULTILINE)
OWN_START = re.compile(r"^(?:\[(?:hosts|groups)\]|(?:hosts|groups)\s*=)", re.MULTILINE)
SECTION = re.compile(r"^[ \t]*\[[^\]:,-]+(?::(?:vars|children|hosts))?\][ \t]*(?:#.*)?$", re.MULTILINE)
HOST_LINE = re.compile(r"^[ \t]*Host(?:[ \t]+|[ \t]*=[ \t]*)(?!\w+=|#)\S", re.MULTILINE | re.IGNORECASE)
SLOTS = re.compile(r"^[^#\n]*\s(?:max[_-])?slots\s*=", re.MULTILINE)
SETTING = re.compile(r"^[ \t]*[^#\s]+[ \t]+\w+=", re.MULTILINE)
ANSIBLE_VARIABLE = re.compile(r"^[^#\n]*\s(?:ansible|mnspawn)_\w+=", re.MULTILINE)


def is_script(head: bytes, is_executable: bool) -> bool:
    """Whether a file is a program. Some file systems set the executable bit on all files, so the head decides, too."""
    return is_executable and head.startswith((b"#!", b"\x7fELF"))


def detect(path: PurePath, text: "Text") -> str:
    """The name of the format; `hostfile` if there is no sign of another one.

    Raises:
        InventoryError: only some lines are those of an ssh_config.
    """
    content = text.content
    by_name = SUFFIXES.get(path.suffix.lower()) or NAMES.get(path.name)
    if by_name is None and path.name.endswith(SSH_SUFFIXES):
        by_name = "ssh-config"
    found = by_name or _by_content(content)
    if found == "ssh-config":
        from mnspawn_inventory.formats import ssh_keywords  # late: few inventories are ssh_configs

        ssh_keywords.check(text, is_named=by_name is not None)
    if found != "hostfile":
        return found
    named = next((name for part, name in NAMED_AFTER.items() if _is_named(part, path.name.lower())), found)
    if named == "mpich" and "mpich" not in path.name.lower() and SLOTS.search(content):
        return found  # Open MPI has an option --machinefile, too
    if named in REPEATED and SETTING.search(content):
        return found
    return named


def _is_named(part: str, name: str) -> bool:
    """Whether a name contains the part; short parts must be a word of their own."""
    return part in name if len(part) > 3 else part in re.split(r"[^a-z]+", name)


def _by_content(content: str) -> str:
    first = SIGNIFICANT.search(content)
    if first is None:
        return "hostfile"
    start = first[1]
    if start.startswith("{"):
        return "json"
    if (
        start.rstrip() == "---"
        or start.startswith("--- ")
        or (YAML_KEY.match(start) and re.search(r"^[ ]+\S", content, re.M))
    ):
        return "ansible-yaml"
    if OWN_HEADER.search(content) or (OWN_START.search(content) and _is_toml(content)):
        return "toml"
    if SECTION.search(content):
        return "ansible-ini"
    if HOST_LINE.search(content):
        return "ssh-config"
    if ANSIBLE_VARIABLE.search(content):
        return "ansible-ini"
    return "hostfile"


def _is_toml(content: str) -> bool:
    import tomllib  # late: few files need it

    try:
        tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return True
