"""Unit tests stay in memory: what they may not import. tests/unit/conftest.py watches what they do."""

from tests.support.controller import REPOSITORY
from tests.support.source import imported_roots, modules, shown

UNIT = REPOSITORY / "tests" / "unit"
OUTSIDE = {"subprocess", "socket", "multiprocessing"}  # processes and networks: tests/agent, tests/ssh, tests/cli, ...


def test_unit_tests_start_no_process_and_open_no_socket() -> None:
    assert {shown(path): found for path in modules(UNIT) if (found := imported_roots(path) & OUTSIDE)} == {}
