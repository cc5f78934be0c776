"""Output at full speed and in odd shapes: whole lines with one prefix each, no byte lost, nobody slowed down."""

import hashlib
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support import Cluster, wait_until

FLOOD = """
import os, sys
rank = int(os.environ["RANK"])
size = int(sys.argv[1])
line = (b"%d " % rank) + b"x" * 998 + b"\\n"
out = os.fdopen(1, "wb", 1 << 16)
for _ in range(size // len(line)):
    out.write(line)
out.flush()
sys.stderr.write("wrote all\\n")
"""


@pytest.fixture
def flood(tmp_path: Path) -> str:
    script = tmp_path / "flood.py"
    script.write_text(FLOOD)
    return str(script)


def test_a_flood_from_four_ranks_loses_no_line(cluster: Cluster, flood: str) -> None:
    """F47: 200 MB, every byte and every prefix checked."""
    size = 50_000_000
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", flood, str(size)]
    counts = dict.fromkeys(range(4), 0)
    with cluster.start_mnspawn(*command, stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        shape = re.compile(rb"\[(h[12]):([0-3])\] ([0-3]) x{998}\n")
        for line in running.popen.stdout:
            match = shape.fullmatch(line)
            assert match is not None, line[:200]
            assert match.group(2) == match.group(3)
            counts[int(match.group(3))] += 1
        done = running.wait()
    assert done.status == 0, done
    assert counts == dict.fromkeys(range(4), size // 1001)


def test_a_stopped_reader_slows_no_worker(cluster: Cluster, flood: str) -> None:
    """F51: what is printed waits on the hosts."""
    size = 30_000_000
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", flood, str(size)]
    with cluster.start_mnspawn(*command, stdout=subprocess.PIPE) as running:
        running.wait_for(lambda: running.stderr.count("wrote") == 2, what="both workers have written all, nobody reads")
        assert running.popen.poll() is None
        assert running.popen.stdout is not None
        received = len(running.popen.stdout.read())
        assert running.wait().status == 0
    lines = 2 * (size // 1001)
    assert received == lines * (1001 + len("[h1:0] "))


def test_a_stopped_reader_does_not_keep_a_stop_from_working(cluster: Cluster, tmp_path: Path) -> None:
    """F51: orders never queue behind output."""
    script = tmp_path / "endless.py"
    script.write_text("import sys\nprint('up', file=sys.stderr, flush=True)\nwhile True:\n    print('x' * 1000)\n")
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "1", str(script)]
    with cluster.start_mnspawn(*command, stdout=subprocess.PIPE) as running:
        running.wait_for(lambda: running.stderr.count("up") == 2)
        running.interrupt()
        wait_until(lambda: not any(p.argv[-1].endswith("endless.py") for host in cluster for p in host.processes()))
        assert running.popen.stdout is not None
        reader = threading.Thread(target=running.popen.stdout.read)
        reader.start()
        assert running.wait().status == 130
        reader.join()


def test_a_reader_that_leaves_does_not_end_in_a_traceback(cluster: Cluster, flood: str) -> None:
    """F51: a closed pipe is normal."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", flood, "5000000"]
    with cluster.start_mnspawn(*command, stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        running.popen.stdout.readline()
        running.popen.stdout.close()
        done = running.wait()
        assert "Traceback" not in done.stderr, done


SHAPES = """
import os, sys, time
out = os.fdopen(1, "wb", 0)
out.write(b"L" * 65536 + b"\\n")
out.write(b"half ")
time.sleep(0.3)
out.write(b"and half\\n")
out.write(b"bytes \\xff\\xfe \\x00 end\\n")
out.write("ü€𝄞".encode()[:4])
time.sleep(0.2)
out.write("ü€𝄞".encode()[4:] + b"\\n")
out.write(b"\\n")
os.write(2, b"to stderr\\n")
out.write(b"no newline at the end")
"""


@pytest.mark.essential
def test_lines_of_any_shape_stay_whole(cluster: Cluster, tmp_path: Path) -> None:
    """F47, F49: long and half lines, bytes that are no text, a character in two parts."""
    script = tmp_path / "shapes.py"
    script.write_text(SHAPES)
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "2", str(script)).check()
    for rank in range(4):
        prefix = f"[h{rank // 2 + 1}:{rank}] ".encode()
        own = [line.removeprefix(prefix) for line in done.raw_stdout.split(b"\n") if line.startswith(prefix)]
        assert own == [
            b"L" * 65536,
            b"half and half",
            b"bytes \xff\xfe \x00 end",
            "ü€𝄞".encode(),
            b"",
            b"no newline at the end",
        ]
        assert prefix + b"to stderr\n" in done.raw_stderr
    assert len(done.raw_stdout.splitlines()) >= 24


def test_what_was_printed_before_a_crash_arrives(cluster: Cluster, tmp_path: Path) -> None:
    """F50: all of it, before the summary."""
    script = tmp_path / "crash.py"
    script.write_text(
        "import os, signal, sys\n"
        "for number in range(5000):\n"
        "    sys.stdout.write('%06d %s\\n' % (number, 'y' * 992))\n"
        "sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = cluster.mnspawn("--hosts", "h1", "--nproc-per-node", "1", str(script))
    assert done.status == 139, done
    lines = done.stdout.splitlines()
    assert lines == [f"[h1:0] {number:06d} {'y' * 992}" for number in range(5000)]


def test_plain_output_is_the_workers_bytes(cluster: Cluster, tmp_path: Path) -> None:
    """F49: byte for byte."""
    script = tmp_path / "bytes.py"
    script.write_text("import os\nos.write(1, bytes(range(256)) * 4000 + b'end')\n")
    command = ["--hosts", "h1", "--nproc-per-node", "1", "--output", "plain", str(script)]
    done = cluster.mnspawn(*command).check()
    expected = bytes(range(256)) * 4000 + b"end"
    assert hashlib.sha256(done.raw_stdout.removesuffix(b"\n")).digest() == hashlib.sha256(expected).digest()


def test_ranks_can_be_chosen_for_the_console(cluster: Cluster) -> None:
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", "--ranks", "1-2", "--no-python", "echo", "in"]
    done = cluster.mnspawn(*command).check()
    assert sorted(done.stdout.splitlines()) == ["[h1:1] in", "[h2:2] in"]


def test_progress_of_connecting_is_silent_in_a_pipe(cluster: Cluster) -> None:
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--no-python", "true").check()
    assert (done.raw_stdout, done.raw_stderr) == (b"", b"")


def test_ranks_can_print_while_one_of_them_is_silent(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "one.py"
    script.write_text(
        "import os, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    time.sleep(1000)\n"
        "print('at once', flush=True)\n"
        "time.sleep(1000)\n"
    )
    with cluster.start_mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", str(script)) as running:
        wait_until(lambda: "[h2:1] at once" in running.stdout)
        running.interrupt()
        assert running.wait().status == 130


TWO_BARS = """
import sys, time
for step in range(50):
    for text in (f"\\router {step}", "\\n", f"\\rinner {step}", "\\x1b[A"):
        sys.stderr.write(text)
        sys.stderr.flush()
    time.sleep(0.005)
sys.stderr.write("\\n\\nepoch done\\n")
"""


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_bars_that_move_the_cursor_up_end_in_a_line_each(cluster: Cluster, tmp_path: Path, transport: str) -> None:
    script = tmp_path / "bars.py"
    script.write_text(TWO_BARS)
    options = ["--transport", transport, "--ssh-config", str(cluster.ssh_config), "--nproc-per-node", "1"]
    done = cluster.mnspawn("--hosts", "h1", *options, str(script)).check()
    lines = done.stderr.splitlines()
    assert lines[-3:] == ["[h1:0] outer 49", "[h1:0] inner 49", "[h1:0] epoch done"], done
    assert lines[:-3] in ([], ["[h1:0] outer 0"]), done  # shown before anybody could know of a second bar
