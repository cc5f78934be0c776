"""What keeps a run from a host, `hosts check` finds: in the words of the run, whatever it is."""

import json
import os
from collections.abc import Callable

import pytest

from tests.support import Cluster, VirtualHost

UID = 3000 + os.getpid() % 50000  # processes are counted by user, whatever namespaces they are in
Fault = Callable[[VirtualHost], object]


def in_bashrc(line: str) -> Fault:
    return lambda host: host.write("/home/alice/.bashrc", f"{line}\n")


def masked(host: VirtualHost) -> None:
    host.run("su", "alice", "-c", "mkdir -p -m 700 ~/.local/state/mnspawn").check()
    host.write("/home/alice/.bashrc", "umask 777\n")


def without_folders(host: VirtualHost) -> None:
    for folder in ("/home", "/var/tmp", "/tmp", "/dev/shm"):
        host.make_read_only(folder)


def full(host: VirtualHost) -> None:
    for folder in ("/home", "/var/tmp", "/tmp", "/dev/shm"):
        host.mount(folder, options="mode=1777,size=4k")
        host.run("sh", "-c", f"cat /dev/zero > {folder}/full")


def without_inodes(host: VirtualHost) -> None:
    for folder in ("/home", "/var/tmp", "/tmp", "/dev/shm"):
        host.mount(folder, options="mode=1777,nr_inodes=1")


# the options that a fault needs, and the words that a run ends with
FAULTS: dict[str, tuple[Fault, str]] = {
    "no process": (in_bashrc("ulimit -u 1"), "the agent ended with status 1: BlockingIOError"),
    "too few processes": (in_bashrc("ulimit -u 3"), "could not be started: fork: Resource temporarily unavailable"),
    "hardly any open file": (in_bashrc("ulimit -n 6"), "its Python did not run our code"),
    "few open files": (in_bashrc("ulimit -n 12"), "run folder can't be made: [Errno 24] Too many open files"),
    "no memory": (in_bashrc("ulimit -v 20000"), "the agent ended with status 1: MemoryError"),
    "no file of any size": (in_bashrc("ulimit -f 0"), "no folder can hold a run"),
    "no access to own folders": (masked, "run folder can't be made: [Errno 13] Permission denied"),
    "an exit in .bashrc": (in_bashrc("exit 7"), "the login shell ran no command (status 7)"),
    "a program in .bashrc": (in_bashrc("exec cat"), "connected, but its login shell ran no command within 6 s"),
    "output of .bashrc that goes elsewhere": (
        in_bashrc("exec >/dev/null"),
        "connected, but its login shell ran no command within 6 s",
    ),
    "no PATH": (in_bashrc("PATH=/nowhere"), "no Python (looked for"),
    "no Python": (lambda host: host.remove("/usr/bin/python3*"), "no Python (looked for"),
    "no shell": (lambda host: host.set_shell("/usr/sbin/nologin", "alice"), "the login shell ran no command"),
    "no folder": (without_folders, "no folder can hold a run"),
    "no space": (full, "no folder can hold a run"),
    "no inodes": (without_inodes, "no folder can hold a run"),
    "no sessions": (lambda host: host.configure_sshd("MaxSessions 0"), "the server starts no command"),
    "a forced command": (lambda host: host.configure_sshd("ForceCommand /bin/true"), "the login shell ran no command"),
    "no such user": (lambda host: host.configure_sshd("DenyUsers alice"), "no key was accepted"),
}


def modules_at_home(host: VirtualHost) -> None:
    for name in ("random", "socket", "json", "os", "sitecustomize", "usercustomize", "mnspawn_agent", "zlib"):
        host.write(f"/home/alice/{name}.py", "raise SystemExit(9)\n")


def modules_on_the_path(host: VirtualHost) -> None:
    own = "/home/alice/own"
    host.write("/home/alice/.bashrc", f"export PYTHONPATH={own} PYTHONSTARTUP={own}/socket.py\n")
    for name in ("random", "socket", "json", "sitecustomize", "usercustomize", "zlib"):
        host.write(f"{own}/{name}.py", "print('noise')\nraise SystemExit(9)\n")


def without_execution(host: VirtualHost) -> None:
    for folder in ("/home/alice", "/tmp", "/var/tmp", "/dev/shm"):
        host.mount(folder, options="mode=1777,noexec")


HARMLESS: dict[str, Fault] = {
    "output of .bashrc": in_bashrc("echo hello; echo there >&2"),
    "modules of the home": modules_at_home,
    "modules of PYTHONPATH": modules_on_the_path,
    "settings of Python": in_bashrc("export PYTHONHOME=/nowhere PYTHONINSPECT=1 PYTHONWARNINGS=error PYTHONOPTIMIZE=2"),
    "no home": in_bashrc("unset HOME"),
    "programs that can't be executed": without_execution,
}


def tried(cluster: Cluster, transport: str) -> tuple[int, str, int, list[dict[str, object]]]:
    reach = ["--transport", transport, "--ssh-config", str(cluster.ssh_config), "--connect-timeout", "6"]
    run = cluster.mnspawn(*reach, "--hosts", "alice@h1", "--no-python", "/bin/true")
    checked = cluster.mnspawn("hosts", "check", "--json", *reach, "alice@h1")
    return run.status, run.stderr, checked.status, json.loads(checked.stdout)["findings"]


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_run_ends_for_is_a_finding(make_cluster: Callable[..., Cluster], fault: str, transport: str) -> None:
    cluster = make_cluster(1)
    host = cluster["h1"]
    host.add_user("alice", uid=UID)
    make, words = FAULTS[fault]
    make(host)
    status, said, checked, findings = tried(cluster, transport)
    assert status != 0
    assert words in said
    assert checked == 1
    told = [f"{one['message']} {one['details']}" for one in findings if not one["is_note"]]
    assert any(words in one for one in told), told


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
@pytest.mark.parametrize("setting", HARMLESS)
def test_what_a_run_gets_along_with_is_none(make_cluster: Callable[..., Cluster], setting: str, transport: str) -> None:
    cluster = make_cluster(1)
    host = cluster["h1"]
    host.add_user("alice", uid=UID)
    HARMLESS[setting](host)
    status, said, checked, findings = tried(cluster, transport)
    assert (status, said, checked) == (0, "", 0)
    assert all(one["is_note"] for one in findings)
