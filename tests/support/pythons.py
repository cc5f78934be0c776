"""The CPythons of this machine that hosts could have: 3.6 and newer, as pyenv, Debian and others install them."""

import functools
import glob
import os
import pwd
import subprocess
from pathlib import Path

OLDEST = (3, 6)
NEWEST = (3, 99)
PLACES = ("/usr/bin/python3.*", "/usr/local/bin/python3.*", "/opt/hostedtoolcache/Python/*/x64/bin/python3.*")
QUESTION = "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix)"


def pyenv_versions() -> Path:
    """Where pyenv keeps its interpreters, also when HOME is another one for the tests."""
    root = os.environ.get("PYENV_ROOT") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pyenv"
    return Path(root) / "versions"


@functools.cache
def agent_pythons() -> dict[str, Path]:
    """One interpreter for each minor version found, by version, oldest first."""
    found: dict[tuple[int, ...], Path] = {}
    for pattern in (f"{pyenv_versions()}/*/bin/python3.*", *PLACES):
        for name in sorted(glob.glob(pattern)):
            words = Path(name).name.removeprefix("python").split(".")
            if len(words) != 2 or not all(word.isdecimal() for word in words):  # python3.6m, python3.6-config
                continue
            version = tuple(int(word) for word in words)
            if OLDEST <= version <= NEWEST and version not in found and _answers(name):
                found[version] = Path(name)
    return {".".join(map(str, version)): found[version] for version in sorted(found)}


def _answers(python: str) -> bool:
    return subprocess.run([python, "-S", "-c", QUESTION], capture_output=True, check=False).returncode == 0


def prefixes() -> list[Path]:
    """What a host has to see for every one of them to run there, beyond /usr."""
    folders = {python.parent.parent for python in agent_pythons().values()}
    return sorted(folder for folder in folders if not folder.is_relative_to("/usr"))
