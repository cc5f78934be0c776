"""The frameworks' environments work on hosts that see nothing else of this machine."""

import pytest

from tests.support import Cluster, frameworks


@pytest.mark.parametrize("framework", frameworks.FRAMEWORKS)
def test_hosts_can_import_the_framework(framework_cluster: Cluster, framework: str) -> None:
    program = f"import {framework}; print({framework}.__version__)"
    host = framework_cluster.hosts[0]
    done = host.run(str(frameworks.python(framework)), "-W", "ignore", "-c", program, timeout=60).check()
    expected = {"torch": "2.13.0", "paddle": "3.3.1", "jax": "0.10.2"}[framework]
    assert done.stdout.split()[-1].startswith(expected)
