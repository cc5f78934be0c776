"""Finds programs as a shell would, and the Python interpreters of this host. Starts interpreters only to ask them."""

import glob
import os
import re
import sys
from typing import Callable, Dict, List, Optional, Tuple

from ..streams import read_within

NAMES = ("python3", "python")  # what people type once an environment is activated
NAME = re.compile(r"python(3\.\d+)$")
VERSIONED_FOLDERS = ("~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin", "/opt/python*/bin", "/usr/local/bin")
ASK = "import sys; print('%d.%d' % sys.version_info[:2])"
ASK_PATH = "import sys; print(sys.executable)"
ASK_TIMEOUT = 60.0  # seconds; a cold interpreter on a network file system can take ten


def find(name: str, path: str, folder: str) -> Optional[str]:
    """The file that a name means; None where there is none that can be executed.

    Args:
        path: as in PATH; an empty entry is `folder`.
        folder: that relative names and entries start from.
    """
    folders = [""] if "/" in name else path.split(os.pathsep)
    for entry in folders:
        found = os.path.join(folder, entry, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def of_environment(
    before: Dict[str, str], after: Dict[str, str], folder: str, meanwhile: Callable[[], object]
) -> Optional[str]:
    """The interpreter that PATH leads to once a prelude has run; ours where that is none for us and always was.

    Args:
        before, after: environments before and after the prelude.
        folder: that relative entries of PATH start from.
    """
    own = sys.executable or "python3"
    paths = [environ.get("PATH", os.defpath) for environ in (before, after)]
    old, new = (next(filter(None, (find(name, path, folder) for name in NAMES)), None) for path in paths)
    if new is None:
        return own
    if new != old or os.path.realpath(new) == os.path.realpath(own):
        return new
    # a shim of pyenv's leads to another interpreter in another environment
    then, now = (_ask(new, ASK_PATH, meanwhile, environ) for environ in (before, after))
    return own if now == then else new


def problem_with(
    python: str, wanted: List[int], meanwhile: Callable[[], object], environ: Dict[str, str]
) -> Optional[str]:
    """Why an interpreter, started in `environ`, can't run what Python `wanted` ([3, 11]) made; None when it can."""
    found = version_of(python, meanwhile, environ)
    if found == ".".join(map(str, wanted)):
        return None
    others = ", ".join("%s (%s)" % pair for pair in versioned()) or "none with a version in its name"
    return "expected Python %s, as here, to run the function, found %s at %s; on this host there are: %s" % (
        ".".join(map(str, wanted)),
        found,
        python,
        others,
    )


def version_of(python: str, meanwhile: Callable[[], object], environ: Dict[str, str]) -> str:
    """Its minor version ("3.11"), or "no Python"; `meanwhile` is called while it starts."""
    if os.path.abspath(python) == os.path.abspath(sys.executable or ""):
        return "%d.%d" % sys.version_info[:2]
    return _ask(python, ASK, meanwhile, environ)


def _ask(python: str, code: str, meanwhile: Callable[[], object], environ: Dict[str, str]) -> str:
    """What it prints for a line of code, or why it prints nothing."""
    import subprocess  # late: most runs ask nobody

    try:
        process = subprocess.Popen(
            [python, "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, env=environ,
        )  # fmt: skip
    except OSError:
        return "no Python"
    assert process.stdout is not None
    try:
        answer = read_within(process.stdout.fileno(), ASK_TIMEOUT, meanwhile)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if answer is None:
        return "one that does not start within %.0f s" % ASK_TIMEOUT
    return answer.decode("utf-8", "replace").strip() or "no Python"


def versioned() -> List[Tuple[str, str]]:
    """(version, path) of interpreters whose file name tells their version, one per version, PATH first."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for pattern in VERSIONED_FOLDERS:
        folders += sorted(glob.glob(os.path.expanduser(pattern)))
    found = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue  # PATH may name folders that don't exist
        for name in names:
            match = NAME.match(name)
            path = os.path.join(folder, name)
            if match and match.group(1) not in found and os.access(path, os.X_OK):
                found[match.group(1)] = path
    return sorted(found.items(), key=lambda item: int(item[0].partition(".")[2]))
