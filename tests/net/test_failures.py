"""The first failure anywhere stops everything at once and is told in a few lines."""

from pathlib import Path

import pytest

from tests.support import Cluster

FAIL = """
import os, signal, sys, time
rank, culprit, how = int(os.environ["RANK"]), int(sys.argv[1]), sys.argv[2]
print("up", flush=True)
if rank != culprit:
    time.sleep(1000)
sys.stderr.write("first\\nlast words\\n")
sys.stderr.flush()
time.sleep(0.3)
print("dies", flush=True)
if how.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(1000)
if how == "raise":
    raise ValueError("no such thing")
if how == "os._exit":
    os._exit(3)
sys.exit(int(how))
"""


@pytest.fixture
def fail(tmp_path: Path) -> str:
    script = tmp_path / "fail.py"
    script.write_text(FAIL)
    return str(script)


@pytest.mark.parametrize(
    ("rank", "how", "status", "cause"),
    [
        (3, "7", 7, "exit status 7"),
        (0, "raise", 1, "exit status 1"),
        (5, "SIGKILL", 137, "SIGKILL"),
        (2, "SIGSEGV", 139, "SIGSEGV"),
        (1, "os._exit", 3, "exit status 3"),
    ],
)
@pytest.mark.essential
def test_the_first_failure_stops_all_and_is_told(
    cluster: Cluster, fail: str, rank: int, how: str, status: int, cause: str
) -> None:
    """F13, F14: rank, host, pid, cause, last words, whom it stopped; its status is ours."""
    command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "2", "--grace", "600", fail, str(rank), how]
    done = cluster.mnspawn(*command)
    assert done.status == status, done
    assert f"[h{rank // 2 + 1}:{rank}] dies\n" in done.stdout, done
    cluster.check_clean()
    told = done.stderr
    host = f"h{rank // 2 + 1}"
    for words in (f"rank {rank}", host, f"local rank {rank % 2}", cause, "last words", "pid ", "ran "):
        assert words in told, done
    others = [other for other in range(6) if other != rank]
    assert f"ranks {folded(others)}" in told, done
    assert "Traceback" not in told or how == "raise"


def folded(ranks: list[int]) -> str:
    """0-2,4-5 for 0 1 2 4 5."""
    pieces: list[list[int]] = []
    for rank in ranks:
        if pieces and pieces[-1][-1] == rank - 1:
            pieces[-1].append(rank)
        else:
            pieces.append([rank])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in pieces)


def test_all_that_succeed_give_status_0_and_silence(cluster: Cluster) -> None:
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "2", "--no-python", "true").check()
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.essential
def test_what_a_worker_left_behind_is_swept(cluster: Cluster, tmp_path: Path) -> None:
    """F04: sessions of their own save nobody."""
    script = tmp_path / "family.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '998'], start_new_session=True)\n"
        "subprocess.Popen(['sh', '-c', 'setsid sleep 999 & setsid sh -c \"trap : TERM; sleep 997; sleep 996\" &'])\n"
        "time.sleep(0.3)\n"
        "sys.exit(9 if os.environ['RANK'] == '1' else 0)\n"
    )
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "1", str(script))
    assert done.status == 9, done
    cluster.check_clean()


@pytest.fixture
def stubborn(tmp_path: Path) -> str:
    """A script that ignores TERM, whose rank 0 fails once it is up."""
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up' * 10000, flush=True)\n"
        "time.sleep(0.5)\n"
        "sys.exit(4) if os.environ['RANK'] == '0' else time.sleep(1000)\n"
    )
    return str(script)


def test_workers_that_ignore_term_are_killed_after_the_grace(cluster: Cluster, stubborn: str) -> None:
    """F05: and that is told."""
    done = cluster.mnspawn("--hosts", "h1,h2,h3", "--nproc-per-node", "1", "--grace", "1", stubborn)
    assert done.status == 4, done
    assert "TERM was not enough and KILL followed for ranks 1-2" in done.stderr, done
    cluster.check_clean()


def test_without_a_grace_all_are_killed_at_once_and_what_they_said_is_shown(cluster: Cluster, stubborn: str) -> None:
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "2", "--grace", "0", stubborn)
    assert done.status == 4, done
    assert "TERM" not in done.stderr, done
    assert done.stdout.count("up" * 10000) == 4
    cluster.check_clean()


def test_workers_have_the_grace_to_finish_their_work(cluster: Cluster, tmp_path: Path) -> None:
    """F06: and what they print then is shown."""
    script = tmp_path / "careful.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "def finish(*_):\n"
        "    time.sleep(1.5)\n"
        "    print('saved', flush=True)\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, finish)\n"
        "print('up', flush=True)\n"
        "time.sleep(0.5)\n"
        "sys.exit(4) if os.environ['RANK'] == '0' else time.sleep(1000)\n"
    )
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--grace", "10", str(script))
    assert done.status == 4, done
    assert "[h2:1] saved" in done.stdout


def test_a_command_that_is_nowhere_is_told(cluster: Cluster) -> None:
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "/no/such/command")
    assert done.status != 0, done
    assert "/no/such/command" in done.stderr
    assert "Traceback" not in done.stderr
