"""The example that needs no framework runs on every Python that a host may have."""

from pathlib import Path

import pytest

from mnspawn.plan.launch_plan import Program
from tests.contract.ranks import Ranks
from tests.support import Controller
from tests.support.controller import REPOSITORY

RING = str(REPOSITORY / "examples" / "ring.py")


def test_the_ring_adds_up(agent_python: Path, controller: Controller, tmp_path: Path) -> None:
    ranks = Ranks(controller, tmp_path)
    done = ranks.run(ranks.plan(agent_python, Program("script", RING), count=3))
    assert [one.check().stdout.split(" at ")[0] for one in done] == [f"rank {rank} of 3" for rank in range(3)]
    assert {one.stdout.partition(": ")[2] for one in done} == {"sum 2997000 of 1000 numbers is right\n"}


@pytest.mark.parametrize(("count", "length"), [(1, 10), (4, 3), (2, 0), (3, 200_000)])
def test_the_ring_takes_any_size(count: int, length: int, controller: Controller, tmp_path: Path) -> None:
    ranks = Ranks(controller, tmp_path)
    done = ranks.run(ranks.plan(Path("/usr/bin/env"), Program("command", "python3", (RING, str(length))), count=count))
    assert [one.status for one in done] == [0] * count
