"""Runs as a machine remembers them."""

import json
from pathlib import Path
from typing import Any

import pytest

from mnspawn.engine.registry import KnownRun, Registry
from mnspawn_inventory import Host


def test_a_run_is_read_as_it_was_remembered(tmp_path: Path) -> None:
    known = KnownRun("1a2b3c4d", (Host(name="a", devices=(0, 1)),), (2,), name="deep", began=5.0)
    Registry(tmp_path).remember(known)
    assert Registry(tmp_path).read("1a2b3c4d") == known


def test_what_a_full_disk_does_not_take_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dump(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", dump)
    with pytest.raises(OSError, match="No space left"):
        Registry(tmp_path).remember(KnownRun("1a2b3c4d", (Host(name="a"),), (1,)))
    assert list((tmp_path / "1a2b3c4d").iterdir()) == []
