"""A newer mnspawn meets a run of version 0.1.0: what that wrote down on this machine, and its agent on a host."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import PATIENCE, Cluster, Controller, wait_until
from tests.support.older_agent import AGENT, ENTRY, OlderAgent

OUTCOME: dict[str, Any] = {  # as 0.1.0 wrote it: without `raised` and `reasons`, which came later
    "rank": 0, "local_rank": 0, "host": "h1", "pid": 7, "code": 9, "seconds": 1.5, "stopped": False, "killed": False,
    "ended_at": 1.5, "tail": ["no luck"], "error": None, "is_disk_full": False, "outlived_term": False,
}  # fmt: skip
KEEPER = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1] + "/" + sys.argv[2] + "/tender", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, b"%d" % os.getpid())
print(flush=True)
sys.stdin.read()
"""


def write_record(controller: Controller, run: str, host: str, config: str | None) -> Path:
    """Write down what 0.1.0 remembers of a run of one rank; gives its folder."""
    folder = controller.home / ".local/state/mnspawn/known" / run
    folder.mkdir(mode=0o700, parents=True)
    (folder / "run.json").write_text(json.dumps({
        "run": run,
        "hosts": [{
            "identity": None, "data_address": None, "address": None, "workdir": None, "python": None, "user": None,
            "transport": None, "jump": None, "port": None, "name": host, "network": None, "devices": None,
            "prelude": None, "slots": 1,
        }],
        "world": [1], "name": "old", "program": {"kind": "command", "target": "/bin/sh", "args": []},
        "began": 1764500000.0, "grace": 60.0, "python": None, "transport": "asyncssh",
        "ssh": {"config": config, "connect_timeout": 15.0, "host_key_check": None},
    }, indent=1))  # fmt: skip
    return folder


@pytest.fixture
def run(cluster: Cluster) -> Iterator[str]:
    """The id of a detached run that 0.1.0 began on h1, and that it wrote down here."""
    host, run = cluster["h1"], f"old-{secrets.token_hex(4)}"
    shutil.copy(AGENT, host.path("/root/older.zip"))
    record = write_record(cluster, run, "h1", str(cluster.ssh_config))
    pipe = subprocess.PIPE
    words = {"PYTHONPATH": "/root/older.zip", "PYTHONDONTWRITEBYTECODE": "1"}
    with host.start_command("python3", "-c", ENTRY, env=words, stdin=pipe, stdout=pipe, bufsize=0) as running:
        agent = OlderAgent(running.popen, run, "h1")
        agent.leave()
        spool = host.path(f"/root/.local/state/mnspawn/runs/{run}/0/rank-0.out")
        wait_until(lambda: spool.read_bytes() == b"up\n")
        yield run
        cluster.mnspawn("stop", "--kill", run)
        running.popen.wait(PATIENCE)
    host.path("/root/older.zip").unlink()
    shutil.rmtree(record)


def test_a_run_that_0_1_0_began_is_listed_read_signalled_and_stopped(cluster: Cluster, run: str) -> None:
    rows = json.loads(cluster.mnspawn("ps", "--json", "--hosts", "h1").check().stdout)["runs"]
    [row] = [row for row in rows if row["run"] == run]
    assert (row["name"], row["state"], row["hosts"]) == ("old", "running", ["h1"])
    state = json.loads(cluster.mnspawn("status", "--json", run).check().stdout)
    assert (state["state"], [host["state"] for host in state["hosts"]]) == ("running", ["running"])
    assert cluster.mnspawn("logs", "old").check().stdout == "[h1:0] up\n"
    assert cluster.mnspawn("signal", run, "USR1").check().stderr == f"mnspawn: SIGUSR1 sent to 1 rank of run {run}\n"
    wait_until(lambda: cluster.mnspawn("logs", run).check().stdout == "[h1:0] up\n[h1:0] signalled\n")
    assert cluster.mnspawn("detach", run).check().stderr == f"mnspawn: run {run} is detached already\n"
    stopped = cluster.mnspawn("stop", run).check()
    assert stopped.stderr.endswith(f"mnspawn: run {run} is stopped; nothing of it is left on 1 host\n")
    cluster.wait_idle()
    report = json.loads(cluster.mnspawn("report", run, "--json").check().stdout)["report"]
    assert (report["exit_status"], report["ranks"][0]["code"], report["ranks"][0]["stopped"]) == (143, 9, True)
    assert cluster.mnspawn("logs", run).check().stdout == "[h1:0] up\n[h1:0] signalled\n[h1:0] told\n"


def test_a_run_that_0_1_0_began_is_attached_to_and_stopped_there(cluster: Cluster, run: str) -> None:
    with cluster.start_mnspawn("attach", run) as running:
        running.wait_for(lambda: "[h1:0] up\n" in running.stdout)
        cluster.mnspawn("stop", run).check()
        done = running.wait()
    assert done.status == 143, done
    assert done.stdout == "[h1:0] up\n[h1:0] told\n"


def test_a_report_that_0_1_0_wrote_is_shown(controller: Controller) -> None:
    folder = write_record(controller, "0ld1", "h1", None)
    (folder / "report.json").write_text(json.dumps({
        "run": "0ld1", "exit_status": 9, "reason": "rank 0 failed", "seconds": 2.0, "first_failure": OUTCOME,
        "ranks": [OUTCOME], "has_left": False,
        "hosts": [{"host": "h1", "lost": None, "is_confirmed": True, "leftovers": [], "swept": 0, "phases": {}}],
    }))  # fmt: skip
    shown = controller.mnspawn("report", "old").check()
    assert "mnspawn: rank 0 failed: exit status 9 (host h1, local rank 0, pid 7, ran 1.5 s)" in shown.stdout, shown
    assert "no luck" in shown.stdout
    assert json.loads(controller.mnspawn("report", "old", "--json").check().stdout)["report"]["exit_status"] == 9
    [row] = json.loads(controller.mnspawn("ps", "--json").check().stdout)["runs"]
    assert (row["run"], row["name"], row["state"], row["exit_status"]) == ("0ld1", "old", "ended", 9)


def test_a_keeper_of_0_1_0_is_known_as_one(controller: Controller, tmp_path: Path) -> None:
    """Its process had another name; what is no keeper would be sent SIGQUIT and end."""
    folder = write_record(controller, "0ld1", "h1", None)
    package = tmp_path / "older" / "mnspawn" / "engine"
    package.mkdir(parents=True)
    for folder_of in (package.parent, package):
        (folder_of / "__init__.py").touch()
    (package / "keeper.py").write_text(KEEPER)
    words = [sys.executable, "-m", "mnspawn.engine.keeper", str(folder.parent), "0ld1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env={"PYTHONPATH": str(tmp_path / "older")}, stdin=pipe, stdout=pipe) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        keeper.stdout.readline()
        done = controller.mnspawn("detach", "old").check()
        assert done.stderr == "mnspawn: run 0ld1 is detached already\n"
        assert keeper.poll() is None
        keeper.stdin.close()
        assert keeper.wait(PATIENCE) == 0
