"""`mnspawn hosts check`: each fault of a cluster is found, where it is, and nothing else is."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import Cluster, VirtualHost

# a Python whose clock is a minute and a half ahead: hosts of one machine share its clock
FAST_CLOCK = """#!/bin/sh
while [ "$1" != -c ]; do options="$options $1"; shift; done
code="import time; time.time = lambda now=time.time: now() + 90
$2"
shift 2
exec /usr/bin/python3.real $options -c "$code" "$@"
"""


def check(cluster: Cluster, *options: str, hosts: str | None = None) -> tuple[int, dict[str, Any]]:
    done = cluster.mnspawn("hosts", "check", hosts or cluster.hosts_option, "--json", *options)
    assert done.stderr == "", done
    return done.status, json.loads(done.stdout)


def found(document: dict[str, Any]) -> dict[str, list[str]]:
    """Host -> the checks that found something; in brackets what is only a note."""
    return {
        one["host"]: [f"({f['check']})" if f["is_note"] else f["check"] for f in one["findings"]]
        for one in document["hosts"]
        if one["findings"]
    }


def name_really(cluster: Cluster, *names: str) -> None:
    """Let hosts know their own address by their own name: the hosts of tests have 127.0.1.1, as Debian has it."""
    for name in names:
        hosts = cluster[name].path("/etc/hosts")
        hosts.write_text(hosts.read_text().replace("127.0.1.1", cluster[name].address))


# -- faults, one a host


def is_off(cluster: Cluster, host: VirtualHost) -> None:
    host.off()


def refuses(cluster: Cluster, host: VirtualHost) -> None:
    cluster.ssh_config.write_text(f"Host {host.name}\n  Port 2222\n" + cluster.ssh_config.read_text())


def lets_nobody_in(cluster: Cluster, host: VirtualHost) -> None:
    host.configure_sshd("AuthorizedKeysFile none")


def has_an_unknown_key(cluster: Cluster, host: VirtualHost) -> None:
    lines = cluster.known_hosts.read_text().splitlines(keepends=True)
    cluster.known_hosts.write_text("".join(line for line in lines if not line.startswith(f"{host.name},")))


def has_another_key(cluster: Cluster, host: VirtualHost) -> None:
    other = next(one for one in cluster if one is not host)
    text = cluster.known_hosts.read_text()
    cluster.known_hosts.write_text(text.replace(host.host_key, other.host_key))


def has_no_python(cluster: Cluster, host: VirtualHost) -> None:
    host.remove("/usr/bin/python*", "/usr/local/bin/python*", "/usr/libexec/platform-python")


def has_a_fast_clock(cluster: Cluster, host: VirtualHost) -> None:
    host.run("cp", "--dereference", "/usr/bin/python3", "/usr/bin/python3.real").check()
    host.remove("/usr/bin/python3", "/usr/local/bin/python3")
    host.write("/usr/bin/python3", FAST_CLOCK, 0o755)


def has_a_read_only_home(cluster: Cluster, host: VirtualHost) -> None:
    host.make_read_only("/root")


def has_little_room(cluster: Cluster, host: VirtualHost) -> None:
    host.mount("/root", options="size=100m,mode=700")


def opens_few_files(cluster: Cluster, host: VirtualHost) -> None:
    host.write("/root/.bashrc", "ulimit -n 256\n")


def locks_little_memory(cluster: Cluster, host: VirtualHost) -> None:
    host.mount("/sys/class")
    host.run("mkdir", "-p", "/sys/class/infiniband/mlx5_0").check()
    host.write("/root/.bashrc", "ulimit -l 64\n")


def kills_processes(cluster: Cluster, host: VirtualHost) -> None:
    host.write("/etc/systemd/logind.conf.d/us.conf", "[Login]\n#KillUserProcesses=no\nKillUserProcesses=yes\n")
    host.write("/etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\nKillExcludeUsers=\n")


def calls_itself_localhost(cluster: Cluster, host: VirtualHost) -> None:
    hosts = host.path("/etc/hosts")
    hosts.write_text(hosts.read_text().replace(f"{host.address} {host.name}", f"127.0.1.1 {host.name}"))


def does_not_know_itself(cluster: Cluster, host: VirtualHost) -> None:
    hosts = host.path("/etc/hosts")
    hosts.write_text(re.sub(rf"^.*\b{host.name}\b.*$", "", hosts.read_text(), flags=re.MULTILINE))


def sees_no_other_host(cluster: Cluster, host: VirtualHost) -> None:
    for other in cluster:
        if other is not host:
            host.run("ip", "route", "add", "blackhole", f"{other.address}/32").check()
            host.run("ip", "-6", "route", "add", "blackhole", f"{other.address6}/128").check()


FAULTS: dict[str, tuple[Callable[[Cluster, VirtualHost], None] | None, str]] = {
    "fine": (None, ""),
    "off": (is_off, "reach"),
    "refusing": (refuses, "reach"),
    "closed": (lets_nobody_in, "login"),
    "unknown": (has_an_unknown_key, "login"),
    "changed": (has_another_key, "login"),
    "pythonless": (has_no_python, "python"),
    "fast": (has_a_fast_clock, "clock"),
    "sealed": (has_a_read_only_home, "(folder)"),
    "full": (has_little_room, "disk"),
    "narrow": (opens_few_files, "limits"),
    "rdma": (locks_little_memory, "limits"),
    "killing": (kills_processes, "logind"),
    "loopback": (calls_itself_localhost, "(name)"),
    "nameless": (does_not_know_itself, "name"),
    "apart": (sees_no_other_host, "network"),
    "good": (None, ""),
}


def test_each_fault_is_found_and_no_other(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(names=list(FAULTS))
    name_really(cluster, *FAULTS)
    status, document = check(cluster)
    assert (status, found(document)) == (0, {})
    for name, (make, _) in FAULTS.items():
        if make is not None:
            make(cluster, cluster[name])
    status, document = check(cluster, "--connect-timeout", "15")
    assert found(document) == {name: [expected] for name, (_, expected) in FAULTS.items() if expected}
    assert (status, document["ok"]) == (1, False)
    assert all(finding["hint"] and finding["message"] for finding in document["findings"])
    ignored = cluster.mnspawn("hosts", "check", "fine,nameless", "--ignore", "name,disk")
    assert ignored.status == 0, ignored


@pytest.mark.essential
def test_findings_are_told_with_what_to_do_and_equal_ones_once(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(4)
    name_really(cluster, "h1", "h2")
    for name in ("h2", "h3"):
        opens_few_files(cluster, cluster[name])
    done = cluster.mnspawn("hosts", "check", cluster.hosts_option)
    assert (done.status, done.stderr) == (1, "")
    told = [line.partition(" (")[0] for line in done.stdout.splitlines() if line.startswith("h[")]
    assert told == [
        "h[2-3]: limits: a process may open fewer than 1024 files",
        "h[3-4]: note: name: its own name resolves to loopback:"
        " programs that announce their host by it are not found by others",
    ]
    assert done.stdout.count("\n  hint: ") == 2
    assert done.stdout.endswith("\n4 hosts: 2 with something wrong\n")


def test_between_two_hosts_that_do_not_reach_each_other_one_is_named(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(4)
    name_really(cluster, "h1", "h2", "h3", "h4")
    cluster["h3"].run("ip", "route", "add", "prohibit", f"{cluster['h1'].address}/32").check()
    cluster["h3"].run("ip", "-6", "route", "add", "prohibit", f"{cluster['h1'].address6}/128").check()
    status, document = check(cluster)
    assert (status, found(document)) == (1, {"h3": ["network"]})
    assert "from h1" in document["hosts"][2]["findings"][0]["detail"]


def test_what_the_inventory_says_is_held_against_the_hosts(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3)
    name_really(cluster, "h1", "h2", "h3")
    inventory = cluster.home / "inventory.toml"
    inventory.write_text(
        '[hosts.h1]\nnetwork = "10.1.0.0/16"\n[hosts.h2]\ndata_address = "10.77.0.99"\n[hosts.h3]\ndevices = [0]\n'
    )
    done = cluster.mnspawn("hosts", "-i", str(inventory), "check", "--json")
    wrong = {"h1": ["network"], "h2": ["network"], "h3": ["devices"]}
    assert (done.status, found(json.loads(done.stdout))) == (1, wrong)


def test_ctrl_c_leaves_nothing_behind(cluster: Cluster) -> None:
    with cluster.start_mnspawn("hosts", "check", cluster.hosts_option) as command:
        command.wait_for(lambda: any(host.processes() for host in cluster))
        command.interrupt()
        assert command.wait().status == 130
    cluster.wait_idle()


@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}], ids=["LC_ALL", "PYTHON"])
def test_who_reads_ascii_gets_ascii(cluster: Cluster, variables: dict[str, str]) -> None:
    done = cluster.mnspawn("hosts", "check", "h1", env=variables)
    assert done.stdout.isascii(), done
    assert re.search(r" [+-]\d\.\d{3}\+-\d\.\d{3} s ", done.stdout), done
    assert "±" in cluster.mnspawn("hosts", "check", "h1").stdout
