"""Lists of runs, however many there were."""

import json
from pathlib import Path
from typing import Any

import pytest

from mnspawn.api import listing
from mnspawn.api.runs import KnownRun
from mnspawn.engine.registry import Registry, default_root
from mnspawn_inventory import Host


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """What this machine knows: 50 runs; it has not seen the end of every fifth."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known_runs = Registry(default_root({"XDG_STATE_HOME": str(tmp_path)}))
    for number in range(50):
        known_runs.remember(KnownRun(f"{number:08d}", (Host(name="a"),), (1,), began=1000.0 + number))
        if number % 5:
            known_runs.write_report(f"{number:08d}", {"exit_status": number})
    monkeypatch.setattr(listing, "ask_hosts", nobody_answers)
    return known_runs


async def nobody_answers(unknown: object) -> dict[str, dict[str, Any]]:
    return {}


def test_runs_that_are_not_shown_are_not_read(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    loads = json.loads

    def counted(text: bytes) -> Any:
        nonlocal count
        count += 1
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    rows, left_out = listing.summaries(3)
    assert [(row.run, row.shown_state) for row in rows[:5]] == [
        ("00000049", "ended (49)"),
        ("00000048", "ended (48)"),
        ("00000047", "ended (47)"),
        ("00000045", "unknown"),
        ("00000040", "unknown"),
    ]
    assert (len(rows), left_out) == (13, 37)
    assert count == 13 + 3  # their records, and the reports of those that have ended
    assert [row.run for row in listing.summaries(None)[0]] == [f"{number:08d}" for number in range(49, -1, -1)]
