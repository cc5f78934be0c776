"""No verdict depends on how fast or busy the machine is: tests read no clock and wait patiently."""

import ast
import re
from collections.abc import Iterator

from tests.support.controller import REPOSITORY
from tests.support.source import modules, shown, tree

CLOCK = re.compile(
    r"\b(?:monotonic|perf_counter|process_time|thread_time)(?:_ns)?\(|\btime\.time(?:_ns)?\(|\bos\.times\b"
    r"|\bru_[us]time\b|\bEPOCHREALTIME\b|\bdefault_timer\b|\.now\(|\.seconds (?:<|>)"
)
READ_A_CLOCK = {
    "tests/agent/live.py": "a session is told what time it is",
    "tests/unit/engine/scripted.py": "a channel is told what time it is",
    "tests/agent/test_watch.py": "what a watcher makes of a run that began at a time",
    "tests/net/test_phases.py": "ranks fail at a time of which they are told",
    "tests/house/test_support.py": "a slow cable takes as long as it was told to at least, on any machine",
}
LEAST = 30.0  # seconds
WAITS = {"wait", "wait_for", "wait_until", "wait_until_async", "wait_idle", "join", "timeout"}


def test_tests_read_no_clock() -> None:
    """Work is counted (tests.support.work), and seconds are for bench/."""
    found = {shown(path) for path in modules(REPOSITORY / "tests") if CLOCK.search(path.read_text(encoding="utf-8"))}
    assert {path for path in found if not path.startswith("tests/support/")} == set(READ_A_CLOCK)


def _deadlines(call: ast.Call) -> Iterator[float]:
    """Numbers that a call gives as a deadline."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [keyword.value for keyword in call.keywords if keyword.arg in ("timeout", "connect_timeout")]
    if name in WAITS:
        given += call.args
    for value in given:
        if isinstance(value, ast.Constant) and type(value.value) in (int, float):
            yield float(str(value.value))


def test_deadlines_are_patient() -> None:
    """They bound what hangs; a limit that must not strike is large, one that must has a name that says so."""
    found = []
    for path in modules(REPOSITORY / "tests"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                found += [f"{shown(path)}:{node.lineno}: {limit}" for limit in _deadlines(node) if limit < LEAST]
    assert found == []
