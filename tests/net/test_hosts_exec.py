"""`mnspawn exec` and `hosts trust` over real sshd: every login shell, jumps, lost hosts, nothing left running."""

import os
import pty
import sys
from collections.abc import Callable

import pytest

from tests.support import PATIENCE, Cluster, VirtualHost, wait_until
from tests.support.controller import ENTRY

SHELLS = ["/bin/bash", "/bin/dash", "/usr/bin/tcsh", "/usr/bin/fish", "/usr/bin/zsh"]
TRANSPORTS = ["asyncssh", "paramiko", "openssh"]
NASTY = ["a  b", "it's", '"$HOME"', "`id`", "!!", "two\nlines", "\\", "*", "", "é", "-n"]


def running(host: VirtualHost, *argv: str) -> bool:
    return any(process.argv == argv for process in host.processes())


def test_words_arrive_as_they_are_under_every_login_shell(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(len(SHELLS))
    for host, shell in zip(cluster, SHELLS, strict=True):
        host.set_shell(shell)
    done = cluster.mnspawn("exec", cluster.hosts_option, "--", "printf", "<%s>", *NASTY)
    said = "".join(f"<{word}>" for word in NASTY)
    assert done.stdout == f"{'-' * 15}\nh[1-5] (5)\n{'-' * 15}\n{said}\n", done
    assert (done.status, done.stderr) == (0, "")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.essential
def test_every_host_is_asked_itself(cluster: Cluster, transport: str) -> None:
    options = ["--transport", transport, "--ssh-config", str(cluster.ssh_config)]
    done = cluster.mnspawn("exec", cluster.hosts_option, *options, "--", "hostname")
    blocks = "".join(f"{'-' * 15}\n{host.name}\n{'-' * 15}\n{host.name}\n" for host in cluster)
    assert (done.status, done.stdout, done.stderr) == (0, blocks, "")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ctrl_c_leaves_nothing_running(cluster: Cluster, transport: str) -> None:
    options = ["--transport", transport, "--ssh-config", str(cluster.ssh_config)]
    with cluster.start_mnspawn("exec", cluster.hosts_option, *options, "--", "sleep", "600") as command:
        command.wait_for(lambda: all(running(host, "sleep", "600") for host in cluster))
        command.interrupt()
        assert command.wait().status == 130
    cluster.wait_idle()


def test_a_controller_that_is_killed_leaves_nothing_running(cluster: Cluster) -> None:
    with cluster.start_mnspawn("exec", cluster.hosts_option, "--", "sleep", "600") as command:
        command.wait_for(lambda: all(running(host, "sleep", "600") for host in cluster))
        command.kill()
    cluster.wait_idle()


def test_what_ignores_the_request_is_killed(cluster: Cluster) -> None:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    done = cluster.mnspawn("exec", "h1", "--timeout", "0.5", "--", "sh", "-c", script)
    assert done.status == 124, done
    cluster.wait_idle()


def test_a_daemon_that_a_command_leaves_on_purpose_stays(cluster: Cluster) -> None:
    script = "sleep 601 </dev/null >/dev/null 2>&1 &"
    assert cluster.mnspawn("exec", "h1", "--", "sh", "-c", script).status == 0
    left = [process for process in cluster["h1"].processes() if process.argv == ("sleep", "601")]
    assert len(left) == 1
    cluster["h1"].kill(left[0].pid)


def test_hosts_that_can_not_be_used_do_not_keep_the_others_from_it(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(4)
    for name in ("h2", "h3"):
        cluster[name].configure_sshd("AuthorizedKeysFile none")
    done = cluster.mnspawn("exec", cluster.hosts_option, "--", "sh", "-c", "echo here; exit 2")
    assert done.status == 3, done
    assert "h[1,4] (2)" in done.stdout.splitlines()
    assert "2 hosts: no key was accepted for " in done.stderr
    assert ": h[2-3]" in done.stderr


def test_a_host_that_is_lost_is_told_from_one_that_failed(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2)
    script = "touch /tmp/here; until [ -e /tmp/go ]; do sleep 0.1; done"
    with cluster.start_mnspawn("exec", "h1,h2", "--", "sh", "-c", script) as command:
        command.wait_for(lambda: all(host.path("/tmp/here").exists() for host in cluster))
        cluster["h2"].run("pkill", "-KILL", "-f", "sshd: root").check()
        cluster["h1"].write("/tmp/go", "")
        done = command.wait()
    assert done.status == 5, done
    assert done.stderr == "mnspawn: h2: the connection was lost before the command ended\n"


# -- trust


def answered(cluster: Cluster, answer: str, *words: str) -> tuple[int, str]:
    """Run a command at a terminal of its own and type an answer to its question."""
    master, slave = pty.openpty()
    said = b""
    with cluster.start(sys.executable, "-c", ENTRY, *words, stdin=slave, stdout=slave, stderr=slave) as command:
        os.close(slave)
        while b"[y/N]" not in said:
            said += os.read(master, 4096)
        os.write(master, answer.encode())
        status = command.popen.wait(PATIENCE)
    os.close(master)
    return status, said.decode()


def test_trust_asks_at_a_terminal(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2)
    before = cluster.known_hosts.read_text()
    cluster.known_hosts.unlink()
    assert answered(cluster, "\n", "hosts", "trust", "h1,h2")[0] == 2
    assert not cluster.known_hosts.exists()
    status, said = answered(cluster, "y\n", "hosts", "trust", "h1,h2")
    assert status == 0
    assert said.count("new ssh-ed25519 SHA256:") == 2
    wait_until(lambda: cluster.known_hosts.read_text().count("ssh-ed25519") == 2)
    assert {line.split()[-1] for line in cluster.known_hosts.read_text().splitlines()} == {
        line.split()[-1] for line in before.splitlines()
    }
    assert cluster.mnspawn("exec", "h1,h2", "--", "true").status == 0


def test_trust_hashes_where_the_file_is_hashed(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2)
    cluster.known_hosts.write_text(f"h1,{cluster['h1'].address} {cluster['h1'].host_key}\n")
    cluster.run("ssh-keygen", "-q", "-H", "-f", str(cluster.known_hosts)).check()
    assert cluster.mnspawn("hosts", "trust", "h1,h2", "--yes").status == 0
    assert all(line.startswith("|1|") for line in cluster.known_hosts.read_text().splitlines())
    assert cluster.mnspawn("exec", "h1,h2", "--", "true").status == 0
