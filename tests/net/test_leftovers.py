"""Nothing of a run stays on a host, whatever workers started and whoever of ours was killed; and nothing else ends."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, HostProcess, Running, VirtualHost

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
HOPPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True:  # one process at any time, never the same for a millisecond
        if os.fork():
            os._exit(0)
time.sleep(0.3)
sys.exit(int(sys.argv[1]))
"""
BREEDER = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    while True:
        for _ in range(10):
            subprocess.Popen(["sleep", "0.05"], start_new_session=True)
        time.sleep(0.01)
time.sleep(0.3)
sys.exit(3)
"""
LATE = """
import os, subprocess
heard, said = os.pipe()
child = f"trap 'echo late; echo bye; exit' TERM; echo >&{said}; while :; do sleep 0.1; done"
subprocess.Popen(["bash", "-c", child], pass_fds=[said])
os.read(heard, 1)  # its trap is set
os.write(1, b"end\\n")
"""
FAMILY = """
import subprocess, time
subprocess.Popen(["sleep", "301"])
subprocess.Popen(["setsid", "sleep", "302"])
subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 303 & sleep 304' &"])
print("up", flush=True)
time.sleep(300)
"""


def put(folder: Path, text: str) -> str:
    script = folder / "program.py"
    script.write_text(text)
    return str(script)


def started(cluster: Cluster, *command: str, ranks: int) -> Running:
    """A run of which every rank is up."""
    running = cluster.start_mnspawn(*command)
    try:
        running.wait_for(lambda: running.stdout.count("up") == ranks, what="all ranks are up")
    except AssertionError:
        running.__exit__(None, None, None)
        raise
    return running


def agent_and_guardian(host: VirtualHost) -> tuple[HostProcess, HostProcess]:
    """The agent and the guardian that it was forked from."""
    ours = [process for process in host.processes() if process.argv[1:5] == ("-S", "-E", "-s", "-c")]
    guardian, agent = ours  # by pid
    return agent, guardian


@pytest.mark.parametrize("status", [0, 5])
def test_a_process_that_replaces_itself_all_the_time_is_caught(cluster: Cluster, tmp_path: Path, status: int) -> None:
    """F04: a scan of /proc never sees it; that nothing is left must be proved otherwise."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "0.5", put(tmp_path, HOPPER), str(status)]
    done = cluster.mnspawn(*command)
    assert done.status == status, done
    cluster.check_clean()


def test_children_that_come_and_go_quickly_are_caught(cluster: Cluster, tmp_path: Path) -> None:
    """F04: what is found is gone before it is killed, and others are there."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "0.5", put(tmp_path, BREEDER)]
    done = cluster.mnspawn(*command)
    assert done.status == 3, done
    cluster.wait_idle()  # sleepers that were adopted by nobody end by themselves


def test_what_children_write_after_their_worker_ended_is_shown(cluster: Cluster, tmp_path: Path) -> None:
    """A worker that ends well is not the end of its output."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "5", put(tmp_path, LATE)]
    done = cluster.mnspawn(*command).check()
    for host, rank in (("h1", 0), ("h2", 1)):
        own = sorted(line for line in done.stdout.splitlines() if line.startswith(f"[{host}:{rank}] "))
        assert own == [f"[{host}:{rank}] {word}" for word in ("bye", "end", "late")], done
    cluster.check_clean()


def test_stopped_workers_are_stopped_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """F05: a worker that SIGSTOP holds gets its TERM, too."""
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "600", put(tmp_path, SLEEP)]
    with started(cluster, *command, ranks=4) as running:
        for process in cluster["h2"].processes():
            if process.argv[-1].endswith("program.py"):
                cluster["h2"].kill(process.pid, signal.SIGSTOP)
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    cluster.check_clean()


@pytest.mark.parametrize("victims", ["agent", "agent and guardian"])
@pytest.mark.essential
def test_a_killed_agent_leaves_nothing(cluster: Cluster, tmp_path: Path, victims: str) -> None:
    """F19, F04: workers die with the agent; what they started is ended by the guardian, or by a fresh agent."""
    host = cluster["h2"]
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "2", put(tmp_path, FAMILY)]
    with started(cluster, *command, ranks=4) as running:
        agent, guardian = agent_and_guardian(host)
        pids = [agent.pid] if victims == "agent" else [agent.pid, guardian.pid]
        host.run("kill", "-KILL", *map(str, pids)).check()
        done = running.wait()
    assert done.status == 5, done
    assert "host lost: h2 (ranks 2-3): its agent died" in done.stderr, done
    assert "not confirmed" not in done.stderr, done
    cluster.check_clean()


def test_a_killed_guardian_costs_nothing_but_the_link(cluster: Cluster, tmp_path: Path) -> None:
    """The link breaks at once and comes back at once; the workers never notice."""
    host = cluster["h2"]
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "2", put(tmp_path, SLEEP)]
    with started(cluster, *command, ranks=4) as running:
        host.kill(agent_and_guardian(host)[1].pid)
        running.wait_for(lambda: "h2: link is back" in running.stderr)
        assert len([p for p in host.processes() if p.argv[-1].endswith("program.py")]) == 2
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    cluster.check_clean()


def test_a_killed_ssh_session_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """A server process that dies is a broken link, no broken host."""
    host = cluster["h2"]
    script = put(tmp_path, SLEEP.replace("300", "1.5") + "print('end')\n")
    with started(cluster, "--hosts", "h1,h2", "--nproc-per-node", "2", script, ranks=4) as running:
        host.run("pkill", "-KILL", "-f", "^sshd: root")
        done = running.wait().check()
    assert "h2: link is back" in done.stderr, done
    lines = [f"[h{rank // 2 + 1}:{rank}] {word}" for rank in range(4) for word in ("up", "end")]
    assert sorted(done.stdout.splitlines()) == sorted(lines)


def test_an_agent_that_is_told_to_end_stops_the_run(cluster: Cluster, tmp_path: Path) -> None:
    """F12: somebody on a host (an administrator, a batch system) ends our part there: all ranks are stopped."""
    host = cluster["h2"]
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "2", put(tmp_path, FAMILY)]
    with started(cluster, *command, ranks=4) as running:
        host.kill(agent_and_guardian(host)[0].pid, signal.SIGTERM)
        done = running.wait()
    assert done.status == 143, done
    assert "the agent got a signal to end on h2" in done.stderr, done
    cluster.check_clean()


def test_a_worker_that_somebody_else_ends_has_failed(cluster: Cluster, tmp_path: Path) -> None:
    """F13: a TERM that we did not send is a failure with its own status."""
    host = cluster["h2"]
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", put(tmp_path, SLEEP)]
    with started(cluster, *command, ranks=4) as running:
        workers = [process for process in host.processes() if process.argv[-1].endswith("program.py")]
        victim = next(worker for worker in workers if worker.environ["RANK"] == "3")
        host.kill(victim.pid, signal.SIGTERM)
        done = running.wait()
    assert done.status == 143, done
    assert "rank 3 failed: signal 15 (SIGTERM)" in done.stderr, done
    assert "stopped because of it: ranks 0-2" in done.stderr, done
    cluster.check_clean()


BECOME = "/usr/local/bin/become"  # a Python with the set-user-ID bit: what sudo is for one who may
ROOTED = f"""
import os, signal, sys, time
if os.environ["RANK"] == "1":
    code = "import os, signal, time; os.setresuid(0, 0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    os.execv("{BECOME}", ["become", "-S", "-c", code + " os.write(1, b'up\\\\n'); time.sleep(300)"])
print("up", flush=True)
sys.stdin.read()
while not os.path.exists("/tmp/fail"):
    time.sleep(0.02)
sys.exit(7)
"""


def test_a_rank_that_has_become_root_is_given_up_and_named(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Nobody of ours may signal it: the run ends all the same, with the status of the rank that failed."""
    cluster = make_cluster(1)
    host = cluster["h1"]
    host.add_user("ann")
    host.run("sh", "-c", f"cp /usr/bin/python3 {BECOME} && chmod 4755 {BECOME}").check()
    command = ["--hosts", "ann@h1", "--nproc-per-node", "2", "--grace", "0.2", put(tmp_path, ROOTED)]
    with started(cluster, *command, ranks=2) as running:
        (rooted,) = [process for process in host.processes() if process.argv[0] == "become"]
        host.run("touch", "/tmp/fail").check()
        done = running.wait()
    assert done.status == 7, done
    assert "rank 0 failed: exit status 7" in done.stderr, done
    assert f"still running: process {rooted.pid} may not be signalled (it runs as uid 0)" in done.stderr, done
    assert [process.pid for process in host.processes()] == [rooted.pid]  # agent and guardian are gone
    host.kill(rooted.pid)
    cluster.wait_idle()
