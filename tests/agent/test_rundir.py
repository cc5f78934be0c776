"""Which folders of earlier runs an agent removes when it goes."""

import json
import os
import socket
from pathlib import Path

import pytest

from mnspawn_agent.posix.files import rundir

HOUR = 3600.0
NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "KEEP_BYTES", 200_000)


def make_run(root: Path, run: str, age: float, size: int = 0, state: str = "done", pods: int = 1) -> rundir.RunDir:
    """A run that ended `age` seconds before NOW; gives the folder of its first pod."""
    made = [rundir.RunDir(str(root), run, node_rank) for node_rank in range(pods)]
    for folder in made:
        folder.write("rank-0.out", b"x" * size)
        status = folder.write(rundir.STATUS, json.dumps({"state": state}).encode())
        os.utime(status, (NOW - age, NOW - age))
    return made[0]


def kept(root: Path) -> set[str]:
    rundir.prune(str(root), NOW)
    return {run for run, _, _ in rundir.list_pods(str(root))}


def test_old_runs_go_and_those_that_have_not_ended_stay(tmp_path: Path) -> None:
    make_run(tmp_path, "old", rundir.KEEP_SECONDS + HOUR)
    make_run(tmp_path, "young", rundir.KEEP_SECONDS - HOUR)
    make_run(tmp_path, "running", rundir.KEEP_SECONDS + HOUR, state="running")
    assert kept(tmp_path) == {"young", "running"}


def test_what_a_killed_agent_has_left_goes_when_nothing_was_written_there_for_as_long(tmp_path: Path) -> None:
    for run, age, hostname in (
        ("dead", rundir.KEEP_SECONDS + HOUR, socket.gethostname()),
        ("crashed lately", rundir.KEEP_SECONDS - HOUR, socket.gethostname()),
        ("another host's", rundir.KEEP_SECONDS + HOUR, "elsewhere"),  # which shares our home
    ):
        folder = make_run(tmp_path, run, age, state="running")
        folder.write(rundir.PLAN, json.dumps({"hostname": hostname}).encode())
        for name in os.listdir(folder.path):
            os.utime(folder.join(name), (NOW - age, NOW - age))
    assert kept(tmp_path) == {"crashed lately", "another host's"}
    lock = rundir.RunDir(str(tmp_path), "crashed lately", 0).lock()
    rundir.prune(str(tmp_path), NOW + 2 * HOUR)  # somebody holds it
    assert "crashed lately" in kept(tmp_path)
    os.close(lock)


def test_of_too_much_the_oldest_go(tmp_path: Path) -> None:
    for hours in (4, 3, 2, 1):
        make_run(tmp_path, f"r{hours}", hours * HOUR, 80_000)
    assert kept(tmp_path) == {"r2", "r1"}


def test_the_run_that_ended_last_stays_whatever_its_size(tmp_path: Path) -> None:
    make_run(tmp_path, "before", HOUR, 10)
    make_run(tmp_path, "last", 0.0, 300_000, pods=2)  # hosts that share a home
    assert kept(tmp_path) == {"last"}
    assert len(list(rundir.list_pods(str(tmp_path)))) == 2


def test_a_run_whose_agent_still_has_output_to_send_stays(tmp_path: Path) -> None:
    lock = make_run(tmp_path, "slow", 2 * HOUR, 300_000).lock()
    make_run(tmp_path, "last", 0.0)
    try:
        assert kept(tmp_path) == {"slow", "last"}
    finally:
        os.close(lock)
    make_run(tmp_path, "large", 0.0, 300_000)
    assert "slow" not in kept(tmp_path)
