"""Runs as a machine remembers them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mnspawn import api
from mnspawn.engine.registry import KnownRun, Registry
from mnspawn.errors import HostError
from mnspawn.transport.base import SshOptions
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


@pytest.mark.parametrize(
    ("silent", "found"),
    [
        ((), [("1a2b3c4d", ["a", "b", "c"])]),
        (("b",), [("1a2b3c4d", ["a", "b", "c"])]),
        (("a",), [("1a2b3c4d", ["a", "b", "c"])]),
        (("a", "b"), []),  # which of them is which?
    ],
)
def test_a_run_is_found_though_one_host_is_silent(
    monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...], found: list[tuple[str, list[str]]]
) -> None:
    names = ["c", "a", "b"]

    async def ask(*_: object, **__: object) -> list[api.Answer]:
        plan = {"run": "1a2b3c4d", "world": [1, 1, 1], "began": 1.0}
        return [
            api.Answer(index, name, None, HostError("no answer", host=name))
            if name in silent
            else api.Answer(
                index, name, [{"run": "1a2b3c4d", "node_rank": "abc".index(name), "plan": plan, "is_here": True}], None
            )
            for index, name in enumerate(names)
        ]

    monkeypatch.setattr(api, "ask", ask)
    hosts = tuple(Host(name=name) for name in names)
    runs, _ = asyncio.run(api.find_runs(hosts, transport="asyncssh", ssh=SshOptions(), misses_one=True))
    assert [(known.run, [host.name for host in known.hosts]) for known in runs] == found
    runs, _ = asyncio.run(api.find_runs(hosts, transport="asyncssh", ssh=SshOptions()))
    assert bool(runs) is not bool(silent)  # a mistyped name is no reason to take a run over and find a host lost
