"""The boundary: every error becomes one exit status and a line or two; only our bugs speak of bugs."""

from collections.abc import Iterator

import pytest

from mnspawn.cli import main as entry
from mnspawn.cli.main import guard
from mnspawn.errors import AuthRefused, HostsUnusable, InternalError, PlanRefused, UsageError
from mnspawn.system import interrupts
from mnspawn_inventory import InventoryError, Origin


@pytest.fixture(autouse=True)
def _interrupts_as_before() -> Iterator[None]:
    before = interrupts.forget()
    yield
    interrupts.restore(before)


def failing(error: BaseException) -> int:
    def command() -> int:
        raise error

    return guard(command, ["train.py"])


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UsageError("expected 1, found 2", place="--grace"), 2, "mnspawn: --grace: expected 1, found 2\n"),
        (AuthRefused("no key was accepted", host="a"), 3, "mnspawn: a: no key was accepted\n"),
        (HostsUnusable([AuthRefused("no", host=h) for h in ("a1", "a2")]), 3, "mnspawn: 2 hosts: no: a[1-2]\n"),
        (PlanRefused([("a", "port 80 is taken")]), 4, "mnspawn: a: port 80 is taken\n"),
        (InventoryError("twice", place=Origin("f", 2, 1), hint="h"), 2, "mnspawn: f:2:1: twice\n  hint: h\n"),
        (KeyboardInterrupt(), 130, ""),
        (ExceptionGroup("", [ExceptionGroup("", [UsageError("no")])]), 2, "mnspawn: no\n"),
        (BaseExceptionGroup("", [KeyboardInterrupt()]), 130, ""),
    ],
)
def test_errors_and_their_statuses(
    error: BaseException, status: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert failing(error) == status
    assert capfd.readouterr() == ("", said)


@pytest.mark.parametrize("error", [KeyError("x"), InternalError("can't be"), ExceptionGroup("", [KeyError("x")])])
def test_our_bugs_are_called_that_without_a_traceback(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    assert failing(error) == 70
    said = capfd.readouterr().err
    assert said.startswith("mnspawn: this is a bug in mnspawn, please report it: ")
    assert "MNSPAWN_DEBUG=1" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [["-v", "x.py"], ["--verbose", "--hosts", "a", "x.py"], ["-xA=1", "-vv", "x.py"]])
def test_those_who_ask_see_where_a_bug_is(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise KeyError("x")

    assert guard(command, words) == 70
    assert "Traceback" in capfd.readouterr().err


def test_the_programs_own_v_is_not_ours(capfd: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise KeyError("x")

    assert guard(command, ["x.py", "-v"]) == 70
    assert "Traceback" not in capfd.readouterr().err


def test_debug_in_the_environment_shows_where(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MNSPAWN_DEBUG", "1")
    assert failing(KeyError("x")) == 70
    assert "Traceback" in capfd.readouterr().err


def test_typers_own_exits_keep_their_status() -> None:
    assert failing(SystemExit(3)) == 3
    assert failing(SystemExit(None)) == 0
    assert failing(SystemExit("text")) == 1


def test_version_wherever_it_stands_before_the_script(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["--hosts", "a", "--version"], ["run", "--version"]):
        assert entry.main(words) == 0
        assert capfd.readouterr() == ("mnspawn 0.1.0\n", "")
