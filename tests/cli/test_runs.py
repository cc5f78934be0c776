"""Runs that outlive the command that started them: seen, followed, taken over and ended from anywhere."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cluster, wait_until

PROGRAM = """
import os, signal, sys
rank = int(os.environ["RANK"])
def fail(*_):
    print("told to fail", flush=True)
    sys.exit(5)
signal.signal(signal.SIGUSR1, fail)
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"still here\\n"))
for number in range(100):
    print("line", number)
print("same for all")
os.write(2, b"\\xff\\x00 50%\\r100%\\n")
print("up", flush=True)
while True:
    signal.pause()
"""
HOSTS = "h1,h2"


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The id of a detached run of four ranks named deep; whatever is left of it is ended."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    words = ("--hosts", HOSTS, "--nproc-per-node", "2", "--name", "deep", "--detach", "--output", "none", str(script))
    finished = cluster.mnspawn(*words).check()
    assert re.fullmatch(r"[0-9a-f]{8}\n", finished.stdout)
    yield finished.stdout.strip()
    cluster.mnspawn("stop", "--kill", "deep")
    wait_until(lambda: not keepers(finished.stdout.strip()))


def keepers(run: str) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"mnspawn.engine.keeper .* {run}"], capture_output=True, text=True)
    return found.stdout.split()


def status(cluster: Cluster, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    content = json.loads(cluster.mnspawn("status", "--json", *words, env=env).stdout)
    assert isinstance(content, dict)
    return content


def elsewhere(cluster: Cluster, folder: Path) -> dict[str, str]:
    """The environment of a controller that knows nothing but how to reach the hosts."""
    (folder / "elsewhere").mkdir(exist_ok=True)
    return {"XDG_STATE_HOME": str(folder / "elsewhere"), "MNSPAWN_SSH_CONFIG": str(cluster.ssh_config)}


@pytest.mark.essential
def test_a_failure_of_a_detached_run_stops_all_and_is_told_to_whoever_asks(cluster: Cluster, run: str) -> None:
    assert len(keepers(run)) == 1
    assert [host["state"] for host in status(cluster, run)["hosts"]] == ["running", "running"]
    [row] = json.loads(cluster.mnspawn("ps", "--json").check().stdout)["runs"][:1]
    assert (row["run"], row["name"], row["state"], row["hosts"]) == (run, "deep", "running", ["h1", "h2"])

    said = cluster.mnspawn("signal", "--ranks", "3", "deep", "USR1").check()
    assert said.stderr == f"mnspawn: SIGUSR1 sent to 1 rank of run {run}\n"
    wait_until(lambda: status(cluster, run)["state"] == "ended")
    cluster.wait_idle()

    wait_until(lambda: not keepers(run))
    report = json.loads(cluster.mnspawn("report", run[:5], "--json").check().stdout)["report"]
    first = report["first_failure"]
    assert (report["exit_status"], first["rank"], first["host"], first["code"]) == (5, 3, "h2", 5)
    assert [rank["stopped"] for rank in report["ranks"]] == [True, True, True, False]
    shown = cluster.mnspawn("report", "deep").check().stdout
    assert "mnspawn: rank 3 failed: exit status 5 (host h2, local rank 1" in shown

    attached = cluster.mnspawn("attach", "deep", "-n", "1")
    assert attached.status == 5
    assert "[h2:3] told to fail\n" in attached.stdout
    assert "mnspawn: rank 3 failed: exit status 5" in attached.stderr


@pytest.mark.parametrize("words", [("--hosts", "h1,nowhere.invalid"), ("--hosts", "h1", "--python", "/no/python3")])
def test_a_launch_that_starts_nothing_is_not_remembered(
    cluster: Cluster, words: tuple[str, ...], tmp_path: Path
) -> None:
    env = elsewhere(cluster, tmp_path)
    assert cluster.mnspawn(*words, "--no-python", "true", env=env).status == 3
    assert list((tmp_path / "elsewhere").rglob("*")) == []
    assert cluster.mnspawn("--hosts", "h1", "--no-python", "true", env=env).status == 0
    assert len(list((tmp_path / "elsewhere/mnspawn/known").iterdir())) == 1


def test_another_controller_needs_only_the_hosts(cluster: Cluster, run: str, tmp_path: Path) -> None:
    env = elsewhere(cluster, tmp_path)
    unknown = cluster.mnspawn("status", "deep", env=env)
    assert unknown.status == 2
    assert unknown.stderr.startswith("mnspawn: RUN: expected a run known here, found 'deep'\n  hint: mnspawn ps lists")
    listed = cluster.mnspawn("ps", "--hosts", "h1,h2,h3", env=env).check().stdout.splitlines()
    assert [line.split()[:3] for line in listed if run in line] == [[run, "deep", "running"]]
    shown = cluster.mnspawn("logs", "deep", "-H", HOSTS, "-n", "1", "--stdout", env=env).check()
    assert sorted(shown.stdout.splitlines()) == ["[h1:0] up", "[h1:1] up", "[h2:2] up", "[h2:3] up"]
    running = status(cluster, "deep", env={**env, "MNSPAWN_HOSTS": HOSTS})
    assert (running["state"], running["report"]["exit_status"], running["report"]["reason"]) == ("running", None, None)
    stopped = cluster.mnspawn("stop", run[:6], "-H", HOSTS, env=env).check()
    assert stopped.stderr.endswith(f"mnspawn: run {run} is stopped; nothing of it is left on 2 hosts\n")
    cluster.wait_idle()
    listed = cluster.mnspawn("ps", "--hosts", HOSTS, env=env).check().stdout.splitlines()
    assert [line.split()[:4] for line in listed if run in line] == [[run, "deep", "ended", "(143)"]]
    again = cluster.mnspawn("stop", run, "-H", HOSTS, env=env).check()
    assert again.stderr == f"mnspawn: run {run} had ended before: exit status 143\n"


def test_logs_show_what_was_asked_for(cluster: Cluster, run: str) -> None:
    def logs(*words: str) -> list[str]:
        return cluster.mnspawn("logs", "deep", *words).check().stdout.splitlines()

    assert logs("--ranks", "2", "--output", "plain", "--stdout") == [
        *(f"line {number}" for number in range(100)),
        "same for all",
        "up",
    ]
    assert logs("--stdout", "-n", "2", "--output", "fold") == ["[0-3] same for all", "[0-3] up"]
    assert sorted({line.split()[0] for line in logs("--only-hosts", "h2")}) == ["[h2:2]", "[h2:3]"]
    assert sorted({line.split()[0] for line in logs("--hosts", "h2")}) == ["[h2:2]", "[h2:3]"]
    assert {line.split()[0] for line in logs("--hosts", HOSTS)} == {"[h1:0]", "[h1:1]", "[h2:2]", "[h2:3]"}
    assert logs("--hosts", "h1", "--ranks", "1-2", "-n", "1", "--stdout") == ["[h1:1] up"]
    assert logs("--since", "1s", "--stdout") == []
    stamped = logs("--timestamps", "--ranks", "0", "-n", "1", "--since", "1h")
    assert re.fullmatch(r"\[h1:0\] 20[0-9-]{8}T[0-9:.]{12}Z up", stamped[0])
    [line] = (json.loads(line) for line in logs("--output", "json", "--ranks", "1", "-n", "1", "--stdout"))
    assert (line["host"], line["rank"], line["stream"], line["text"]) == ("h1", 1, "stdout", "up")


def test_looking_disturbs_no_run(cluster: Cluster, run: str, tmp_path: Path) -> None:
    """Each of these needs a run and leaves it as it was: one is enough for all."""
    _a_reader_that_leaves_ends_the_looking_and_not_the_run(cluster, run)
    _a_reader_that_leaves_silence_is_noticed(cluster)
    _a_full_disk_here_is_told_and_no_more(cluster)
    _local_copies_are_byte_exact(cluster, run, tmp_path)
    _hosts_that_are_not_all_of_a_run_do_not_tell_of_it(cluster, run, tmp_path)
    _ctrl_backslash_lets_go_again(cluster, run)


def _a_reader_that_leaves_ends_the_looking_and_not_the_run(cluster: Cluster, run: str) -> None:
    with cluster.start_mnspawn("logs", "-f", "--stdout", "deep", stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        assert running.popen.stdout.readline().startswith(b"[h")
        running.popen.stdout.close()
        finished = running.wait()
    assert (finished.status, finished.stderr) == (0, "")
    assert status(cluster, run)["state"] == "running"


def _a_reader_that_leaves_silence_is_noticed(cluster: Cluster) -> None:
    words = ("tail", "deep", "-n", "0", "--output", "none")
    with cluster.start_mnspawn(*words, stdout=subprocess.PIPE) as running:
        assert running.popen.stdout is not None
        running.popen.stdout.close()
        assert running.wait().status == 0


def _a_full_disk_here_is_told_and_no_more(cluster: Cluster) -> None:
    with open("/dev/full", "wb") as full, cluster.start_mnspawn("logs", "deep", stdout=full) as running:
        finished = running.wait()
    assert finished.status == 2
    assert "standard output: No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr
    for words in (("logs", "-f", "deep"), ("tail", "h1:/etc/passwd")):  # nothing comes that could fail again
        with open("/dev/full", "wb") as full, cluster.start_mnspawn(*words, stdout=full) as running:
            assert running.wait().status == 2


def _local_copies_are_byte_exact(cluster: Cluster, run: str, tmp_path: Path) -> None:
    cluster.mnspawn("logs", "deep", "--log-dir", str(tmp_path / "copies"), "--output", "none").check()
    folder = tmp_path / "copies" / run
    lines = "".join(f"line {number}\n" for number in range(100)) + "same for all\nup\n"
    for rank in range(4):
        assert (folder / f"rank-{rank:04d}.out").read_bytes() == lines.encode()
        assert (folder / f"rank-{rank:04d}.err").read_bytes() == b"\xff\x00 50%\r100%\n"


def _hosts_that_are_not_all_of_a_run_do_not_tell_of_it(cluster: Cluster, run: str, tmp_path: Path) -> None:
    finished = cluster.mnspawn("status", run, "--hosts", "h1", env=elsewhere(cluster, tmp_path))
    assert finished.status == 2
    assert "expected a run that these hosts know all of" in finished.stderr


def _ctrl_backslash_lets_go_again(cluster: Cluster, run: str) -> None:
    with cluster.start_mnspawn("attach", "deep") as attached:
        attached.wait_for(lambda: attached.stdout.count("] up") == 4)
        attached.send_signal(signal.SIGQUIT)
        finished = attached.wait()
    assert finished.status == 0
    assert f"mnspawn: run {run} continues without us" in finished.stderr
    assert status(cluster, run)["state"] == "running"
    assert len(keepers(run)) == 1


def test_several_follow_at_once_and_ctrl_c_of_one_who_only_looks_ends_nothing(cluster: Cluster, run: str) -> None:
    with cluster.start_mnspawn("tail", "deep") as one, cluster.start_mnspawn("logs", "-f", "deep") as other:
        one.wait_for(lambda: one.stdout.count("] up") == 4)
        other.wait_for(lambda: other.stdout.count("] up") == 4)
        one.interrupt()
        assert one.wait().status == 130
        cluster.mnspawn("signal", "deep", "usr2", "--only-hosts", "h1").check()
        other.wait_for(lambda: other.stdout.count("still here") == 2)
        assert status(cluster, run)["state"] == "running"
        cluster.mnspawn("stop", "deep").check()
        assert other.wait().status == 143


def test_ctrl_c_of_one_who_is_attached_stops_the_run(cluster: Cluster, run: str) -> None:
    with cluster.start_mnspawn("attach", "deep") as attached:
        attached.wait_for(lambda: attached.stdout.count("] up") == 4)
        attached.interrupt()
        assert attached.wait().status == 130
    cluster.wait_idle()


@pytest.mark.essential
def test_a_terminal_can_be_made_to_let_go(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    words = ("--hosts", HOSTS, "--nproc-per-node", "2", "--name", "held", str(script))
    with cluster.start_mnspawn(*words) as running:
        running.wait_for(lambda: running.stdout.count("] up") == 4)
        said = cluster.mnspawn("detach", "held").check()
        assert re.fullmatch(r"mnspawn: run [0-9a-f]{8} is detached\n", said.stderr)
        assert running.wait().status == 0
    assert status(cluster, "held")["state"] == "running"
    again = cluster.mnspawn("detach", "held").check()
    assert again.stderr.endswith("is detached already\n")
    run = status(cluster, "held")["run"]
    cluster.mnspawn("stop", "held").check()
    wait_until(lambda: not keepers(run))


def test_a_terminal_of_another_machine_is_asked_to_let_go(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    env = elsewhere(cluster, tmp_path)
    words = ("--hosts", HOSTS, "--nproc-per-node", "2", "--name", "far", str(script))
    with cluster.start_mnspawn(*words) as running:
        running.wait_for(lambda: running.stdout.count("] up") == 4)
        said = cluster.mnspawn("detach", "far", "--hosts", HOSTS, env=env).check()
        assert re.fullmatch(r"mnspawn: run [0-9a-f]{8} is detached\n", said.stderr)
        assert running.wait().status == 0
    run = status(cluster, "far")["run"]
    assert len(keepers(run)) == 1  # at the terminal's machine
    again = cluster.mnspawn("detach", run, "--hosts", HOSTS, env=env).check()
    assert again.stderr.endswith("is detached already\n")
    cluster.mnspawn("stop", "far", "--hosts", HOSTS, env=env).check()
    ended = cluster.mnspawn("detach", "far", "--hosts", HOSTS, env=env)
    assert (ended.status, ended.stderr.splitlines()[0]) == (2, f"mnspawn: RUN: run {run} has ended")
    wait_until(lambda: not keepers(run))


def test_an_end_that_nobody_here_has_seen_is_asked_for(cluster: Cluster, run: str, tmp_path: Path) -> None:
    def row() -> tuple[str, int | None]:
        [found] = [
            one for one in json.loads(cluster.mnspawn("ps", "--json").check().stdout)["runs"] if one["run"] == run
        ]
        return found["state"], found["exit_status"]

    for pid in keepers(run):
        os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: not keepers(run))
    assert row() == ("running", None)
    cluster.mnspawn("stop", run, "--hosts", HOSTS, env=elsewhere(cluster, tmp_path)).check()
    assert row() == ("ended", 143)
    report = json.loads(cluster.mnspawn("report", run, "--json").check().stdout)["report"]  # from memory, now
    assert all({"prepared", "started", "ended"} <= set(host["phases"]) for host in report["hosts"])


def test_files_of_hosts_are_followed_through_rotation_and_truncation(cluster: Cluster) -> None:
    def at(host: str, command: str) -> None:
        assert cluster[host].run("sh", "-c", command).status == 0

    for host in ("h1", "h2"):
        at(host, "rm -rf /tmp/l; mkdir /tmp/l; seq 1 50 > /tmp/l/a.log")
    words = ("tail", "h[1-2]:/tmp/l/*.log", "-n", "1")
    with cluster.start_mnspawn(*words) as running:
        running.wait_for(
            lambda: sorted(running.stdout.splitlines()) == ["[h1:/tmp/l/a.log] 50", "[h2:/tmp/l/a.log] 50"]
        )
        at("h1", "cd /tmp/l; echo more >> a.log; mv a.log a.log.1; echo last >> a.log.1; echo rotated > a.log")
        at("h2", "cd /tmp/l; : > a.log")
        running.wait_for(lambda: "rotated" in running.stdout)
        at("h2", "cd /tmp/l; echo short > a.log; echo new > b.log")
        running.wait_for(lambda: "short" in running.stdout and "new" in running.stdout)
        running.interrupt()
        finished = running.wait()
    assert finished.status == 130
    lines = finished.stdout.splitlines()
    assert [line for line in lines if line.startswith("[h1")] == [
        f"[h1:/tmp/l/a.log] {text}" for text in ("50", "more", "last", "rotated")
    ]
    assert {"[h2:/tmp/l/a.log] short", "[h2:/tmp/l/b.log] new"} <= set(lines)
    cluster.wait_idle()


def test_files_that_can_not_be_followed_are_told(cluster: Cluster) -> None:
    with cluster.start_mnspawn("tail", "h1:/nowhere/x*", "nobody:/tmp/x") as running:
        running.wait_for(lambda: running.stderr.count("\n") >= 2)
        running.interrupt()
        finished = running.wait()
    assert "mnspawn: h1: no file matches /nowhere/x* yet\n" in finished.stderr
    assert "mnspawn: nobody: " in finished.stderr
    alone = cluster.mnspawn("tail", "nobody:/tmp/x")
    assert (alone.status, alone.stdout) == (3, "")


def test_clean_shows_first_and_then_removes_what_is_over(cluster: Cluster, run: str) -> None:
    def cleaned(*words: str) -> list[dict[str, Any]]:
        finished = cluster.mnspawn("clean", "--json", "--older-than", "0", *words).check()
        return [action for action in json.loads(finished.stdout)["actions"] if action["run"] == run]

    assert cleaned("h1", "h2") == []  # it runs
    cluster.mnspawn("stop", "deep").check()
    wait_until(lambda: not keepers(run))
    assert [action["host"] for action in cleaned("--dry-run", HOSTS)] == ["h1", "h2"]
    assert [action["host"] for action in cleaned()] == ["h1", "h2"]  # of all hosts known here
    assert cleaned() == []
    gone = cluster.mnspawn("logs", "deep")
    assert gone.status == 3
    assert gone.stderr == f"mnspawn: 2 hosts: knows nothing of run {run}: h[1-2]\n"
    assert cluster.mnspawn("report", "deep").check().stdout.startswith(f"run {run} (deep): exit status 143 after ")


def test_a_sandbox_can_not_be_detached(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    finished = cluster.mnspawn("--sandbox", "1", "--detach", str(script))
    assert finished.status == 2
    assert finished.stderr.startswith("mnspawn: --detach: expected hosts that outlive this command, found a sandbox")


@pytest.mark.parametrize("command", ["status", "logs", "tail", "attach", "stop", "report", "detach"])
def test_commands_about_a_run_want_one_that_is_known(cluster: Cluster, command: str) -> None:
    missing = cluster.mnspawn(command)
    assert missing.status == 2
    assert "missing argument 'RUN" in missing.stderr
    unknown = cluster.mnspawn(command, "nothing", "-v")
    assert (unknown.status, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("mnspawn: RUN: expected a run known here, found 'nothing'\n")
