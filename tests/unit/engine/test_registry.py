"""Runs as a machine remembers them."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mnspawn.api import runs as api
from mnspawn.core.pods import Pod, Pods
from mnspawn.engine.registry import KEEP, KnownRun, Registry
from mnspawn.engine.request import RunRequest
from mnspawn.engine.run.record import Record
from mnspawn.errors import HostError, UsageError
from mnspawn.plan.launch_plan import Program
from mnspawn.transport.base import SshOptions
from mnspawn_inventory import Host


def test_a_run_is_read_as_it_was_remembered(tmp_path: Path) -> None:
    known = KnownRun("1a2b3c4d", (Host(name="a", devices=(0, 1)),), (2,), name="deep", began=5.0)
    Registry(tmp_path).remember(known)
    assert Registry(tmp_path).read("1a2b3c4d") == known


def test_what_a_newer_version_wrote_down_besides_is_ignored(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    known = KnownRun("1a2b3c4d", (Host(name="a", devices=(0, 1)),), (2,), name="deep", began=5.0)
    registry.remember(known)
    path = tmp_path / "1a2b3c4d" / "run.json"
    content = json.loads(path.read_text())
    for described in (content, content["ssh"], content["hosts"][0]):
        described["colour"] = "blue"
    path.write_text(json.dumps(content))
    assert list(registry.known()) == [known]
    assert registry.find("deep") == known


def test_what_a_full_disk_does_not_take_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dumps(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", dumps)
    with pytest.raises(OSError, match="No space left"):
        Registry(tmp_path).remember(KnownRun("1a2b3c4d", (Host(name="a"),), (1,)))
    assert list((tmp_path / "1a2b3c4d").iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "[]", '"text"', "7", "[" * 200_000, "{}", '{"hosts": 7}', '{"hosts": ["a"]}', "of another run"]
)
def test_a_record_that_is_none_hides_no_other(tmp_path: Path, content: str) -> None:
    registry = Registry(tmp_path)
    registry.remember(KnownRun("1a2b3c4d", (Host(name="a"),), (1,)))
    for name in ("deadbeef", "no id"):
        (tmp_path / name).mkdir()
        whole = (tmp_path / "1a2b3c4d" / "run.json").read_text()
        (tmp_path / name / "run.json").write_text(whole if content == "of another run" else content)
        (tmp_path / name / "report.json").write_text(content)
    assert [known.run for known in registry.known()] == ["1a2b3c4d"]
    assert registry.find("1a2b").run == "1a2b3c4d"
    assert registry.report("deadbeef") in (None, {}, {"hosts": 7}, {"hosts": ["a"]})
    with pytest.raises(UsageError, match="expected a run known here"):
        registry.find("deadbeef")


# -- many runs


class Parsed:
    """Counts what is parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        loads = json.loads

        def counted(text: Any) -> Any:
            self.count += 1
            return loads(text)

        monkeypatch.setattr(json, "loads", counted)


def remember(registry: Registry, count: int) -> None:
    """Runs 00000000 and on, the first the oldest though written down last; those with an odd number are named odd."""
    for number in reversed(range(count)):
        run = f"{number:08d}"
        registry.remember(KnownRun(run, (Host(name="a"),), (1,), "odd" if number % 2 else None, {}, 1000.0 + number))


def test_a_launch_reads_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(Registry(tmp_path), KEEP + 2)
    parsed = Parsed(monkeypatch)
    request = RunRequest(Program("command", "true"), (Host(name="a"),), registry=tmp_path)
    record = Record(request, "1a2b3c4d", False, pytest.fail)
    with record.kept():
        record.begin(request.hosts, [1], {})
        assert Registry(tmp_path).holder("1a2b3c4d") == os.getpid()
        assert len(os.listdir(tmp_path)) == KEEP + 3  # nothing else happens on the way to the start
    assert parsed.count == 0
    assert sorted(os.listdir(tmp_path)) == [*(f"{number:08d}" for number in range(3, KEEP + 2)), "1a2b3c4d"]


def test_runs_come_newest_first_and_a_known_id_reads_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(tmp_path)
    remember(registry, 10)
    assert [known.run for known in registry.known()] == [f"{number:08d}" for number in range(9, -1, -1)]
    parsed = Parsed(monkeypatch)
    assert registry.find("00000004").run == "00000004"
    assert parsed.count == 1
    assert registry.find("odd").run == "00000009"
    assert registry.find("00000003").name == "odd"
    with pytest.raises(UsageError, match="fits 00000009, 00000008"):
        registry.find("000")


def test_what_somebody_looks_after_is_kept_however_old(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    remember(registry, KEEP + 3)
    with registry.hold("00000001") as is_ours:
        assert is_ours
        registry.prune()
    assert sorted(os.listdir(tmp_path))[:2] == ["00000001", "00000003"]


# -- launches that come to nothing


@pytest.mark.parametrize("error", [HostError("no answer", host="a"), KeyboardInterrupt()])
def test_a_launch_that_starts_nothing_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    request = RunRequest(Program("command", "true"), (Host(name="a"),), registry=tmp_path / "known")
    with pytest.raises(type(error)), Record(request, "1a2b3c4d", False, pytest.fail).kept():
        raise error
    assert not (tmp_path / "known").exists()


def test_a_run_that_can_not_be_remembered_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    said: list[str] = []
    request = RunRequest(Program("command", "true"), (Host(name="a"),), registry=tmp_path)
    record = Record(request, "1a2b3c4d", False, said.append)
    with record.kept():
        record.begin(request.hosts, [1], {})
    assert said == ["the run is not remembered on this machine: No space left on device"]
    assert os.listdir(tmp_path) == []


def test_what_killed_controllers_left_goes_with_a_later_run(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    remember(registry, 1)
    for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tender").write_text("123")
    for name in ("aaaaaaaa", "bbbbbbbb"):
        os.utime(tmp_path / name, (1000.0, 1000.0))
    with registry.hold("bbbbbbbb"):
        os.utime(tmp_path / "bbbbbbbb", (1000.0, 1000.0))
        registry.prune()
        assert sorted(os.listdir(tmp_path)) == ["00000000", "bbbbbbbb", "cccccccc"]  # cccccccc is just being made
    registry.prune()
    assert sorted(os.listdir(tmp_path)) == ["00000000", "cccccccc"]


def pod(node_rank: int) -> Pod:
    return Pod("1a2b3c4d", node_rank, (1, 1, 1), None, {}, 1.0, 10.0, None, is_here=True, is_alive=True)


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
        return [
            api.Answer(index, name, None, HostError("no answer", host=name))
            if name in silent
            else api.Answer(index, name, Pods((pod("abc".index(name)),)), None)
            for index, name in enumerate(names)
        ]

    monkeypatch.setattr(api, "ask", ask)
    hosts = tuple(Host(name=name) for name in names)
    runs, _ = asyncio.run(api.find_runs(hosts, transport="asyncssh", ssh=SshOptions(), misses_one=True))
    assert [(known.run, [host.name for host in known.hosts]) for known in runs] == found
    runs, _ = asyncio.run(api.find_runs(hosts, transport="asyncssh", ssh=SshOptions()))
    assert bool(runs) is not bool(silent)  # a mistyped name is no reason to take a run over and find a host lost
