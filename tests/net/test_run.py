"""A whole run across real hosts: ranks, environment, arguments, output, from a controller that shares no files."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cluster
from tests.support.controller import REPOSITORY

SHOW = """
import base64, json, os, sys
environ = {base64.b64encode(k).decode(): base64.b64encode(v).decode() for k, v in os.environb.items()}
arguments = [base64.b64encode(os.fsencode(a)).decode() for a in sys.argv[1:]]
print(json.dumps({"arguments": arguments, "environ": environ}))
"""
PREFIXED = re.compile(r"\[([^:\]]+):(\d+)\] (.*)")


def shown_by_rank(stdout: str) -> dict[int, dict[str, Any]]:
    """What each rank's SHOW printed, bytes in place of base64."""
    ranks = {}
    for line in stdout.splitlines():
        match = PREFIXED.fullmatch(line)
        assert match is not None, line
        shown = json.loads(match.group(3))
        ranks[int(match.group(2))] = {
            "host": match.group(1),
            "arguments": [base64.b64decode(argument) for argument in shown["arguments"]],
            "environ": {
                base64.b64decode(name).decode(): base64.b64decode(value) for name, value in shown["environ"].items()
            },
        }
    return ranks


@pytest.fixture
def show(tmp_path: Path) -> str:
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    return str(script)


@pytest.mark.essential
def test_ranks_are_contiguous_per_host_and_every_variable_is_right(cluster: Cluster, show: str) -> None:
    """F31, F35: addresses that others reach, whatever a host calls itself."""
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "2", show).check()
    ranks = shown_by_rank(done.stdout)
    assert {rank: shown["host"] for rank, shown in ranks.items()} == {
        0: "h1",
        1: "h1",
        2: "h2",
        3: "h2",
        4: "h3",
        5: "h3",
    }
    env = {rank: {k: v.decode() for k, v in shown["environ"].items()} for rank, shown in ranks.items()}
    addresses = [host.address for host in cluster for _ in range(2)]
    endpoints = env[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert [endpoint.rpartition(":")[0] for endpoint in endpoints] == addresses
    assert len(set(endpoints)) == 6
    for rank in range(6):
        own = env[rank]
        expected = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % 2),
            "WORLD_SIZE": "6",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(rank // 2),
            "NODE_RANK": str(rank // 2),
            "MASTER_ADDR": cluster["h1"].address,
            "MASTER_PORT": env[0]["MASTER_PORT"],
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": "6",
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_RANK_IN_NODE": str(rank % 2),
            "PADDLE_DISTRI_BACKEND": "gloo",
            "GLOO_SOCKET_IFNAME": "eth0",
            "MNSPAWN_HOST": f"h{rank // 2 + 1}",
        }
        assert {name: own.get(name) for name in expected} == expected
        assert own["HOME"] == "/root"
        assert own["SSH_CONNECTION"].split()[2] == addresses[rank]
    assert env[0]["MASTER_PORT"] not in {endpoint.rpartition(":")[2] for endpoint in endpoints}


def test_hosts_with_different_slots_share_the_ranks_in_order(cluster: Cluster, show: str) -> None:
    """F35: global ranks contiguous, local ones from 0."""
    done = cluster.mnspawn("--hosts", "h2:1,h1:3", show).check()
    ranks = shown_by_rank(done.stdout)
    assert {rank: shown["host"] for rank, shown in ranks.items()} == {0: "h2", 1: "h1", 2: "h1", 3: "h1"}
    assert [ranks[rank]["environ"]["LOCAL_WORLD_SIZE"] for rank in range(4)] == [b"1", b"3", b"3", b"3"]


NASTY = [
    "",
    " ",
    "a b",
    "it's",
    '"q"',
    "$HOME",
    "`id`",
    "a;b",
    "*",
    "\\",
    "\\n",
    "--",
    "--hosts",
    "-x",
    "ü€𝄞",
    "two\nlines",
    "=",
    "%s",
    "!x",
]


def test_arguments_and_values_arrive_byte_for_byte(cluster: Cluster, show: str) -> None:
    """F38, F39: whatever a shell would make of them."""
    values = {f"NASTY_{number}": value for number, value in enumerate(NASTY)}
    values["NASTY_LONG"] = "x'\"$\n" * 20_000
    options = [word for name in values for word in ("-x", name)]
    command = ["--hosts", "h1,h3", "--nproc-per-node", "1", *options, show, *NASTY, "y" * 100_000]
    done = cluster.mnspawn(*command, env=values).check()
    ranks = shown_by_rank(done.stdout)
    assert sorted(ranks) == [0, 1]
    for shown in ranks.values():
        assert shown["arguments"] == [argument.encode() for argument in [*NASTY, "y" * 100_000]]
        assert {name: shown["environ"][name] for name in values} == {name: v.encode() for name, v in values.items()}


def test_values_are_in_no_command_line(cluster: Cluster, tmp_path: Path) -> None:
    """F38: nor in a file, nor in the controller's own arguments."""
    script = tmp_path / "wait.py"
    script.write_text("import sys\nprint('ready', flush=True)\nsys.stdin.read()\nimport time\ntime.sleep(1000)\n")
    secret = "hunter2-" * 4
    command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "-x", "TOKEN", str(script)]
    with cluster.start_mnspawn(*command, env={"TOKEN": secret}) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        for host in (cluster["h1"], cluster["h2"]):
            seen = host.run("ps", "-eww", "-o", "args").check().stdout
            assert "wait.py" in seen
            assert secret not in seen
            assert any(process.environ.get("TOKEN") == secret for process in host.processes())
            files = host.run("grep", "-rl", secret, "/root", "/tmp", "/var", "/run")
            assert files.stdout == "", "a value is in a file"
        assert secret.encode() not in Path(f"/proc/{running.pid}/cmdline").read_bytes()
        running.interrupt()
        assert running.wait().status == 130


def test_the_ring_of_the_examples_closes(cluster: Cluster) -> None:
    script = str(REPOSITORY / "examples" / "ring.py")
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "2", script).check()
    assert len(done.stdout.splitlines()) == 6
    assert done.stdout.count("is right") == 6


def test_a_big_script_travels_with_the_plan(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "big.py"
    script.write_text("print('end')\n" + "# a long story\n" * 200_000)
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", str(script)).check()
    assert sorted(done.stdout.splitlines()) == ["[h1:0] end", "[h2:1] end"]


@pytest.mark.essential
def test_a_dry_run_starts_nothing_and_shows_what_a_run_gets(cluster: Cluster, show: str) -> None:
    command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "2"]
    planned = json.loads(cluster.mnspawn(*command, "--dry-run", "--json", show, "--lr", "1").check().stdout)
    assert planned["world_size"] == 6
    assert planned["rendezvous"].startswith(cluster["h1"].address + ":")
    assert [(pod["node_rank"], pod["host"], pod["address"]) for pod in planned["pods"]] == [
        (number, host.name, host.address) for number, host in enumerate(cluster)
    ]
    workers = [worker for pod in planned["pods"] for worker in pod["trainers"]]
    assert [(worker["rank"], worker["local_rank"]) for worker in workers] == [(r, r % 2) for r in range(6)]
    for worker in workers:
        assert worker["argv"][-2:] == ["--lr", "1"]
        assert worker["env"]["RANK"] == str(worker["rank"])
        assert worker["env"]["PADDLE_CURRENT_ENDPOINT"] == worker["endpoint"]
    cluster.wait_idle()


def test_two_runs_at_once_do_not_touch_each_other(cluster: Cluster, tmp_path: Path) -> None:
    """F08, F34: ports of their own; one is interrupted, the other goes on."""
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, time\nprint('at', os.environ['PADDLE_CURRENT_ENDPOINT'], flush=True)\ntime.sleep(1000)\n"
    )
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2", str(script)]
    with cluster.start_mnspawn(*command) as first, cluster.start_mnspawn(*command) as second:
        first.wait_for(lambda: first.stdout.count("at ") == 4)
        second.wait_for(lambda: second.stdout.count("at ") == 4)
        endpoints = [line.split()[-1] for running in (first, second) for line in running.stdout.splitlines()]
        assert len(set(endpoints)) == 8
        first.interrupt()
        assert first.wait().status == 130
        workers = [p for host in cluster for p in host.processes() if str(p.argv[-1]).endswith("wait.py")]
        assert len(workers) == 4
        assert second.popen.poll() is None
        second.interrupt()
        assert second.wait().status == 130


def test_hosts_that_are_far_away_work_too(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2, delay=0.05)
    script = str(REPOSITORY / "examples" / "ring.py")
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", script).check()
    assert done.stdout.count("is right") == 2
