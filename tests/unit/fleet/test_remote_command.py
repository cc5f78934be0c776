"""Which words are a command for hosts, and the status of many hosts' commands."""

import pytest

from mnspawn.core.remote_command import LONGEST, compose, worst
from mnspawn.errors import UsageError


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["x" * LONGEST]])
def test_what_is_no_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        compose(argv)


def test_the_worst_status_is_the_largest() -> None:
    assert worst([0, 3, 1]) == 3
    assert worst([]) == 0
