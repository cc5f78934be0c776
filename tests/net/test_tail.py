"""`mnspawn tail HOSTS:PATTERN`: names of files are the hosts' words, and no terminal obeys them."""

import os
import signal
from pathlib import Path

import pytest

from tests.support import Cluster

EVIL = b"a\x1b]0;owned\x07\x1b[31m\x9b\xff\r\nmnspawn: b.log"
SHOWN = r"a\x1b]0;owned\x07\x1b[31m\x9b\xff\r\nmnspawn: b.log"


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_names_of_files_are_written_out(cluster: Cluster, tmp_path: Path, transport: str) -> None:
    folder = cluster["h1"].path(f"/tmp/{tmp_path.name}")
    folder.mkdir()
    (folder / os.fsdecode(EVIL)).write_text("said\n")
    options = ["--transport", transport, "--ssh-config", str(cluster.ssh_config), "-vv"]
    with cluster.start_mnspawn("tail", *options, f"h1:/tmp/{tmp_path.name}/*") as running:
        running.wait_for(lambda: "said" in running.stdout)
        running.send_signal(signal.SIGINT)
        done = running.wait()
    assert "\x1b" not in done.stdout + done.stderr, done
    assert done.stdout.splitlines() == [f"[h1:/tmp/{tmp_path.name}/{SHOWN}] said"], done
