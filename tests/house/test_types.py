"""What type checkers are told of a spawn."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from typing import assert_type
import functools

import mnspawn
import mnspawn.multiprocessing as mp


class Model:
    def __init__(self, width: int) -> None:
        self.width = width

    def loss(self, step: int, scale: float = 1.0) -> bytes:
        return b""


def train(steps: int, name: str = "x") -> float:
    return float(steps)


assert_type(mnspawn.spawn(train, (1,)), mnspawn.SpawnContext[float])
assert_type(mnspawn.spawn(train, (1,), hosts="a,b").results(), list[float])
assert_type(mnspawn.spawn(train, [1, "y"], nprocs=2).result(0), float)
assert_type(mnspawn.spawn(Model, (1,)).results(), list[Model])
assert_type(mnspawn.spawn(Model(1).loss, (1,)).results(), list[bytes])
assert_type(mnspawn.spawn(functools.partial(train, name="z"), (1,)).results(), list[float])
assert_type(mnspawn.spawn(lambda: "text").results(), list[str])
assert_type(mp.spawn(train), None)
assert_type(mp.spawn(train, join=False), mp.ProcessContext[None])
assert_type(mp.start_processes(train, join=False, start_method="fork"), mp.ProcessContext[None])


async def wait() -> None:
    assert_type((await mnspawn.aspawn(train, (1,))).results(), list[float])


mnspawn.spawn(7)  # WRONG
"""


@pytest.mark.full
def test_a_strict_type_checker_knows_what_comes_back(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    wrong = PROGRAM.splitlines().index("mnspawn.spawn(7)  # WRONG") + 1
    assert [line.split(": ")[:2] for line in done.stdout.splitlines()[:-1] if "note:" not in line] == [
        [f"program.py:{wrong}", "error"]
    ], done
