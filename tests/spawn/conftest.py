"""Where spawned functions run in these tests: on this machine without SSH, and on two real hosts."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import PATIENCE, Cluster, Controller, Finished
from tests.support.commands import Running

HEADER = """\
import os, pickle, signal, subprocess, sys, time
import mnspawn
import mnspawn.multiprocessing as mp

HOSTS, NPROCS = {hosts!r}, {nprocs}
"""


@dataclass
class Place:
    """Runs programs that spawn two ranks: `nprocs=NPROCS, hosts=HOSTS`."""

    controller: Controller
    folder: Path
    hosts: str | None

    def _written(self, program: str) -> str:
        path = self.folder / "program.py"
        path.write_text(HEADER.format(hosts=self.hosts, nprocs=1 if self.hosts else 2) + program)
        return str(path)

    def start(self, program: str, **options: Any) -> Running:
        return self.controller.start(sys.executable, self._written(program), cwd=self.folder, **options)

    def run(self, program: str, timeout: float = PATIENCE, **options: Any) -> Finished:
        """The program's end, whatever it is."""
        with self.start(program, **options) as running:
            return running.wait(timeout)

    def check(self, program: str, timeout: float = PATIENCE, **options: Any) -> str:
        """What a program prints that must end well."""
        return self.run(program, timeout, **options).check().stdout


ACROSS = "on two hosts"


def pytest_itemcollected(item: pytest.Item) -> None:
    """The hosts must be there before a test's leaks are watched, as if the test asked for them by name."""
    if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.callspec.params.get("place") == ACROSS:
        item.fixturenames = ["shared_hosts", *item.fixturenames, "cluster"]


WAYS = [(place, method) for place in ("here", ACROSS) for method in ("spawn", "forkserver")] + [("here", "fork")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Everywhere, by every start method: but a fork of the caller can only be here."""
    columns = [column for column, name in enumerate(("place", "start_method")) if name in metafunc.fixturenames]
    if columns:
        ways = dict.fromkeys(tuple(way[column] for column in columns) for way in WAYS)
        names = [("place", "start_method")[column] for column in columns]
        metafunc.parametrize(names, list(ways), indirect=["place"] if "place" in names else False, scope="function")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same test here and across hosts."""
    if request.param == "here":
        return Place(request.getfixturevalue("controller"), tmp_path, None)
    cluster: Cluster = request.getfixturevalue("cluster")
    return Place(cluster, tmp_path, "h1,h2")


@pytest.fixture
def here(controller: Controller, tmp_path: Path) -> Place:
    """On this machine, without SSH."""
    return Place(controller, tmp_path, None)


@pytest.fixture
def across(cluster: Cluster, tmp_path: Path) -> Place:
    """On two hosts."""
    return Place(cluster, tmp_path, "h1,h2")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For spawns of the test process itself: what they keep on this machine goes where the test's files are."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
