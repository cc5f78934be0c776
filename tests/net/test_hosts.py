"""Hosts are as they are: odd shells, full or read-only folders; and what can't work is told in a line each."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import PATIENCE, Cluster, VirtualHost

HELLO = "import os\nprint('rank', os.environ['RANK'], 'in', os.environ['WORLD_SIZE'])\n"


@pytest.fixture
def pair(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(2)


@pytest.fixture
def odd(pair: Cluster) -> VirtualHost:
    """The second of the two hosts."""
    return pair["h2"]


@pytest.fixture
def hello(tmp_path: Path) -> str:
    script = tmp_path / "hello.py"
    script.write_text(HELLO)
    return str(script)


def run_works(cluster: Cluster, hello: str, *options: str) -> None:
    for _ in ("cold", "warm"):
        done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", *options, hello)
        assert done.status == 0, done
        assert sorted(done.stdout.splitlines()) == ["[h1:0] rank 0 in 2", "[h2:1] rank 1 in 2"], done
        assert done.stderr == "", done
    cluster.wait_idle()


# -- what works all the same


@pytest.mark.parametrize(
    "shell", ["/bin/bash", "/bin/sh", "/bin/dash", "/usr/bin/tcsh", "/usr/bin/fish", "/usr/bin/zsh"]
)
def test_login_shells(pair: Cluster, odd: VirtualHost, hello: str, shell: str) -> None:
    odd.set_shell(shell)
    run_works(pair, hello)


NOISE = {
    "blank lines and no final newline": "printf '\\n\\nwelcome\\n\\nto this host'",
    "on stderr": "echo careful >&2; printf 'no newline' >&2",
    "binary": "printf '\\000\\377MNSPAWN have\\n'",
    "a lot": "seq 20000",
    "reads its input": "read -t 0.2 line || true; echo got $line",
    "changes things": "export PYTHONPATH=/nowhere PYTHONHOME= PYTHONSTARTUP=/x; cd /tmp; umask 077; alias exec=false",
}


@pytest.mark.parametrize("noise", NOISE)
def test_login_shells_that_print_first(pair: Cluster, odd: VirtualHost, hello: str, noise: str) -> None:
    """F21: framing finds the agent behind it."""
    odd.write("/root/.bashrc", NOISE[noise] + "\n")
    run_works(pair, hello)


def test_a_read_only_home(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.make_read_only("/root")
    run_works(pair, hello)


def test_a_full_home(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.mount("/root", options="size=4k,mode=700")
    odd.run("sh", "-c", "head -c 10000 /dev/zero >/root/fill")
    run_works(pair, hello)


def test_a_home_that_is_not_there(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    passwd = odd.path("/etc/passwd")
    passwd.write_text(re.sub(r"^(root:.*):/root:", r"\1:/no/such/home:", passwd.read_text(), flags=re.MULTILINE))
    run_works(pair, hello)


def test_folders_that_run_no_programs(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    for folder in ("/tmp", "/root", "/var/tmp"):
        odd.mount(folder, options="mode=1777,noexec")
    run_works(pair, hello)


def test_an_agent_of_another_version_in_the_cache(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    """F30: what is kept is verified before it runs."""
    run_works(pair, hello)
    cache = odd.path("/root/.cache/mnspawn")
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"old and broken")
    run_works(pair, hello)


def test_two_controllers_on_a_cold_cache(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    """F30: an archive is there whole or not at all."""
    command = ["--hosts", "h2", "--nproc-per-node", "1", hello]
    with pair.start_mnspawn(*command) as first, pair.start_mnspawn(*command) as second:
        for running in (first, second):
            assert running.wait().check().stdout == "[h2:0] rank 0 in 1\n"


def test_an_ordinary_user(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.add_user("ann")
    done = pair.mnspawn("--hosts", "ann@h2", "--nproc-per-node", "1", "--no-python", "id", "-un").check()
    assert done.stdout.endswith(":0] ann\n"), done


def test_a_busy_server_lets_us_in_bit_by_bit(pair: Cluster, odd: VirtualHost) -> None:
    """F27: tried again, with jitter, until all are in."""
    odd.configure_sshd("MaxStartups 2:50:4")
    aliases = "".join(f"Host n{number}\n  HostName {odd.address}\n  HostKeyAlias h2\n" for number in range(12))
    config = pair.home / "many"
    config.write_text(aliases + pair.ssh_config.read_text())
    hosts = ",".join(f"n{number}" for number in range(12))
    command = ["--ssh-config", str(config), "--hosts", hosts, "--nproc-per-node", "1", "--no-python", "echo", "in"]
    done = pair.mnspawn("--connect-timeout", str(PATIENCE), *command)
    assert done.status == 0, done
    assert sorted(done.stdout.splitlines()) == sorted(f"[n{number}:{number}] in" for number in range(12))


# -- what can't work


def told(
    cluster: Cluster,
    hello: str,
    *words: str,
    hosts: str = "h1,h2",
    options: tuple[str, ...] = (),
    connect_timeout: str = str(PATIENCE),
) -> None:
    """The run ends with status 3 in time; one line says where and why; nothing was started anywhere."""
    command = ["--connect-timeout", connect_timeout, *options, "--hosts", hosts, "--nproc-per-node", "1", hello]
    done = cluster.mnspawn(*command, timeout=2 * PATIENCE)
    assert done.status == 3, done
    assert done.stdout == "", done
    assert "Traceback" not in done.stderr, done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  hint:")]
    assert len(lines) == 1, done
    for word in words:
        assert word.lower() in done.stderr.lower(), done
    cluster.wait_idle()


def test_a_host_that_does_not_answer(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    """F23: told within the connect timeout."""
    odd.cut()
    told(pair, hello, "h2", "6 s", connect_timeout="6")


def test_a_port_where_nobody_listens(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    told(pair, hello, "h2", "refused", hosts="h1,root@h2:2222")


def test_a_name_that_nobody_knows(pair: Cluster, hello: str) -> None:
    told(pair, hello, "h9", "name", hosts="h1,h9")


def test_a_key_that_is_refused(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.configure_sshd("AuthorizedKeysFile /nowhere")
    told(pair, hello, "h2", "key")


def test_a_host_key_that_is_unknown(pair: Cluster, odd: VirtualHost, hello: str, tmp_path: Path) -> None:
    """F24: with its fingerprint; nobody is asked."""
    (tmp_path / "known").write_text(pair.known_hosts.read_text().splitlines()[0] + "\n")
    config = tmp_path / "config"
    config.write_text(f"UserKnownHostsFile {tmp_path / 'known'}\n" + pair.ssh_config.read_text())
    told(pair, hello, "h2", "SHA256:", "not in known_hosts", options=("--ssh-config", str(config)))


def test_a_host_key_that_has_changed(pair: Cluster, odd: VirtualHost, hello: str, tmp_path: Path) -> None:
    """F24: never accepted."""
    lines = pair.known_hosts.read_text().splitlines()
    key = lines[0].split()[2]
    (tmp_path / "known").write_text("".join(" ".join([*line.split()[:2], key]) + "\n" for line in lines))
    config = tmp_path / "config"
    config.write_text(f"UserKnownHostsFile {tmp_path / 'known'}\n" + pair.ssh_config.read_text())
    told(pair, hello, "h2", "SHA256:", "has changed", options=("--ssh-config", str(config)))


def test_a_host_without_python(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    """F20: in one line, and nothing was started anywhere."""
    odd.remove("/usr/bin/python*", "/usr/local/bin/python*", "/usr/libexec/platform-python")
    told(pair, hello, "h2", "python")


OLD_PYTHON = """#!/bin/sh
# the host's own Python, which says that it is an older one
while [ "$1" != -c ]; do shift; done
shift
exec /usr/lib/real-python -S -c 'import sys; sys.version_info = (3, 5, 2, "final", 0); exec(sys.argv.pop(1))' "$@"
"""


def test_a_host_with_a_python_that_is_too_old(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    """F20: with the version that was found."""
    odd.run("sh", "-c", "cp $(readlink -f /usr/bin/python3) /usr/lib/real-python").check()
    odd.remove("/usr/bin/python*", "/usr/local/bin/python*")
    odd.write("/usr/bin/python3", OLD_PYTHON, 0o755)
    told(pair, hello, "h2", "3.6", "3.5.2")


def test_a_host_where_nothing_can_be_written(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    for folder in ("/root", "/var/tmp", "/tmp", "/run", "/dev/shm"):
        odd.make_read_only(folder)
    told(pair, hello, "h2", "no folder", "read-only")


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false", "/no/such/shell"])
def test_a_shell_that_refuses_commands(pair: Cluster, odd: VirtualHost, hello: str, shell: str) -> None:
    odd.set_shell(shell)
    told(pair, hello, "h2")


def test_a_forced_command(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.configure_sshd("ForceCommand echo this account is for backups")
    told(pair, hello, "h2", "this account is for backups")


def test_equal_errors_are_told_together(make_cluster: Callable[..., Cluster], hello: str) -> None:
    """F23: by ranges of hosts."""
    cluster = make_cluster(5)
    for host in cluster.hosts[1:4]:
        host.remove("/usr/bin/python*")
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", hello)
    assert done.status == 3, done
    lines = [line for line in done.stderr.splitlines() if "hint" not in line]
    assert len(lines) == 1, done
    assert "h[2-4]" in lines[0], done
    cluster.wait_idle()


def test_a_server_that_says_nothing(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.freeze()
    told(pair, hello, "h2", "6 s", connect_timeout="6")


def test_a_login_shell_that_never_gets_ready(pair: Cluster, odd: VirtualHost, hello: str) -> None:
    odd.write("/root/.bashrc", "sleep 1000\n")
    done = pair.mnspawn("--connect-timeout", "6", "--hosts", "h1,h2", "--nproc-per-node", "1", hello)
    assert done.status == 3, done
    assert "h2" in done.stderr, done


def test_a_host_whose_python_starts_slowly_is_waited_for_beyond_the_connect_timeout(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    cluster["h2"].write("/opt/python", '#!/bin/sh\nsleep 3\nexec python3 "$@"\n', 0o755)
    cluster["h1"].write("/opt/python", '#!/bin/sh\nexec python3 "$@"\n', 0o755)
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    options = ["--hosts", cluster.hosts_option, "--nproc-per-node", "1", "--python", "/opt/python"]
    done = cluster.mnspawn(*options, "--connect-timeout", "2", str(script))
    assert done.status == 0, done
    assert sorted(done.stdout.splitlines()) == ["[h1:0] hello", "[h2:1] hello"]
