"""Whoever disappears or is told to stop, nothing hangs and nothing is left: user, controller, agent, host, cable."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support import Cluster, Running, VirtualHost, wait_until

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
STUBBORN = """
import signal
for name in ("SIGTERM", "SIGINT", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
"""


@pytest.fixture
def sleep(tmp_path: Path) -> str:
    script = tmp_path / "sleep.py"
    script.write_text(SLEEP)
    return str(script)


@pytest.fixture
def stubborn(tmp_path: Path) -> str:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN + SLEEP)
    return str(script)


def started(cluster: Cluster, script: str, *options: str, ranks: int, notices_silence_soon: bool = False) -> Running:
    """A run of which every rank is up."""
    command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "2", *options, script]
    running = cluster.start_mnspawn(*command, notices_silence_soon=notices_silence_soon)
    try:
        running.wait_for(lambda: running.stdout.count("up") == ranks, what="all ranks are up")
    except AssertionError:
        running.__exit__(None, None, None)
        raise
    return running


def has_said_more(running: Running, said: int) -> bool:
    return len(running.stderr) > said or running.popen.poll() is not None


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["INT", "TERM", "HUP"],
)
@pytest.mark.essential
def test_a_signal_stops_all_ranks(cluster: Cluster, sleep: str, number: int, status: int) -> None:
    """F01, F10, F12: as root too, where sshd passes no signals on."""
    with started(cluster, sleep, ranks=6) as running:
        running.send_signal(number)
        done = running.wait()
        assert done.status == status, done
        assert "Traceback" not in done.stderr
        assert "confirmed" not in done.stderr, done
        cluster.check_clean()


def test_ctrl_c_once_kills_what_ignores_it_after_the_grace(cluster: Cluster, stubborn: str) -> None:
    """F05: KILL follows TERM."""
    with started(cluster, stubborn, "--grace", "1", ranks=6) as running:
        running.interrupt()
        done = running.wait()
        assert done.status == 130, done
        assert "TERM was not enough and KILL followed for ranks 0-5" in done.stderr, done
        cluster.check_clean()


@pytest.mark.essential
def test_ctrl_c_twice_kills_at_once(cluster: Cluster, stubborn: str) -> None:
    """F05, F07: nobody waits for a long grace."""
    with started(cluster, stubborn, "--grace", "600", ranks=6) as running:
        running.interrupt()
        running.wait_for(lambda: "stop" in running.stderr)
        running.interrupt()
        assert running.wait().status == 130
        cluster.check_clean()


def test_ctrl_c_three_times_leaves_and_hosts_clean_up_alone(
    make_cluster: Callable[..., Cluster], stubborn: str
) -> None:
    """F03, F11: a host out of reach keeps nobody."""
    cluster = make_cluster(2)
    options = ("--grace", "2", "--orphan-grace", "1")
    with started(cluster, stubborn, *options, ranks=4, notices_silence_soon=True) as running:
        cluster["h2"].cut()  # or the second would do
        for _ in ("stop", "kill"):
            said = len(running.stderr)
            running.interrupt()
            wait_until(partial(has_said_more, running, said))
        running.interrupt()
        assert running.wait().status == 130
        cluster.wait_idle()


def test_ctrl_c_while_hosts_are_still_being_dialled(make_cluster: Callable[..., Cluster], sleep: str) -> None:
    """F07: pending connects are given up, agents that are there go."""
    cluster = make_cluster(2)
    cluster["h2"].cut()
    with cluster.start_mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", sleep) as running:
        running.wait_for(lambda: any(process.argv[0].endswith("python3") for process in cluster["h1"].processes()))
        running.interrupt()
        done = running.wait()
        assert done.status == 130, done
        assert "Traceback" not in done.stderr
        cluster.wait_idle()


@pytest.mark.essential
def test_hosts_clean_up_when_the_controller_is_killed(cluster: Cluster, sleep: str) -> None:
    """F02: the link's end is the order to stop."""
    with started(cluster, sleep, "--orphan-grace", "1", "--grace", "1", ranks=6) as running:
        running.send_signal(signal.SIGKILL)
        running.wait()
        cluster.wait_idle()


@pytest.mark.essential
def test_a_killed_agent_takes_its_workers_with_it(make_cluster: Callable[..., Cluster], sleep: str) -> None:
    """F19: told as the host's loss."""
    cluster = make_cluster(2)
    host = cluster["h2"]
    with started(cluster, sleep, "--grace", "1", "--orphan-grace", "1", ranks=4) as running:
        for process in host.processes():
            if not process.argv[-1].endswith("sleep.py"):
                host.run("kill", "-KILL", str(process.pid))
        done = running.wait()
        assert done.status == 5, done
        assert "h2" in done.stderr
        assert "Traceback" not in done.stderr
        cluster.wait_idle()


@pytest.mark.parametrize("vanishes", [VirtualHost.off, VirtualHost.cut])
def test_a_host_that_falls_silent_ends_the_run_on_both_sides(
    make_cluster: Callable[..., Cluster], sleep: str, vanishes: Callable[[VirtualHost], None]
) -> None:
    """F03: no reset is ever sent, and each side acts on silence alone."""
    cluster = make_cluster(2)
    options = ("--grace", "1", "--orphan-grace", "2")
    with started(cluster, sleep, *options, ranks=4, notices_silence_soon=True) as running:
        vanishes(cluster["h2"])
        done = running.wait()
        assert done.status == 5, done
        assert "h2" in done.stderr
        cluster.wait_idle()


def test_a_link_that_comes_back_in_time_goes_on_and_loses_nothing(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """F03: silence that ends in time costs nothing."""
    cluster = make_cluster(2)
    script = tmp_path / "count.py"
    script.write_text(
        "import os, time\nfor number in range(100):\n    print('n', number, flush=True)\n    time.sleep(0.1)\n"
    )
    command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--orphan-grace", "600", str(script)]
    with cluster.start_mnspawn(*command, notices_silence_soon=True) as running:
        running.wait_for(lambda: "[h2:1] n 10\n" in running.stdout)
        cluster["h2"].cut()
        running.wait_for(lambda: "h2" in running.stderr, what="the loss is told")
        cluster["h2"].heal()
        done = running.wait()
    assert done.status == 0, done
    lines = [line for line in done.stdout.splitlines() if line.startswith("[h2:1]")]
    assert lines == [f"[h2:1] n {number}" for number in range(100)]


@pytest.mark.essential
def test_a_timeout_stops_the_run(cluster: Cluster, sleep: str) -> None:
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--timeout", "1.5", sleep]
    done = cluster.mnspawn(*command)
    assert done.status == 124, done
    cluster.check_clean()
