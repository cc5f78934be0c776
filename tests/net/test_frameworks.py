"""The real frameworks meet across hosts whose own names resolve to 127.0.1.1, with nothing but what mnspawn sets."""

import pytest

from tests.support import PATIENCE, Cluster, frameworks
from tests.support.controller import REPOSITORY

EXAMPLES = {"torch": "torch_ddp.py", "paddle": "paddle_allreduce.py", "jax": "jax_allgather.py"}


@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_works_across_hosts(framework_cluster: Cluster, framework: str) -> None:
    done = framework_cluster.mnspawn(
        "--hosts",
        framework_cluster.hosts_option,
        "--nproc-per-node",
        "2",
        "--python",
        str(frameworks.python(framework)),
        str(REPOSITORY / "examples" / EXAMPLES[framework]),
        timeout=4 * PATIENCE,
    )
    assert done.status == 0, done
    assert {line.partition("]")[0] for line in done.stdout.splitlines()} >= {"[h1:0"}, done
    framework_cluster.wait_idle()
