"""The keeper of a detached run, without processes."""

from pathlib import Path

import pytest

from mnspawn.engine import keeper
from mnspawn.engine.look.view import ViewOptions, ViewResult
from mnspawn.engine.registry import KnownRun, Registry
from mnspawn.report import HostOutcome, RunReport
from mnspawn_inventory import Host

KNOWN = KnownRun("1a2b3c4d", (Host(name="a"), Host(name="b")), (1, 1), grace=3.0)


def seen(lost: str | None) -> ViewResult:
    hosts = (HostOutcome("a", None, True), HostOutcome("b", lost, lost is None))
    return ViewResult(RunReport(KNOWN.run, 5, f"host b was lost: {lost}", 9.0, None, (), hosts), True, False, {})


def test_a_host_that_was_cut_off_is_stopped_when_it_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ViewOptions] = []
    answers = iter([seen("no link for 20 s"), seen("no link for 20 s"), seen(None)])

    async def view_run(known: KnownRun, listeners: object, options: ViewOptions) -> ViewResult:
        asked.append(options)
        return next(answers)

    monkeypatch.setattr(keeper, "view_run", view_run)
    monkeypatch.setattr(keeper, "RETURN_LOOK", 0.0)
    Registry(tmp_path).remember(KNOWN)
    assert keeper.keep(tmp_path, KNOWN.run) == 0
    assert [(options.is_in_charge, options.stop) for options in asked] == [(True, None), (False, 3.0), (False, 3.0)]
    report = Registry(tmp_path).report(KNOWN.run)
    assert report is not None
    assert report["reason"] == "host b was lost: no link for 20 s"
    assert [(host["lost"], host["is_confirmed"]) for host in report["hosts"]] == [
        (None, True),
        ("no link for 20 s", True),  # as it has turned out
    ]
