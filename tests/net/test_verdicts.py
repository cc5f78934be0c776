"""What a host's agent wrote down before it went counts, though nobody was there to hear it say so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, wait_until

PROGRAM = """
import os, sys, time
rank = int(os.environ["RANK"])
print("up", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
print("last words of", rank)
sys.exit(int(sys.argv[1]) if rank == 1 else 0)
"""


@pytest.mark.parametrize("code", [0, 7])
def test_a_pod_that_ended_while_its_host_was_cut_off_is_told_from_its_folder(
    make_cluster: Callable[..., Cluster], tmp_path: Path, code: int
) -> None:
    cluster = make_cluster(2)
    host = cluster["h2"]
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    options = ("--hosts", "h1,h2", "--nproc-per-node", "1", "--orphan-grace", "600", "--grace", "1", "-v")
    with cluster.start_mnspawn(*options, str(script), str(code), notices_silence_soon=True) as running:
        running.wait_for(lambda: running.stdout.count("] up") == 2)
        if code == 0:
            cluster["h1"].write("/tmp/go", "")
        host.cut()
        running.wait_for(lambda: "h2: link lost" in running.stderr)
        host.write("/tmp/go", "")
        [folder] = host.path("/root/.local/state/mnspawn/runs").glob("*/1")
        wait_until(lambda: json.loads((folder / "status.json").read_text())["state"] == "done")
        for process in host.processes():  # its agent has waited in vain, at last
            host.kill(process.pid)
        host.heal()
        done = running.wait()
    assert done.status == code, done
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("[h2")) == [
        "[h2:1] last words of 1",
        "[h2:1] up",
    ]
    assert "h2: link is back" in done.stderr
    assert "h2: nothing of the run is left" in done.stderr
    if code:
        assert "mnspawn: rank 1 failed: exit status 7 (host h2" in done.stderr
