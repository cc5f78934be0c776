"""Which words are a command for hosts, and the status of many hosts' commands."""

import pytest

from mnspawn.core.remote_command import LONGEST, command_line
from mnspawn.errors import UsageError


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["x" * LONGEST]])
def test_what_is_no_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        command_line(argv)
