"""A bug of ours ends the controller: the hosts are stopped first, over real links."""

import sys
from pathlib import Path

from tests.support import Cluster

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
BROKEN = """
import sys
from mnspawn.cli import main as entry
from mnspawn.output import sinks

def on_output(self, event):
    if self._hosts.keys() >= {0, 1, 2}:
        raise RuntimeError("can't be")

sinks.ConsoleSink._on_output = on_output
sys.exit(entry.main())
"""


def test_a_bug_of_ours_leaves_no_rank_on_any_host(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody has to wait for the orphan grace."""
    script, entry = tmp_path / "sleep.py", tmp_path / "entry.py"
    script.write_text(SLEEP)
    entry.write_text(BROKEN)
    options = ["--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--grace", "1", "--orphan-grace", "600"]
    done = cluster.run(sys.executable, str(entry), *options, str(script))
    assert done.status == 70, done
    assert "mnspawn: this is a bug in mnspawn, please report it: RuntimeError: can't be" in done.stderr, done
    assert "not confirmed" not in done.stderr, done
    cluster.check_clean()
