import os

import pytest

from mnspawn_agent.protocol.exits import as_shell_status, from_wait_status, signal_name


@pytest.mark.parametrize(
    ("status", "code"),
    [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, -9), (15, -15), (11 | 0x80, -11)],
    ids=["0", "7", "255", "KILL", "TERM", "SEGV with core"],
)
def test_a_wait_status_becomes_a_code_as_popen_has_it(status: int, code: int) -> None:
    assert from_wait_status(status) == code
    assert from_wait_status(status) == os.waitstatus_to_exitcode(status)


def test_a_shell_says_a_signal_as_128_and_its_number() -> None:
    assert [as_shell_status(code) for code in (0, 1, 255, -2, -9, -15)] == [0, 1, 255, 130, 137, 143]


def test_signals_have_names_also_those_that_this_system_does_not_know() -> None:
    assert [signal_name(code) for code in (-9, -11, -15)] == ["SIGKILL", "SIGSEGV", "SIGTERM"]
    assert signal_name(-77) == "SIG77"
    assert [signal_name(code) for code in (0, 7, 137)] == [None, None, None]
