"""Where the real frameworks (torch, paddle, jax) are installed by `make frameworks`, each apart from the others."""

import os
from pathlib import Path

from tests.support.controller import REPOSITORY

FRAMEWORKS = ("torch", "paddle", "jax")


def environment(framework: str) -> Path:
    """Folder of the virtual environment that has the framework, whether it is there or not."""
    return Path(os.environ.get("MNSPAWN_FRAMEWORKS") or REPOSITORY) / f".venv-{framework}"


def python(framework: str) -> Path:
    """Its interpreter, at the path that hosts see too."""
    return environment(framework) / "bin" / "python"


def is_installed(framework: str) -> bool:
    return python(framework).exists()


def seen_by_hosts() -> list[Path]:
    """What hosts have to see for these interpreters to run there, beyond /usr."""
    folders: set[Path] = set()
    for framework in FRAMEWORKS:
        if is_installed(framework):
            base = python(framework).resolve().parent.parent
            folders |= {environment(framework)} | (set() if base.is_relative_to("/usr") else {base})
    return sorted(folders)
