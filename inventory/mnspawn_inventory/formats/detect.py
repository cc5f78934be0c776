"""Which format a file has, told by its name and content."""

import re
from pathlib import PurePath

SUFFIXES = {".toml": "toml", ".yml": "ansible-yaml", ".yaml": "ansible-yaml", ".json": "json", ".ini": "ansible-ini"}
NAMES = {"config": "ssh-config", "ssh_config": "ssh-config"}
SSH_SUFFIXES = ("ssh_config", "ssh-config", ".sshconfig")
# part of the name -> format, for those that content doesn't tell apart
NAMED_AFTER = {"machinefile": "mpich", "openmpi": "openmpi", "deepspeed": "deepspeed", "nodefile": "pbs", "lsf": "lsf"}

SIGNIFICANT = re.compile(r"^[ \t]*([^\s#;].*)$", re.MULTILINE)
YAML_KEY = re.compile(r"^['\"]?[\w.-]+['\"]?:[ \t]*(?:#.*)?$")
OWN_HEADER = re.compile(r"^\[(?:hosts|groups)\.[^\]:]+\]", re.MULTILINE)
OWN_START = re.compile(r"^(?:\[(?:hosts|groups)\]|(?:hosts|groups)\s*=)", re.MULTILINE)
SECTION = re.compile(r"^[ \t]*\[[^\]:,-]+(?::(?:vars|children|hosts))?\][ \t]*(?:#.*)?$", re.MULTILINE)
HOST_LINE = re.compile(r"^[ \t]*Host(?:[ \t]+|[ \t]*=[ \t]*)(?!\w+=)\S", re.MULTILINE | re.IGNORECASE)
SLOTS = re.compile(r"^[^#\n]*\s(?:max[_-])?slots\s*=", re.MULTILINE)
ANSIBLE_VARIABLE = re.compile(r"^[^#\n]*\s(?:ansible|mnspawn)_\w+=", re.MULTILINE)


def is_script(head: bytes, is_executable: bool) -> bool:
    """Whether a file is a program: an executable bit alone is set on all files of some file systems."""
    return is_executable and head.startswith((b"#!", b"\x7fELF"))


def detect(path: PurePath, content: str) -> str:
    """The format's name; a hostfile where nothing tells otherwise."""
    by_name = SUFFIXES.get(path.suffix.lower()) or NAMES.get(path.name)
    if by_name is None and path.name.endswith(SSH_SUFFIXES):
        by_name = "ssh-config"
    if by_name is not None:
        return by_name
    found = _by_content(content)
    if found != "hostfile":
        return found
    named = next((name for part, name in NAMED_AFTER.items() if part in path.name.lower()), found)
    if named == "mpich" and "mpich" not in path.name.lower() and SLOTS.search(content):
        return found  # Open MPI has an option --machinefile, too
    return named


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
    import tomllib  # late: few files leave a doubt

    try:
        tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError):  # the question is whether it is
        return False
    return True
