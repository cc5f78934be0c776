"""The command line against a host whose agent says what makes no sense, while the other is honest."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster

# Stands for the host's Python: runs the agent, and puts frames of its own between those that the agent says.
LIAR = r"""#!/usr/bin/python3
import os, struct, subprocess, sys, threading
PYTHON, HEAD = "/usr/bin/python3", struct.Struct(">IBI")
if "serve" not in sys.argv:
    os.execv(PYTHON, [PYTHON] + sys.argv[1:])
agent = subprocess.Popen([PYTHON] + sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

def pass_down():
    chunk = os.read(0, 65536)
    while chunk:
        agent.stdin.write(chunk)
        chunk = os.read(0, 65536)
    agent.stdin.close()

def say(content):
    view = memoryview(content)
    while view:
        view = view[os.write(1, view):]

threading.Thread(target=pass_down, daemon=True).start()
said = b""
while said.count(b"\n") < 2:  # the stub's word
    said += agent.stdout.read(1)
say(said)
while True:
    head = agent.stdout.read(HEAD.size)
    if len(head) < HEAD.size:
        break
    body = b""
    while len(body) < HEAD.unpack(head)[0]:
        body += agent.stdout.read(HEAD.unpack(head)[0] - len(body))
    body = body.replace(b'"cpus":', b'"cpus":"many","spuc":') if WHEN == "hello" else body
    say(HEAD.pack(len(body), *HEAD.unpack(head)[1:]) + body)
    if WHEN == "started" and b'"type":"started"' in body:
        say(HEAD.pack(21, 3, 0) + struct.pack(">IBQd", 1, 9, 0, 1.0))  # output of stream 9
"""
RUN = ("--no-python", "--nproc-per-node", "1", "--orphan-grace", "1000", "sh", "-c", "echo up; exec sleep 1000")


@pytest.fixture
def lying_cluster(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Callable[[str], tuple[Cluster, Path]]:
    """Two hosts and an inventory in which the second one's Python is the liar."""

    def make(when: str) -> tuple[Cluster, Path]:
        liar = tmp_path / "liar"
        liar.write_text(LIAR.replace("import os,", f'WHEN = "{when}"\nimport os,', 1))
        liar.chmod(0o755)
        cluster = make_cluster(2, see=[liar])
        inventory = cluster.home / "inventory.toml"
        inventory.write_text(f'[hosts.h1]\n[hosts.h2]\npython = "{liar}"\n')
        return cluster, inventory

    return make


def test_a_host_that_lies_is_named_with_what_it_said_and_the_other_is_stopped(
    lying_cluster: Callable[[str], tuple[Cluster, Path]],
) -> None:
    cluster, inventory = lying_cluster("started")
    done = cluster.mnspawn("--inventory", str(inventory), "--hosts", "h1,h2", *RUN)
    assert done.status == 5, done
    told = done.stderr
    assert "mnspawn: stopping all ranks: host h2 was lost" in told, done
    assert "host lost: h2 (rank 1): said something that makes no sense: output: stream=9" in told, done
    assert "stopped because of it: rank 0" in told, done
    assert "not confirmed stopped" not in told, done  # the liar was swept, too
    assert "Traceback" not in told, done
    for host in cluster:
        assert [one.argv for one in host.processes() if "sleep" in one.argv[0]] == []


def test_a_host_whose_facts_make_no_sense_can_not_be_used(
    lying_cluster: Callable[[str], tuple[Cluster, Path]],
) -> None:
    cluster, inventory = lying_cluster("hello")
    done = cluster.mnspawn("--inventory", str(inventory), "--hosts", "h1,h2", *RUN)
    assert done.status == 3, done
    words = "h2: said something that makes no sense: hello: cpus: expected a whole number from 1, found 'many'"
    assert f"mnspawn: {words}" in done.stderr, done
