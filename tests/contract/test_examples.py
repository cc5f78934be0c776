"""The examples run across hosts whose own names resolve to 127.0.1.1, started by the real command line."""

from pathlib import Path

import pytest

from mnspawn.plan.contract import WATCHED
from mnspawn_agent.posix.host import facts
from tests.support import Cluster, frameworks
from tests.support.controller import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def run_example(cluster: Cluster, example: str, *options: str) -> list[str]:
    """What ranks 0 to 3 printed on two hosts, in rank order, without [host:rank]."""
    where = ("--hosts", ",".join(host.name for host in cluster.hosts[:2]), "--nproc-per-node", "2")
    done = cluster.mnspawn(*where, *options, str(EXAMPLES / example)).check()
    lines = [line.partition("] ")[::2] for line in done.stdout.splitlines() if "] rank " in line]
    assert sorted(prefix for prefix, _ in lines) == ["[h1:0", "[h1:1", "[h2:2", "[h2:3"]
    return [said for _, said in sorted(lines)]


def test_hosts_do_not_know_their_own_address(cluster: Cluster) -> None:
    host = cluster.hosts[0]
    found = host.run("/usr/bin/python3", "-c", "import socket as s; print(s.gethostbyname(s.gethostname()))")
    assert found.check().stdout == "127.0.1.1\n"


@pytest.mark.essential
def test_ring(cluster: Cluster) -> None:
    said = run_example(cluster, "ring.py", "--start-port", "6070")
    endpoints = [f"{host.address}:{port}" for host in cluster.hosts[:2] for port in (6070, 6071)]
    assert said == [f"rank {rank} of 4 at {endpoints[rank]}: sum 4995000 of 1000 numbers is right" for rank in range(4)]


def test_torch_ddp(framework_cluster: Cluster) -> None:
    said = run_example(framework_cluster, "torch_ddp.py", "--python", str(frameworks.python("torch")))
    assert [line.partition(": ")[0] for line in said] == [f"rank {r} of 4 on h{1 + r // 2}" for r in range(4)]
    assert len({line.partition(": ")[2] for line in said}) == 1  # one loss, averaged over all ranks


def test_paddle_allreduce(framework_cluster: Cluster) -> None:
    said = run_example(framework_cluster, "paddle_allreduce.py", "--python", str(frameworks.python("paddle")))
    assert said == [f"rank {r} of 4 on h{1 + r // 2}: sum 10, expected 10" for r in range(4)]


@pytest.mark.parametrize("contract", ["default", "jax"])
def test_jax_allgather(contract: str, framework_cluster: Cluster) -> None:
    options = ("--contract", contract, "--python", str(frameworks.python("jax")))
    said = run_example(framework_cluster, "jax_allgather.py", *options)
    assert said == [f"rank {r} of 4 on h{1 + r // 2}: gathered [1, 2, 3, 4], sum 10" for r in range(4)]


def test_what_hosts_are_asked_for_is_what_contracts_want_to_know() -> None:
    assert set(WATCHED) <= set(facts.WATCHED)


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in here] == []
