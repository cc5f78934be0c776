"""The launchers that people have, started by mnspawn on every host, as one job across hosts."""

from pathlib import Path

import pytest

from tests.support import PATIENCE, Cluster, Finished, frameworks

SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1]); dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}\\n", end="", flush=True)
dist.barrier(); dist.destroy_process_group()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
here = Accelerator()
total = here.reduce(torch.tensor([here.process_index + 1]), reduction="sum")
print(f"rank {here.process_index} of {here.num_processes}: {total.item()}\\n", end="", flush=True)
here.end_training()
"""
FOUR = [f"rank {rank} of 4: 10" for rank in range(4)]


def launch(cluster: Cluster, source: str, *words: str, each: int = 1, transport: str = "asyncssh") -> Finished:
    """mnspawn with so many ranks on each host; SCRIPT among the words is a file of the hosts with this source."""
    for host in cluster:
        host.write("/root/job.py", source)
    words = tuple("/root/job.py" if word == "SCRIPT" else word for word in words)
    where = (
        "--hosts",
        cluster.hosts_option,
        "--nproc-per-node",
        str(each),
        "--transport",
        transport,
        "--ssh-config",
        str(cluster.ssh_config),
    )
    done = cluster.mnspawn(*where, *words, timeout=4 * PATIENCE)
    cluster.wait_idle()
    return done


def said(done: Finished) -> list[str]:
    """What the workers said, whichever rank's line it came in."""
    lines = (line.partition("] ")[2] for line in done.check().stdout.splitlines())
    return sorted(line for line in lines if line.startswith("rank "))


def command(name: str) -> tuple[str, str]:
    return ("--no-python", str(frameworks.command("torch", name)))


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_torchrun_on_each_host_makes_one_job(framework_cluster: Cluster, transport: str) -> None:
    words = (*command("torchrun"), "--nproc-per-node", "2", "SCRIPT")
    assert said(launch(framework_cluster, SUM, *words, transport=transport)) == FOUR


@pytest.mark.parametrize(
    "words",
    [
        (*command("torchrun"), "--nnodes", "2", "--nproc-per-node", "2", "SCRIPT"),
        (*command("python"), "-m", "torch.distributed.run", "--nproc-per-node", "2", "SCRIPT"),
        ("--python", command("python")[1], "-m", "torch.distributed.run", "--nproc-per-node=2", "SCRIPT"),
        ("--no-python", "sh", "-c", f"exec {command('torchrun')[1]} --nproc-per-node 2 /root/job.py"),
    ],
    ids=["--nnodes", "python -m", "-m", "sh -c"],
)
def test_so_it_does_however_it_is_started(framework_cluster: Cluster, words: tuple[str, ...]) -> None:
    assert said(launch(framework_cluster, SUM, *words)) == FOUR


@pytest.mark.parametrize("option", ["--standalone", "--nnodes=1"])
def test_torchrun_that_shall_stay_on_its_host_does(framework_cluster: Cluster, option: str) -> None:
    done = launch(framework_cluster, SUM, *command("torchrun"), option, "--nproc-per-node", "2", "SCRIPT")
    assert said(done) == ["rank 0 of 2: 3", "rank 0 of 2: 3", "rank 1 of 2: 3", "rank 1 of 2: 3"]


def test_torchrun_with_a_rendezvous_of_its_own_needs_no_nnodes(framework_cluster: Cluster) -> None:
    line = f"exec {command('torchrun')[1]} --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT"
    # a host whose own name is 127.0.1.1 does not know that the store is its own
    conf = "--rdzv-conf is_host=$((1 - MNSPAWN_NODE_RANK))"
    words = ("--no-python", "sh", "-c", f"{line} {conf} --rdzv-id $MNSPAWN_RUN_ID --nproc-per-node 2 /root/job.py")
    assert said(launch(framework_cluster, SUM, *words)) == FOUR


def test_ranks_that_start_a_torchrun_of_their_own_keep_it_to_themselves(framework_cluster: Cluster) -> None:
    inner = Path(framework_cluster.home / "inner.py")
    options = "--standalone --nnodes 1 --nproc-per-node 2 /root/job.py"
    inner.write_text(
        f"import subprocess, sys\nsys.exit(subprocess.call('{command('torchrun')[1]} {options}'.split()))\n"
    )
    done = launch(framework_cluster, SUM, str(inner))
    assert said(done) == ["rank 0 of 2: 3", "rank 0 of 2: 3", "rank 1 of 2: 3", "rank 1 of 2: 3"]


def test_accelerate_without_accelerators_trains_together(framework_cluster: Cluster) -> None:
    assert said(launch(framework_cluster, ACCELERATE, "--python", command("python")[1], "SCRIPT", each=2)) == FOUR


def test_what_the_user_says_of_cpus_to_accelerate_holds(framework_cluster: Cluster) -> None:
    words = ("-x", "ACCELERATE_USE_CPU=false", "--python", command("python")[1], "SCRIPT")
    assert said(launch(framework_cluster, ACCELERATE, *words)) == ["rank 0 of 1: 1"] * 2


@pytest.mark.parametrize(
    ("options", "each"),
    [(("--cpu",), 2), (("--multi_gpu", "--num_processes", "2"), 1)],
    ids=["a rank a worker", "a rank a host"],
)
def test_accelerate_launch_makes_one_job(framework_cluster: Cluster, options: tuple[str, ...], each: int) -> None:
    words = (*command("accelerate"), "launch", *options, "SCRIPT")
    assert said(launch(framework_cluster, ACCELERATE, *words, each=each)) == FOUR


def test_accelerate_launch_can_be_told_of_the_hosts_in_its_own_options(framework_cluster: Cluster) -> None:
    line = (
        f"exec {command('accelerate')[1]} launch --multi_gpu --num_machines 2 --num_processes 4"
        " --machine_rank $MNSPAWN_NODE_RANK --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"
    )
    assert said(launch(framework_cluster, ACCELERATE, "--no-python", "sh", "-c", f"{line} /root/job.py")) == FOUR


def test_where_hosts_have_more_ranks_a_note_says_that_each_starts_a_torchrun(framework_cluster: Cluster) -> None:
    done = launch(framework_cluster, SUM, *command("torchrun"), "--nproc-per-node", "1", "SCRIPT", each=2)
    assert said(done) == ["rank 0 of 1: 1"] * 4
    assert "mnspawn: each rank starts a torchrun of its own, up to 2 on a host" in done.stderr
