"""A run on a terminal: progress bars in place, whole lines, Ctrl-C by the terminal itself; and the same in a file."""

import fcntl
import os
import pty
import re
import select
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import PATIENCE, Cluster

BARS = """
import sys, time
for percent in (10, 50, 100):
    sys.stdout.write("\\r%d%%|bar" % percent)
    sys.stdout.flush()
    time.sleep(0.15)
sys.stdout.write("\\n\\x1b[31mred\\x1b[0m\\n")
sys.stdout.flush()
if len(sys.argv) > 1:
    time.sleep(300)
"""


@pytest.fixture
def bars(tmp_path: Path) -> str:
    script = tmp_path / "bars.py"
    script.write_text(BARS)
    return str(script)


def on_terminal(
    cluster: Cluster, *command: str, types: bytes = b"", when: Callable[[bytes], bool] = lambda shown: False
) -> tuple[int, str]:
    """Run a command on a terminal of its own; type once something is shown. Gives status and all that was shown."""
    ours, its = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    environment = {"TERM": "xterm"}
    with cluster.start_mnspawn(
        *command, stdin=its, stdout=its, stderr=its, env=environment, preexec_fn=take_terminal
    ) as running:
        os.close(its)
        shown = b""
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # EIO: the last process on it has ended
                break
            if types and when(shown):
                os.write(ours, types)
                types = b""
        os.close(ours)
        return running.wait().status, shown.decode()


def test_progress_bars_stay_in_place_on_a_terminal(cluster: Cluster, bars: str) -> None:
    """F48: no line for every state, the last state as a line in the end; colours stay."""
    status, shown = on_terminal(cluster, "--hosts", "h1,h2", "--nproc-per-node", "1", bars)
    assert status == 0, shown
    assert "connecting: " in shown
    lines = [re.sub(r".*\r\x1b\[K|\x1b\[[0-9;]*m", "", line) for line in shown.split("\r\n")]
    assert sorted(line for line in lines if line) == [
        f"[h{n}:{n - 1}] {what}" for n in (1, 2) for what in ("100%|bar", "red")
    ]
    assert "10%|bar" in shown
    assert "\x1b[31mred\x1b[0m" in shown


def test_progress_bars_in_a_file_are_one_line(cluster: Cluster, bars: str) -> None:
    """F48: their last state; the workers' own bytes are to be had with --output plain."""
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", bars).check()
    for number in (1, 2):
        own = [line for line in done.raw_stdout.split(b"\n") if line.startswith(b"[h%d:" % number)]
        prefix = b"[h%d:%d] " % (number, number - 1)
        assert own[0] == prefix + b"100%|bar"
        assert own[1].startswith(prefix)
        assert b"red" in own[1]
    assert done.stderr == ""
    plain = cluster.mnspawn("--hosts", "h1", "--nproc-per-node", "1", "--output", "plain", bars).check()
    assert plain.raw_stdout == b"\r10%|bar\r50%|bar\r100%|bar\n\x1b[31mred\x1b[0m\n"


@pytest.mark.essential
def test_the_key_for_interrupts(cluster: Cluster, bars: str) -> None:
    """F01: the terminal sends SIGINT to all of its foreground; the shell gets its line back, whole."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", bars, "stay"]
    status, shown = on_terminal(cluster, *command, types=b"\x03", when=lambda shown: shown.count(b"red") == 2)
    assert status == 130, shown
    assert "stopping all ranks: SIGINT" in shown
    assert shown.endswith("\r\n")
    cluster.check_clean()
