"""Answers about the runs of a host, from what lies in its folders."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from mnspawn_agent.posix.link import manage


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of runs of a host that has no other."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "mnspawn" / "runs"


def make_pod(folder: Path, run: str, journal: str = "") -> None:
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"run": run, "hostname": socket.gethostname(), "began": 1.0}))
    (folder / "journal.jsonl").write_text(journal)


def test_what_is_no_pod_is_passed_over(runs: Path) -> None:
    for name in ("0", "x", "1.old"):
        make_pod(runs / "mine" / name, "mine")
    (runs / "half" / "0").mkdir(parents=True)
    (runs / "notes").write_text("")
    assert [(pod["run"], pod["node_rank"]) for pod in manage.list_pods() if pod["run"] in ("mine", "half")] == [
        ("mine", "0")
    ]
    assert [action["path"] for action in manage.clean(0.0, is_dry=True) if action["run"] == "mine"] == [
        str(runs / "mine" / "0")
    ]


@pytest.mark.parametrize(
    ("journal", "problem"),
    [
        ('{"leftovers":[],"type":"done"}\n', "it has ended its part of the run"),
        ('{"tail":["\\"type\\":\\"done\\""],"type":"exited"}\n', "its agent is gone"),
    ],
)
def test_an_order_to_a_pod_that_nobody_serves_is_answered(runs: Path, journal: str, problem: str) -> None:
    make_pod(runs / "mine" / "0", "mine", journal)
    order = {"command": "signal", "signal": "SIGUSR1", "ranks": None}
    assert manage.command("mine", "0", order) == {"ok": False, "problem": problem, "is_gone": True}
    assert manage.command("other", "0", order) == {"ok": False, "problem": "no such run", "is_gone": False}


def test_cleaning_looks_at_the_processes_once_however_many_pods_are_dead(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        make_pod(runs / f"run{number}" / "0", f"run{number}")
    environment = {**os.environ, "MNSPAWN_RUN_ID": "run3", "MNSPAWN_NODE_RANK": "0"}
    listed: list[str] = []
    listdir = os.listdir

    def counted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    with subprocess.Popen(["sleep", "60"], env=environment) as left:
        actions = manage.clean(0.0, is_dry=True)
        left.kill()
    assert {action["run"]: action["ended"] for action in actions} == {
        f"run{number}": [left.pid] if number == 3 else [] for number in range(5)
    }
    assert listed.count("/proc") == 1
