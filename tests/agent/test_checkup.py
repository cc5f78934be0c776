"""The agent's answers to a check, on every Python that it must run on."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.controller import REPOSITORY

ENTRY = "import sys; sys.path[:0] = [sys.argv[1]]; from mnspawn_agent import main; main.main(['checkup'], '0', True)"


def ask(python: Path, home: Path, *questions: dict[str, Any], **env: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [python, "-S", "-E", "-s", "-B", "-c", ENTRY, REPOSITORY / "agent"],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **env},
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_says_the_time_and_what_the_host_is(agent_python: Path, tmp_path: Path) -> None:
    clock, host = ask(agent_python, tmp_path, {"ask": "clock"}, {"ask": "host"})
    assert isinstance(clock["time"], float)
    assert host["runs"]["place"] == host["runs"]["preferred"] == f"{tmp_path}/.local/state/mnspawn"
    assert host["runs"]["free"] > 0
    assert host["cache"] == {
        "was_here": True,
        "place": str(REPOSITORY),
        "preferred": f"{tmp_path}/.cache/mnspawn",
        "is_writable": os.access(REPOSITORY, os.W_OK),
    }
    assert host["own_name"]["name"] == socket.gethostname()
    assert 0 < host["usable_cpus"] <= host["cpus"]
    assert host["memory"]["total"] > host["memory"]["available"] > 0
    assert not list(tmp_path.rglob(".probe*"))


def test_why_the_best_folder_is_not_taken(agent_python: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    (host,) = ask(agent_python, tmp_path, {"ask": "host"}, XDG_STATE_HOME=str(tmp_path / "state"))
    assert host["runs"]["preferred"] == f"{tmp_path}/state/mnspawn"
    assert host["runs"]["place"] == f"{tmp_path}/.local/state/mnspawn"
    assert host["runs"]["problem"] == "Not a directory"


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def test_an_answer_and_a_refusal_are_both_reaching(
    agent_python: Path, tmp_path: Path, listening: tuple[str, int]
) -> None:
    targets = [list(listening), ["127.0.0.1", 1], ["::1", 1], ["not an address", 1]]
    targets += [[f"127.0.0.{n}", 1] for n in range(1, 200)]
    ((answer),) = ask(agent_python, tmp_path, {"ask": "reach", "targets": targets})
    reached = {address for address, _, _ in answer["reach"]}
    assert reached <= {"not an address", "::1"}
    assert "not an address" in reached
