"""Endpoints that others reach: several interfaces, equal addresses, firewalls, taken ports, many names of one host."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import PATIENCE, Cluster, VirtualHost

ENDPOINTS = "import os\nprint(os.environ['PADDLE_TRAINER_ENDPOINTS'], os.environ['GLOO_SOCKET_IFNAME'], flush=True)\n"
LISTEN = """
import socket, sys, time
listener = socket.socket()
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen()
print("up", flush=True)
time.sleep(300)
"""


@pytest.fixture
def endpoints(tmp_path: Path) -> str:
    script = tmp_path / "endpoints.py"
    script.write_text(ENDPOINTS)
    return str(script)


@contextlib.contextmanager
def interface(host: VirtualHost, name: str, address: str) -> Iterator[None]:
    """One more interface, which leads nowhere."""
    lines = f"ip link add {name} type bridge && ip addr add {address} dev {name} && ip link set {name} up"
    host.run("sh", "-c", lines).check()
    try:
        yield
    finally:
        host.run("ip", "link", "del", name).check()


@contextlib.contextmanager
def wall(host: VirtualHost, other: VirtualHost) -> Iterator[None]:
    """What the host says to the other gets lost; both reach everybody else."""
    routes = [["route", "{}", "blackhole", other.address], ["-6", "route", "{}", "blackhole", other.address6]]
    for route in routes:
        host.run("ip", *(word.format("add") for word in route)).check()
    try:
        yield
    finally:
        for route in routes:
            host.run("ip", *(word.format("del") for word in route)).check()


def addresses(stdout: str) -> list[str]:
    """Of the endpoints that all ranks agree on, without ports; then the interface."""
    (said,) = {line.partition("] ")[2] for line in stdout.splitlines()}
    listed, name = said.split()
    return [*(endpoint.rpartition(":")[0] for endpoint in listed.split(",")), name]


# -- addresses


def test_the_address_that_others_reach_is_taken(cluster: Cluster, endpoints: str) -> None:
    """F31, F32: own names lead to 127.0.1.1, docker0 is the same everywhere, a first interface leads nowhere."""
    with contextlib.ExitStack() as stack:
        for number, host in enumerate(cluster):
            assert "127.0.1.1" in host.run("getent", "hosts", host.name).stdout
            stack.enter_context(interface(host, "aaa0", f"192.168.{number}.5/24"))
            stack.enter_context(interface(host, "docker0", "172.17.0.1/16"))
        done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", endpoints).check()
        assert addresses(done.stdout) == [*(host.address for host in cluster), "eth0"]
        command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--network"]
        done = cluster.mnspawn(*command, "docker0", endpoints)
        assert done.status == 4, done
        assert done.stderr.startswith("mnspawn: 3 hosts: no address that the other hosts reach: "), done
        assert "ones that other hosts have too: h[1-3]" in done.stderr, done
        done = cluster.mnspawn(*command, "aaa0", endpoints)
        assert done.status == 4, done
        assert done.stderr.startswith("mnspawn: 3 hosts: no address that the other hosts reach: "), done
        assert "unreachable" in done.stderr, done


@pytest.mark.parametrize("network", ["10.77.0.0/24", "eth0", "fd77::/64"])
@pytest.mark.essential
def test_a_network_can_be_chosen(cluster: Cluster, endpoints: str, network: str) -> None:
    """F32: by its range or by the interface's name, in both families."""
    done = cluster.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--network", network, endpoints).check()
    expected = [f"[{h.address6}]" if network.startswith("fd") else h.address for h in cluster.hosts[:2]]
    assert addresses(done.stdout) == [*expected, "eth0"]


@pytest.mark.parametrize("network", ["10.99.0.0/16", "ib0"])
def test_a_network_that_hosts_are_not_in_is_told_for_each(cluster: Cluster, endpoints: str, network: str) -> None:
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--network", network, endpoints)
    assert (done.status, done.stdout) == (4, ""), done
    first, *each, _hint = done.stderr.splitlines()
    expected = f"expected an address in network {network}, found lo 127.0.0.1, eth0"
    assert first == f"mnspawn: 3 hosts: {expected}: h[1-3]"
    assert each == [f"    {h.name}: {expected} {h.address}, lo ::1, eth0 {h.address6}" for h in cluster.hosts]


def test_hosts_that_do_not_reach_each_other_are_refused_before_the_start(cluster: Cluster, endpoints: str) -> None:
    """F32: the controller reaches all of them, and that is not enough."""
    command = ["--hosts", cluster.hosts_option, "--nproc-per-node", "1"]
    with wall(cluster["h3"], cluster["h2"]):
        for options in ([], ["--dry-run"]):
            done = cluster.mnspawn(*command, *options, endpoints)
            assert (done.status, done.stdout) == (4, ""), done
            assert f"mnspawn: h3: no address that the other hosts reach: {cluster['h3'].address} (h2: " in done.stderr
    cluster.mnspawn(*command, endpoints).check()


def test_an_address_that_the_user_gave_is_the_one_in_the_environment(cluster: Cluster, endpoints: str) -> None:
    """F33: literally, without a look at names."""
    first, second = cluster["h1"].address, cluster["h2"].address
    done = cluster.mnspawn("--hosts", f"{second},{first}", "--nproc-per-node", "1", endpoints).check()
    assert addresses(done.stdout) == [second, first, "eth0"]
    assert sorted(line.partition("]")[0] for line in done.stdout.splitlines()) == [f"[{first}:1", f"[{second}:0"]


def test_hosts_can_be_written_as_people_write_them(cluster: Cluster, endpoints: str) -> None:
    """F26: user, port and URL count for their host alone."""
    done = cluster.mnspawn("--hosts", "ssh://root@h1:22,root@h2:22,h3", "--nproc-per-node", "1", endpoints).check()
    assert addresses(done.stdout) == [*(host.address for host in cluster), "eth0"]
    done = cluster.mnspawn("--hosts", "ssh://root@h1:2222,nobody9@h2,h3", "--nproc-per-node", "1", endpoints)
    assert done.status == 3, done
    assert re.search("h1: .*refused", done.stderr), done
    assert "h2: no key was accepted for nobody9@" in done.stderr, done
    assert "h3" not in done.stderr, done


# -- ports


def test_ports_that_are_taken_are_not_given_out(
    make_cluster: Callable[..., Cluster], endpoints: str, tmp_path: Path
) -> None:
    """F34: the host that will bind a port says whether it is free."""
    cluster = make_cluster(2)  # no port of theirs was used before, so the defaults are free
    script = tmp_path / "listen.py"
    script.write_text(LISTEN)
    command = ["--hosts", "h1,h2", "--nproc-per-node", "2"]
    with cluster.start_mnspawn(
        "--hosts", "h2", "--start-port", "9000", "--nproc-per-node", "1", str(script), "6071"
    ) as listening:
        listening.wait_for(lambda: "up" in listening.stdout)
        plan = json.loads(cluster.mnspawn(*command, "--dry-run", "--json", endpoints).check().stdout)
        ports = [
            [worker["endpoint"].rpartition(":")[2] for worker in pod["trainers"]] for pod in plan["pods"]
        ]  # fmt: skip
        assert ports[0] == ["6070", "6071"]
        assert len({*ports[1], "6071"}) == 3
        for options, said in (
            (["--start-port", "6070"], "mnspawn: h2: port 6071 is in use\n"),
            (["--master-port", "22"], "mnspawn: h1: port 22 is in use\n"),
            (["--start-port", "7000", "--master-port", "7001"], "mnspawn: h1: port 7001 is in use\n"),
            (["--start-port", "65535"], "mnspawn: 2 hosts: port 65536 does not exist: h[1-2]\n"),
        ):
            done = cluster.mnspawn(*command, *options, endpoints)
            assert (done.status, done.stdout, done.stderr) == (4, "", said), done
        done = cluster.mnspawn(*command, "--start-port", "7000", "--master-port", "6071", endpoints).check()
        assert "10.77.0.11:7000,10.77.0.11:7001,10.77.0.12:7000,10.77.0.12:7001" in done.stdout
        listening.interrupt()
        assert listening.wait().status == 130


def test_held_ports_can_be_bound_by_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """F34: on all addresses, of both families, at once."""
    script = tmp_path / "bind.py"
    script.write_text(
        "import os, socket\n"
        "port = int(os.environ['PADDLE_CURRENT_ENDPOINT'].rpartition(':')[2])\n"
        "ports = [port] + ([int(os.environ['MASTER_PORT'])] if os.environ['RANK'] == '0' else [])\n"
        "for port in ports:\n"
        "    for family, address in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::1')):\n"
        "        listener = socket.socket(family)\n"
        "        listener.bind((address, port))\n"
        "        listener.listen()\n"
        "print('bound')\n"
    )
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "3", str(script)).check()
    assert done.stdout.count("bound") == 9


# -- many hosts that are one


def test_forty_aliases_of_one_server(cluster: Cluster, endpoints: str) -> None:
    """F27, F34: its MaxStartups is minded, every pod has ports and folders of its own, and one Ctrl-C ends them all."""
    host = cluster["h3"]
    config = cluster.home / "aliases"
    aliases = "".join(f"Host n{n}\n  HostName {host.address}\n  HostKeyAlias h3\n" for n in range(40))
    config.write_text(aliases + cluster.ssh_config.read_text())
    host.configure_sshd("MaxStartups 10:30:100")
    command = ["--ssh-config", str(config), "--hosts", "n[0-39]", "--nproc-per-node", "1"]
    command += ["--connect-timeout", str(PATIENCE)]
    script = f"{endpoints}.up"
    Path(script).write_text(ENDPOINTS + "import time\ntime.sleep(300)\n")
    try:
        with cluster.start_mnspawn(*command, script) as running:
            running.wait_for(lambda: running.stdout.count("\n") == 40, what="40 ranks are up")
            listed = running.stdout.splitlines()[0].split()[1].split(",")
            running.interrupt()
            done = running.wait()
    finally:
        host.configure_sshd("")
    assert done.status == 130, done
    assert len(set(listed)) == 40
    assert "stopped because of it: ranks 0-39" in done.stderr, done
    cluster.wait_idle()
