"""The real frameworks meet across hosts whose own names resolve to 127.0.1.1, with nothing but what mnspawn sets."""

import pytest

from tests.support import PATIENCE, Cluster, frameworks
from tests.support.controller import REPOSITORY

BARE = "import jax\njax.distributed.initialize()\nprint(f'{jax.process_index()} of {jax.process_count()}')\n"
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


def test_a_bare_initialize_of_jax_says_what_it_needs_and_then_works(framework_cluster: Cluster) -> None:
    script = framework_cluster.home / "bare.py"
    script.write_text(BARE)
    where = ("--hosts", framework_cluster.hosts_option, "--nproc-per-node", "2")
    words = (*where, "--python", str(frameworks.python("jax")), str(script))
    done = framework_cluster.mnspawn(*words, timeout=4 * PATIENCE)
    assert done.status == 1
    assert "\n  hint: jax.distributed.initialize() without arguments needs --contract default,jax\n" in done.stderr
    done = framework_cluster.mnspawn("--contract", "default,jax", *words, timeout=4 * PATIENCE).check()
    assert sorted(line.partition("] ")[2] for line in done.stdout.splitlines()) == [f"{rank} of 4" for rank in range(4)]
    framework_cluster.wait_idle()
