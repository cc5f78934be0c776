"""DeepSpeed's own start, on hosts without accelerators, where it builds an extension first."""

import re
import shutil

import pytest

from tests.support import PATIENCE, Cluster, frameworks

SUM = """
import deepspeed, torch
deepspeed.init_distributed("gloo")
import deepspeed.comm as dist
total = torch.tensor([dist.get_rank() + 1]); dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}\\n", end="", flush=True)
dist.barrier(); dist.destroy_process_group()
"""
BUILDING = 10 * PATIENCE  # a compiler for some minutes, on cores that do much else


def start(cluster: Cluster, hosts: str, each: int) -> list[str]:
    """What the ranks say; PATH has the environment's ninja, as when it is activated."""
    for host in cluster:
        host.write("/root/job.py", SUM)
    python = frameworks.python("torch")
    where = ["--hosts", hosts, "--nproc-per-node", str(each), "--python", str(python)]
    path = f"PATH={python.parent}:/usr/bin:/bin"
    done = cluster.mnspawn(*where, "-x", path, "/root/job.py", timeout=BUILDING).check()
    assert "lock" not in done.stderr
    return sorted(re.findall(r"rank \d of \d: \d+", done.stdout))


@pytest.mark.timeout(30 * PATIENCE)
def test_deepspeed_starts_with_gloo_and_again_once_its_extension_is_built(framework_cluster: Cluster) -> None:
    cluster = framework_cluster
    assert start(cluster, "h1", 2) == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
    built = "/root/.cache/torch_extensions"
    shutil.copytree(cluster["h1"].path(built), cluster["h2"].path(built), dirs_exist_ok=True)
    assert start(cluster, "h1,h2", 2) == [f"rank {rank} of 4: 10" for rank in range(4)]
    cluster.wait_idle()


def test_a_lock_that_a_killed_build_has_left_is_named_before_deepspeed_waits_for_it(framework_cluster: Cluster) -> None:
    cluster = framework_cluster
    lock = "/root/.cache/torch_extensions/py3_cpu/deepspeed_shm_comm/lock"
    cluster["h2"].write(lock, "")
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "true").check()
    assert f"mnspawn: h2: {lock}: no process of this host holds this lock" in done.stderr
    assert "h1: " not in done.stderr
    cluster["h2"].remove(lock)
    cluster.wait_idle()
