"""What the user sees of workers' output: real runs on throw-away hosts, awkward bytes, readers that stop or leave."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import Controller, Running, wait_until

AWKWARD = r"""
import os, sys, time
rank = int(os.environ["RANK"])
def say(text, fd=1):
    os.write(fd, text)
say(b"%d:" % rank + b"x" * 65536 + b"\n")          # 64 KiB and more
for part in (b"%d:ha", b"lf li", b"ne\n"):          # a half line at a time
    say(part % rank if b"%" in part else part); time.sleep(0.01)
say(b"%d:10%%\r%d:20%%\r\n" % (rank, rank))
say(b"%d:\xff\xfe \x00 caf\xc3" % rank); time.sleep(0.01); say(b"\xa9\n")
say(b"%d:to stderr\n" % rank, 2)
say(b"%d:no end" % rank)
"""

FAST = r"""
import os, sys
rank = int(os.environ["RANK"])
block = b"".join(b"%d %06d %s\n" % (rank, number, b"y" * 90) for number in range(10_000))
for turn in range(int(sys.argv[1])):
    os.write(1, block)
open(sys.argv[2] + "/done-%d" % rank, "w").close()
"""

NAPPING = """
import os, time
print("ready", flush=True)
while True:
    time.sleep(0.05)
    print("tick", flush=True)
"""


def script(controller: Controller, text: str) -> str:
    path = controller.home / "train.py"
    path.write_text(text)
    return str(path)


def test_awkward_bytes_come_as_whole_lines_with_one_prefix_each(controller: Controller) -> None:
    finished = controller.mnspawn("--sandbox", "2", "--nproc-per-node", "2", script(controller, AWKWARD)).check()
    lines = finished.raw_stdout.split(b"\n")
    assert lines.pop() == b""
    for rank in range(4):
        prefix = b"[sandbox-%d:%d] " % (rank // 2 + 1, rank)
        own = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        assert own == [
            b"%d:" % rank + b"x" * 65536,
            b"%d:half line" % rank,
            b"%d:20%%\r" % rank,
            b"%d:\xff\xfe \x00 caf\xc3\xa9" % rank,
            b"%d:no end" % rank,
        ]
    assert len(lines) == 20
    assert sorted(finished.stderr.splitlines()) == [f"[sandbox-{r // 2 + 1}:{r}] {r}:to stderr" for r in range(4)]


def test_plain_output_of_one_rank_is_byte_for_byte_its_own(controller: Controller) -> None:
    finished = controller.mnspawn("--sandbox", "1", "--nproc-per-node=1", "--output=plain", script(controller, AWKWARD))
    assert finished.raw_stdout == (
        b"0:" + b"x" * 65536 + b"\n0:half line\n0:10%\r0:20%\r\n0:\xff\xfe \x00 caf\xc3\xa9\n0:no end"
    )


@pytest.mark.full
def test_no_byte_is_lost_at_full_speed_from_four_ranks(controller: Controller, tmp_path: Path) -> None:
    words = ("--sandbox", "2", "--nproc-per-node", "2", script(controller, FAST), "20", str(tmp_path))
    finished = controller.mnspawn(*words).check()
    seen: dict[bytes, int] = {}
    shape = re.compile(rb"\[sandbox-[12]:([0-3])\] (\1) ([0-9]{6}) y{90}")
    for line in finished.raw_stdout.splitlines():
        match = shape.fullmatch(line)
        assert match, line
        assert int(match[3]) == seen.get(match[1], 0) % 10_000
        seen[match[1]] = seen.get(match[1], 0) + 1
    assert seen == {b"%d" % rank: 200_000 for rank in range(4)}


def test_a_stopped_reader_slows_no_worker_and_gets_everything_later(controller: Controller, tmp_path: Path) -> None:
    words = ("--sandbox", "1", "--nproc-per-node", "2", script(controller, FAST), "20", str(tmp_path))
    with controller.start_mnspawn(*words, stdout=subprocess.PIPE) as running:
        wait_until(lambda: (tmp_path / "done-0").exists() and (tmp_path / "done-1").exists())
        assert running.popen.poll() is None
        assert running.popen.stdout is not None
        assert running.popen.stdout.read().count(b"\n") == 400_000
        assert running.wait().status == 0


def test_ctrl_c_ends_a_run_whose_reader_has_stopped(controller: Controller, tmp_path: Path) -> None:
    words = ("--sandbox", "1", "--nproc-per-node", "1", script(controller, FAST + NAPPING), "5", str(tmp_path))
    with controller.start_mnspawn(*words, stdout=subprocess.PIPE) as running:
        wait_until(lambda: (tmp_path / "done-0").exists())
        running.interrupt()
        running.wait_for(lambda: "stopping all ranks" in running.stderr)
        interrupt_until_gone(running)


def interrupt_until_gone(running: Running) -> None:
    """Nobody reads the rest: Ctrl-C again means that it is not wanted."""

    def is_gone() -> bool:
        running.interrupt()
        return running.popen.poll() is not None

    wait_until(is_gone)
    assert running.wait().status == 130
    assert "Traceback" not in running.stderr


def test_a_reader_that_leaves_does_not_disturb_the_run(controller: Controller, tmp_path: Path) -> None:
    words = ("--sandbox", "1", "--nproc-per-node", "2", script(controller, FAST), "20", str(tmp_path))
    with controller.start_mnspawn(*words, stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        assert running.popen.stdout.readline().startswith(b"[sandbox-1:")
        running.popen.stdout.close()
        finished = running.wait()
    assert (finished.status, finished.stderr) == (0, "")
    assert (tmp_path / "done-0").exists()
    assert (tmp_path / "done-1").exists()


def test_a_full_disk_is_told_and_does_not_disturb_the_run(controller: Controller, tmp_path: Path) -> None:
    words = ("--sandbox", "1", "--nproc-per-node", "1", script(controller, FAST), "1", str(tmp_path))
    with open("/dev/full", "wb") as full, controller.start_mnspawn(*words, stdout=full) as running:
        finished = running.wait()
    assert finished.status == 0
    assert finished.stderr.splitlines() == [
        "mnspawn: standard output: No space left on device: no more output is written there"
    ]


def test_events_tell_the_whole_run_in_order(controller: Controller) -> None:
    path = script(controller, "import sys; print('hello'); print('oops', file=sys.stderr); sys.exit(7)")
    words = ("--sandbox", "1", "--nproc-per-node", "1", "--events", "-", "--output", "none", path)
    finished = controller.mnspawn(*words)
    assert finished.status == 7
    events = [json.loads(line) for line in finished.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert names[:3] == ["host_connected", "run_starting", "trainer_started"]
    assert names[-1] == "run_finished"
    assert events[-1]["exit_status"] == 7
    own = [event for event in events if event.get("rank") == 0 and event["event"] == "trainer_output"]
    assert "".join(event["text"] for event in own if event["stream"] == "stdout") == "hello\n"
    assert "".join(event["text"] for event in own if event["stream"] == "stderr") == "oops\n"
    assert names.index("trainer_exited") > max(i for i, name in enumerate(names) if name == "trainer_output")
    assert all(event["time"] > 1e9 for event in events)


def test_the_last_lines_tell_who_failed_and_who_was_stopped(controller: Controller) -> None:
    text = "import os, time, sys\nif os.environ['RANK'] == '3': sys.exit('no luck')\ntime.sleep(1000)"
    words = ("--sandbox", "2", "--nproc-per-node", "2", "--output", "none", script(controller, text))
    finished = controller.mnspawn(*words)
    assert finished.status == 1
    *_, first, second, third, fourth = finished.stderr.splitlines()
    assert re.fullmatch(
        r"mnspawn: rank 3 failed: exit status 1 \(host sandbox-2, local rank 1, pid [0-9]+, ran [0-9.]+ s\)", first
    )
    assert (second, third) == ("  its last lines on stderr:", "    no luck")
    assert fourth == "  stopped because of it: ranks 0-2"


def test_a_terminal_shows_progress_and_keeps_lines_whole(controller: Controller) -> None:
    text = (
        "import sys, time\n"
        "for n in range(3):\n"
        "    sys.stderr.write('\\r%d%%' % n); sys.stderr.flush(); time.sleep(0.05)\n"
        "sys.stderr.write('\\n'); print('done')"
    )
    reader, terminal = pty.openpty()
    words = ("--sandbox", "1", "--nproc-per-node", "1", script(controller, text))
    shown = b""
    with controller.start_mnspawn(*words, stdout=terminal, stderr=terminal, env={"TERM": "xterm"}) as running:
        os.close(terminal)
        while True:
            try:
                part = os.read(reader, 65536)
            except OSError:  # Linux: the other side is closed
                break
            shown += part
        assert running.wait().status == 0
    os.close(reader)
    assert b"mnspawn: connecting: 0 of 1 host" in shown
    assert b"\r\x1b[K[sandbox-1:0] 1%" in shown
    assert shown.endswith(b"[sandbox-1:0]\x1b[0m 2%\r\n\x1b[0;36m[sandbox-1:0]\x1b[0m done\r\n")
