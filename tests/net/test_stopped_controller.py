"""Ctrl-Z, or a lid that is closed: what became of the run meanwhile is told as our own absence."""

import re
import signal
from pathlib import Path

import pytest

from tests.support import Cluster, HostProcess, VirtualHost, wait_until

WAITS = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
ABSENCE = r"mnspawn itself was stopped for \d+ s \(Ctrl-Z, or this machine slept\)"


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_a_stop_longer_than_the_orphan_grace_is_told_as_ours(cluster: Cluster, tmp_path: Path, transport: str) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    options = ["--transport", transport, "--ssh-config", str(cluster.ssh_config), "--orphan-grace", "1"]
    with cluster.start_mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", *options, str(script)) as running:
        running.wait_for(lambda: running.stdout.count("up") == 2)
        running.send_signal(signal.SIGSTOP)
        wait_until(
            lambda: not [rank for name in ("h1", "h2") for rank in ranks_of(cluster[name])],
            what="both hosts have given us up",
        )
        running.send_signal(signal.SIGCONT)
        done = running.wait()
    assert done.status == 5, done
    reason = rf"{ABSENCE}, longer than hosts wait for it \(--orphan-grace 1\)"
    assert re.search(rf"^mnspawn: stopped: {reason}$", done.stderr, re.M), done
    assert len(re.findall(rf"^mnspawn: h[12]: link lost: {ABSENCE}; trying", done.stderr, re.M)) == 2, done
    assert "no heartbeat" not in done.stderr, done
    assert "the controller was lost" not in done.stderr, done
    cluster.wait_idle()


def ranks_of(host: VirtualHost) -> list[HostProcess]:
    return [process for process in host.processes() if process.argv[-1].endswith("waits.py")]
