"""Rules for prose that can be checked: the words that people read, and how help begins."""

import ast
import re

import pytest

from mnspawn.cli.table import COMMANDS
from mnspawn.settings.table import OPTIONS
from tests.support.controller import REPOSITORY
from tests.support.source import AGENT, CONTROLLER, INVENTORY, modules, shown, tree

OLD_WORD = re.compile(r"\btrainers?\b", re.IGNORECASE)
IN_JSON = {"trainer", "trainers", "trainer_", "trainer_started", "trainer_exited", "trainer_output"}  # 0.1.0's keys


def texts() -> list[tuple[str, str]]:
    """Every string of the program, docstrings included, with its place."""
    return [
        (f"{shown(path)}:{node.lineno}", node.value)
        for path in modules(CONTROLLER, AGENT, INVENTORY)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_a_process_of_a_rank_is_called_worker() -> None:
    found = [
        f"{place}: {text[:80]!r}"
        for place, text in texts()
        if OLD_WORD.search(text) and text not in IN_JSON and "Paddle" not in text
    ]
    assert found == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs"])
def test_docs_call_it_worker_too(name: str) -> None:
    place = REPOSITORY / name
    pages = [place] if place.is_file() else sorted(place.rglob("*.md"))
    found = [
        f"{shown(page)}:{number}: {line}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if OLD_WORD.search(line) and not line.startswith("| worker |")  # what others call it
    ]
    assert found == []


NO_VERB = re.compile(r"(A|All|An|Any|At|By|For|From|How|If|In|Its|No|Not|Of|On|Only|The|These|This|What|When|Which)\b")


def test_help_begins_with_what_it_does() -> None:
    helps = {option.flags[0]: option.help for option in OPTIONS} | {name: one.help for name, one in COMMANDS.items()}
    assert {name: text for name, text in helps.items() if NO_VERB.match(text) or not text.endswith(".")} == {}
