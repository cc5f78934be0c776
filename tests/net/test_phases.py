"""A signal or a death in any phase of a run: nothing hangs, nothing is left, nothing is told that isn't so."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cluster, Running, wait_until

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
PAIR = ("--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "1", "--orphan-grace", "1")
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def sleep(tmp_path: Path) -> str:
    script = tmp_path / "sleep.py"
    script.write_text(SLEEP)
    return str(script)


def agents(cluster: Cluster) -> int:
    """How many hosts have an agent, however young."""
    return sum(any("python3" in process.argv[0] for process in host.processes()) for host in cluster.hosts[:2])


PHASES: dict[str, Callable[[Cluster, Running], bool]] = {
    "bootstrapping": lambda cluster, running: agents(cluster) > 0,
    "connected": lambda cluster, running: "connected" in running.stderr,
    "preparing": lambda cluster, running: running.stderr.count("connected") == 2,
    "starting": lambda cluster, running: "starting 4 ranks" in running.stderr,
    "running": lambda cluster, running: running.stdout.count("up") == 4,
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["INT", "TERM", "HUP"])
@pytest.mark.parametrize("phase", list(PHASES)[:-1])
def test_a_signal_in_any_phase(cluster: Cluster, sleep: str, phase: str, number: signal.Signals) -> None:
    """F01, F07, F12: the status says which signal it was, and nobody sees a traceback."""
    with cluster.start_mnspawn(*PAIR, "-v", sleep) as running:
        running.wait_for(lambda: PHASES[phase](cluster, running))
        running.send_signal(number)
        done = running.wait()
    assert done.status == SIGNALS[number], done
    assert "Traceback" not in done.stderr, done
    cluster.check_clean()


@pytest.mark.parametrize("phase", PHASES)
def test_a_controller_that_is_killed_in_any_phase(cluster: Cluster, sleep: str, phase: str) -> None:
    """F02: agents see the end of their link, whatever they are at."""
    with cluster.start_mnspawn(*PAIR, "-v", sleep) as running:
        running.wait_for(lambda: PHASES[phase](cluster, running))
        running.send_signal(signal.SIGKILL)
        running.wait()
        cluster.wait_idle()


def test_a_second_signal_while_stopping_kills(cluster: Cluster, tmp_path: Path) -> None:
    """F05, F12: whatever the second signal is; the first one gives the status."""
    script = tmp_path / "stubborn.py"
    script.write_text("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP)
    command = [word if word != "1" else "600" for word in PAIR]
    with cluster.start_mnspawn(*command, str(script)) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        running.send_signal(signal.SIGTERM)
        running.wait_for(lambda: "stopping all ranks: SIGTERM" in running.stderr)
        running.send_signal(signal.SIGINT)
        done = running.wait()
    assert done.status == 143, done
    assert "killing all ranks: SIGINT again" in done.stderr, done
    assert "TERM was not enough" not in done.stderr, done  # nobody waited for the grace to end
    cluster.check_clean()


def test_a_run_in_the_background_of_a_shell_is_not_interrupted(cluster: Cluster, sleep: str) -> None:
    """F09: a shell lets background jobs ignore SIGINT, and so do we; TERM ends the run."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with cluster.start_mnspawn(*PAIR, sleep, preexec_fn=ignore) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        running.interrupt()
        running.interrupt()
        running.send_signal(signal.SIGTERM)
        done = running.wait()
    assert done.status == 143, done
    assert "SIGINT" not in done.stderr, done
    cluster.check_clean()


def test_a_run_outlives_its_terminal_under_nohup(cluster: Cluster, tmp_path: Path) -> None:
    """F12: an ignored SIGHUP stays ignored."""
    script = tmp_path / "short.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(1)\nprint('end')\n")

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with cluster.start_mnspawn(*PAIR, str(script), preexec_fn=ignore) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        running.send_signal(signal.SIGHUP)
        assert running.wait().check().stdout.count("end") == 4


def test_user_signals_reach_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """F12: SIGUSR1 is for them: many write a checkpoint on it."""
    script = tmp_path / "usr1.py"
    script.write_text(
        "import os, signal, time\n"
        "def save(*_):\n"
        "    print('saved', flush=True)\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGUSR1, save)\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    with cluster.start_mnspawn(*PAIR, str(script)) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        running.send_signal(signal.SIGUSR1)
        assert running.wait().check().stdout.count("saved") == 4


def test_a_host_that_can_not_be_told_to_stop_is_named(make_cluster: Callable[..., Cluster], sleep: str) -> None:
    """F11, F03: nobody says that all is stopped when one host is out of reach; it stops itself all the same."""
    cluster = make_cluster(2)
    with cluster.start_mnspawn(*PAIR, sleep, notices_silence_soon=True) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        cluster["h2"].cut()
        running.interrupt()
        done = running.wait()
    assert done.status in (5, 130), done  # whichever was first: h2's last word or the key
    assert "not confirmed stopped: h2" in done.stderr, done
    cluster.wait_idle()  # silence, orphan grace, grace


def test_a_controller_that_slept_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    """F03: a notebook that was closed for longer than a link's patience: both sides find each other again."""
    script = tmp_path / "count.py"
    script.write_text(
        "import time\nfor number in range(60):\n    print('n', number, flush=True)\n    time.sleep(0.1)\n"
    )
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--orphan-grace", "600", str(script)]
    with cluster.start_mnspawn(*command, notices_silence_soon=True) as running:
        running.wait_for(lambda: running.stdout.count(" n 3\n") == 2)
        running.send_signal(signal.SIGSTOP)
        spools = cluster["h1"].path("/root/.local/state/mnspawn/runs").glob("*/0/rank-0.out")
        spool = max(spools, key=lambda path: path.stat().st_mtime)
        wait_until(lambda: "n 50\n" in spool.read_text(), 30, "more than 3 s of silence")
        running.send_signal(signal.SIGCONT)
        done = running.wait().check()
    for host, rank in (("h1", 0), ("h2", 1)):
        own = [line for line in done.stdout.splitlines() if line.startswith(f"[{host}:")]
        assert own == [f"[{host}:{rank}] n {number}" for number in range(60)]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_first_of_several_failures_is_blamed(cluster: Cluster, tmp_path: Path, order: tuple[int, int]) -> None:
    """F15: by the hosts' own steady clocks, however near they fail and whoever's news comes first."""
    script = tmp_path / "fail.py"
    script.write_text(
        "import os, sys, time\n"
        "rank, first, second = int(os.environ['RANK']), int(sys.argv[1]), int(sys.argv[2])\n"
        "print('up', flush=True)\n"
        "while not os.path.exists('/tmp/go'):\n"
        "    time.sleep(0.005)\n"
        "start = float(open('/tmp/go').read())\n"
        "delay = {first: 0.0, second: 0.5}.get(rank)\n"
        "time.sleep(1000 if delay is None else max(0, start + delay - time.time()))\n"
        "os._exit(40 + rank)\n"
    )
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", str(script), *map(str, order)]
    with cluster.start_mnspawn(*command) as running:
        running.wait_for(lambda: running.stdout.count("up") == 4)
        at = cluster["h1"].run("date", "+%s.%N").stdout.strip()
        for host in cluster.hosts[:2]:
            host.write("/tmp/go.new", str(float(at) + 2.0))
            host.run("mv", "/tmp/go.new", "/tmp/go").check()
        done = running.wait()
    for host in cluster.hosts[:2]:
        host.remove("/tmp/go")
    assert done.status == 40 + order[0], done
    assert f"rank {order[0]} failed: exit status {40 + order[0]}" in done.stderr, done


def test_a_long_checkpoint_has_its_time(cluster: Cluster, tmp_path: Path) -> None:
    """F06: a worker that needs some seconds after TERM gets them when the grace allows."""
    script = tmp_path / "careful.py"
    script.write_text(
        "import os, signal, time\n"
        "def finish(*_):\n"
        "    time.sleep(3)\n"
        "    print('saved', flush=True)\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, finish)\n" + SLEEP
    )
    with cluster.start_mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "600", str(script)) as running:
        running.wait_for(lambda: running.stdout.count("up") == 2)
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    assert done.stdout.count("saved") == 2, done
    assert "KILL" not in done.stderr, done


# -- while the agent is on its way


@pytest.mark.parametrize("moment", ["the command", "the archive"])
def test_an_agent_that_comes_in_half_is_never_run(
    make_cluster: Callable[..., Cluster], sleep: str, moment: str
) -> None:
    """F30: the link breaks while the archive travels; the next run finds nothing that it could take for an agent."""
    cluster = make_cluster(1, delay=0.1)
    host = cluster["h1"]
    command = ["--hosts", "h1", "--nproc-per-node", "1", "--connect-timeout", "10"]
    if moment == "the archive":  # the shell's words are on their way when the stub asks for it
        host.write("/root/.bashrc", "echo reading; touch /tmp/reading; sleep 0.3\n")
    with cluster.start_mnspawn(*command, sleep) as running:
        running.wait_for(
            lambda: (
                host.path("/tmp/reading").exists()
                if moment == "the archive"
                else any("python3" in process.argv[0] for process in host.processes())
            )
        )
        host.cut()
        done = running.wait()
    assert done.status == 3, done
    assert done.stderr.startswith("mnspawn: h1: "), done
    for process in host.processes():  # its sshd waits for TCP to give up
        host.kill(process.pid)
    host.heal()
    host.set_delay(0)
    cluster.mnspawn(*command, "--no-python", "true").check()


# -- what machines read


@pytest.mark.essential
def test_events_tell_the_whole_run(cluster: Cluster, tmp_path: Path) -> None:
    """One JSON object a line, each with its event and time; per rank started before output before exited."""
    script = tmp_path / "say.py"
    script.write_text("import os, sys\nos.write(1, b'out \\xff\\n')\nsys.exit(5 if os.environ['RANK'] == '1' else 0)\n")
    file = tmp_path / "events"
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--events", str(file), str(script))
    assert done.status == 5, done
    assert os.stat(file).st_mode & 0o077 == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(isinstance(event["event"], str) and event["time"] > 1e9 for event in events)
    kinds = [event["event"] for event in events]
    assert kinds.count("host_connected") == 2
    assert kinds[-1] == "run_finished"
    own = [event["event"] for event in events if event.get("rank") == 1]
    assert [kind for kind in own if kind.startswith("trainer_")] == [
        "trainer_started",
        "trainer_output",
        "trainer_exited",
    ]
    ended = next(event for event in events if event["event"] == "trainer_exited" and event["rank"] == 1)
    assert (ended["host"], ended["code"], ended["stopped"]) == ("h2", 5, False)
    piped = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--events", "-", "--no-python", "true").check()
    assert {json.loads(line)["event"] for line in piped.stdout.splitlines()} >= {"run_starting", "run_finished"}


def test_a_reader_that_left_ends_nothing_but_itself(cluster: Cluster, sleep: str) -> None:
    """F51: `| head -1` sees its line; the run goes on, says nothing about it, and stops when it is told to."""
    with cluster.start_mnspawn(*PAIR, sleep, stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        assert re.fullmatch(rb"\[h[12]:[0-3]\] up\n", running.popen.stdout.readline())
        running.popen.stdout.close()
        assert running.popen.poll() is None
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    assert "rror" not in done.stderr, done
    cluster.check_clean()


ENDLESS = "import sys\nprint('up', file=sys.stderr, flush=True)\nwhile True:\n    print('x' * 1000)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize("streams", ["stdout alone", "one pipe for both"])
def test_a_stopped_reader_keeps_nobody_from_leaving(
    cluster: Cluster, tmp_path: Path, number: signal.Signals, streams: str
) -> None:
    """F51: `2>&1 | less` with endless output: three signals leave, even when nothing more can be written."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE}
    if streams == "one pipe for both":
        pipes["stderr"] = subprocess.STDOUT

    def workers() -> int:
        return sum(process.argv[-1].endswith("endless.py") for host in cluster for process in host.processes())

    def unread() -> int:
        assert running.popen.stdout is not None
        return int.from_bytes(fcntl.ioctl(running.popen.stdout, termios.FIONREAD, bytes(4)), sys.byteorder)

    def is_pending() -> bool:
        """Two equal signals at once would count as one."""
        status = Path(f"/proc/{running.pid}/status").read_text()
        return any(int(mask, 16) for mask in re.findall(r"^S[ih][gd]Pnd:\s*(\S+)", status, re.MULTILINE))

    with cluster.start_mnspawn(*PAIR, str(script), **pipes) as running:
        running.wait_for(lambda: workers() == 4 and unread() > 60_000)
        for _ in range(3):
            running.send_signal(number)
            wait_until(lambda: workers() == 0 and not is_pending())
        done = running.wait()
    assert done.status == SIGNALS[number], done
    assert "Traceback" not in done.stderr, done
    cluster.check_clean()
