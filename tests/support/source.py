"""The project's own source as the house rules read it: files, syntax trees, imports. Runs nothing of it."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.controller import REPOSITORY

CONTROLLER = REPOSITORY / "orchestrator" / "mnspawn"
AGENT = REPOSITORY / "agent" / "mnspawn_agent"
INVENTORY = REPOSITORY / "inventory" / "mnspawn_inventory"
PACKAGES = (CONTROLLER, AGENT, INVENTORY)


def modules(*folders: Path) -> list[Path]:
    """Every Python file below the folders (or the file itself)."""
    found: list[Path] = []
    for folder in folders:
        found += [folder] if folder.is_file() else folder.rglob("*.py")
    return sorted(found)


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports anywhere, functions included; `from a import b` gives `a.b`."""
    package = path.parent.relative_to(next((root.parent for root in PACKAGES if path.is_relative_to(root)), REPOSITORY))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.parts[: len(package.parts) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


@functools.cache
def published_files() -> list[Path]:
    """Files that git knows or would add: what others get to see."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={REPOSITORY}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return sorted(REPOSITORY / name for name in listed.split("\0") if name and (REPOSITORY / name).is_file())
