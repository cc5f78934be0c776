"""How the tree looks: folders, sizes, first lines, and what must never be published."""

import ast
import re

import pytest

from tests.support.controller import REPOSITORY
from tests.support.source import (
    AGENT,
    CONTROLLER,
    INVENTORY,
    PACKAGES,
    modules,
    published_files,
    shown,
    tree,
)

LONGEST = 400
PACKAGE_FOLDERS = {"orchestrator": CONTROLLER, "agent": AGENT, "inventory": INVENTORY}


def test_top_level_folders_hold_one_package_and_no_loose_module() -> None:
    for name, package in PACKAGE_FOLDERS.items():
        assert sorted(shown(path) for path in (REPOSITORY / name).glob("*.py")) == []
        packages = {path.parent for path in (REPOSITORY / name).glob("*/__init__.py")}
        assert packages == {package}


def test_modules_are_small() -> None:
    found = {}
    for path in modules(*PACKAGES):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > LONGEST:
            found[shown(path)] = lines
    assert found == {}


def test_modules_say_their_job_in_their_first_line() -> None:
    found = []
    for path in modules(*PACKAGES, REPOSITORY / "tests" / "support"):
        docstring = ast.get_docstring(tree(path)) or ""
        is_empty = not path.read_text(encoding="utf-8").strip()
        first = docstring.partition("\n")[0]
        if not (first.endswith((".", ".)", "?")) or (is_empty and path.name == "__init__.py")):
            found.append(f"{shown(path)}: {first!r}")
    assert found == []


def test_names_say_something() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "handle", "tools"}
    assert [shown(path) for path in modules(*PACKAGES) if path.stem in vague] == []


BROAD = {"Exception", "BaseException"}


def test_broad_excepts_say_why_or_pass_the_error_on() -> None:
    found = []
    for path in modules(*PACKAGES):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            is_broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in BROAD)
            last = node.body[-1]
            passes_on = isinstance(last, ast.Raise) and last.exc is None
            says_why = any("#" in line for line in lines[node.lineno - 1 : node.body[0].lineno])
            if is_broad and not passes_on and not says_why:
                found.append(f"{shown(path)}:{node.lineno}")
    assert found == []


def _joined(*pieces: str) -> str:
    """A pattern that this file itself does not match."""
    return "".join(pieces)


NEVER_PUBLISHED = {
    "a registry's address": _joined(r"files\.pythonhosted|pypi\.org/", r"simple|registry\.npmjs|deb\.debian\.", "org"),
    "a path of a build machine": _joined("/wo", "rk/(main|shared|venv|ci-)|/fa", "rm/|/opt/whe", "els|/Us", "ers/"),
    "a conflict mark": _joined("^<<<<", "<<< |^>>>>", ">>> "),
    "how it was written": _joined(
        r"(?i)\b(clau",
        r"de|anthro",
        r"pic|open",
        r"ai|chat",
        r"gpt|copi",
        r"lot|ll",
        r"m|language mo",
        r"del|ai[- ]gener",
        r"ated)\b",
    ),
    "a secret": _joined(
        "-----BEGIN [A-Z ]*PRIVATE", r" KEY-----\s+[0-9A-Za-z+/]{40}|AKIA[0-9A-Z]{16}|ghp_[0-9A-Za-z]{36}"
    ),
}
LOCK_FILES = {"uv.lock", "poetry.lock", "pylock.toml", "Pipfile.lock", "pdm.lock"}


@pytest.mark.parametrize("kind", NEVER_PUBLISHED)
def test_nothing_is_published_that_nobody_should_read(kind: str) -> None:
    pattern = re.compile(NEVER_PUBLISHED[kind], re.MULTILINE)
    found = []
    for path in published_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{shown(path)}: {match.group()}" for match in pattern.finditer(text)]
    assert found == []


def test_lock_files_with_registry_addresses_are_not_published() -> None:
    assert [shown(path) for path in published_files() if path.name in LOCK_FILES] == []


def test_constraints_are_plain_pins() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    wrong = [line for line in lines if line and not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9A-Za-z.+]+", line)]
    assert wrong == []
