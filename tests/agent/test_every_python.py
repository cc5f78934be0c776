"""Whole runs on hosts whose python3 is each CPython from 3.6 on that this machine has."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Cluster, pythons

pytestmark = pytest.mark.netns
SHOW = """
import os, subprocess, sys, time
sys.stdout.write("python %d.%d\\n" % sys.version_info[:2])
sys.stdout.flush()
subprocess.Popen(["sleep", "999"], start_new_session=True)
here = "/tmp/%s-" % os.environ["MNSPAWN_RUN_ID"]
open(here + os.environ["RANK"], "w").close()
while not os.path.exists(here + "0"):
    time.sleep(0.01)
sys.exit(7 if os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture(scope="module")
def host_of_any_python() -> Iterator[Cluster]:
    with Cluster(1, see=pythons.prefixes()) as cluster:
        yield cluster


def test_a_run_works_from_start_to_sweep(host_of_any_python: Cluster, agent_python: Path, tmp_path: Path) -> None:
    (host,) = host_of_any_python.hosts
    host.run("ln", "-sf", str(agent_python), "/usr/local/bin/python3").check()
    question = [str(agent_python), "-c", "import sys; print('python %d.%d' % sys.version_info[:2])"]
    version = subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    for _ in ("cold", "warm"):
        done = host_of_any_python.mnspawn("--hosts", "h1", "--nproc-per-node", "2", "--grace", "1", str(script))
        assert done.status == 7, done
        assert sorted(done.stdout.splitlines()) == [f"[h1:0] {version}", f"[h1:1] {version}"], done
        assert "Warning" not in done.stderr, done
        host_of_any_python.check_clean()
