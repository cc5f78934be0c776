"""Where the real frameworks (torch, paddle, jax) are installed by `make frameworks`, each apart from the others."""

import os
from pathlib import Path

from tests.support.controller import REPOSITORY

FRAMEWORKS = ("torch", "paddle", "jax")
COMMANDS = {"torch": ("torchrun", "accelerate", "deepspeed")}  # Accelerate and DeepSpeed are with torch


def environment(framework: str) -> Path:
    """Folder of the virtual environment that has the framework, whether it is there or not."""
    return Path(os.environ.get("MNSPAWN_FRAMEWORKS") or REPOSITORY) / f".venv-{framework}"


def python(framework: str) -> Path:
    """Its interpreter, at the path that hosts see too."""
    return environment(framework) / "bin" / "python"


def command(framework: str, name: str) -> Path:
    """A command of its environment, such as torchrun."""
    return environment(framework) / "bin" / name


def is_installed(framework: str) -> bool:
    """All of it: the commands that come with it, too."""
    return all(command(framework, name).exists() for name in ("python", *COMMANDS.get(framework, ())))


def seen_by_hosts() -> list[Path]:
    """What hosts have to see for these interpreters to run there, beyond /usr."""
    folders: set[Path] = set()
    for framework in FRAMEWORKS:
        if is_installed(framework):
            base = python(framework).resolve().parent.parent
            folders |= {environment(framework)} | (set() if base.is_relative_to("/usr") else {base})
    return sorted(folders)
