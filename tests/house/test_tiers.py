"""What `make test` runs: every kind of test, and whatever ARGS names."""

import ast
import subprocess
import sys
from typing import Any

import pytest

from tests.support import PATIENCE
from tests.support.controller import REPOSITORY
from tests.support.source import modules, tree
from tests.support.tiers import is_quick


class Item:
    """A test with marks and fixtures."""

    def __init__(self, marks: set[str], fixtures: tuple[str, ...]) -> None:
        self.fixturenames = fixtures
        self._marks = marks

    def get_closest_marker(self, name: str) -> bool:
        return name in self._marks


@pytest.mark.parametrize(
    ("marks", "fixtures", "quick"),
    [
        (set(), (), True),
        (set(), ("local_sshd", "agent_python"), True),
        ({"full"}, (), False),
        (set(), ("cluster",), False),
        (set(), ("make_cluster",), False),
        ({"frameworks"}, (), False),
        ({"essential"}, ("make_cluster",), True),
        ({"essential", "full"}, (), True),  # of a module that is marked full
    ],
)
def test_a_test_is_quick_unless_it_is_expensive(marks: set[str], fixtures: tuple[str, ...], quick: bool) -> None:
    item: Any = Item(marks, fixtures)
    assert is_quick(item) == quick


@pytest.mark.parametrize("folder", ["cli", "contract", "house", "net", "spawn", "ssh"])
def test_hosts_are_in_the_quick_tier_for_every_kind_of_test(folder: str) -> None:
    marked = [
        ast.unparse(decorator)
        for path in modules(REPOSITORY / "tests" / folder)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
    ]
    assert "pytest.mark.essential" in marked


@pytest.mark.parametrize("words", [["tests/net/test_terminal.py"], ["-k", "test_progress_bars"]])
def test_whoever_names_tests_gets_them_whatever_their_tier(words: list[str]) -> None:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--tier", "quick", *words]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert "test_progress_bars_stay_in_place_on_a_terminal" in done.stdout, done.stdout + done.stderr
    assert "left out" not in done.stdout
