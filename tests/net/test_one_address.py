"""One machine that is several hosts, by ports or accounts, and several machines behind one address."""

import contextlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, Controller, wait_until

SCRIPT = """
import getpass, os, socket
with socket.socket() as own:
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    address, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rsplit(":", 1)
    own.bind((address, int(port)))
    print(getpass.getuser(), socket.gethostname(), os.environ["SSH_CONNECTION"].split()[3], address, port, flush=True)
"""
TRANSPORTS = ("asyncssh", "openssh", "paramiko")


def reached(cluster: Cluster, transport: str) -> list[str]:
    return ["--transport", transport, "--ssh-config", str(cluster.ssh_config)]


def said(stdout: str) -> dict[str, list[str]]:
    lines = [line[1:].partition("] ") for line in stdout.splitlines()]
    return {label: words.split() for label, _, words in lines}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "who.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def two_ports(make_cluster: Callable[..., Cluster]) -> Cluster:
    """One host whose sshd listens at 2201 and 2202, too."""
    cluster = make_cluster(1, sshd_config="Port 2201\nPort 2202")
    host = cluster["h1"]
    with cluster.known_hosts.open("a") as lines:
        lines.write("".join(f"[{host.address}]:{port} {host.host_key}\n" for port in (2201, 2202)))
    return cluster


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_address_with_two_ports_is_two_hosts(two_ports: Cluster, transport: str, script: str) -> None:
    address = two_ports["h1"].address
    hosts = f"root@{address}:2201,root@{address}:2202"
    done = two_ports.mnspawn(*reached(two_ports, transport), "--hosts", hosts, "--nproc-per-node", "2", script).check()
    found = said(done.stdout)
    assert {label: words[:3] for label, words in found.items()} == {
        f"{address}:2201:0": ["root", "h1", "2201"],
        f"{address}:2201:1": ["root", "h1", "2201"],
        f"{address}:2202:2": ["root", "h1", "2202"],
        f"{address}:2202:3": ["root", "h1", "2202"],
    }
    assert len({tuple(words[3:]) for words in found.values()}) == 4


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_accounts_of_a_machine_and_another_machine_are_three_hosts(
    make_cluster: Callable[..., Cluster], transport: str, script: str
) -> None:
    cluster = make_cluster(2)
    cluster["h1"].add_user("alice")
    cluster["h1"].add_user("bob", uid=2001)
    options = ["--hosts", "alice@h1,bob@h1,h2", "--start-port", "7000", "--nproc-per-node", "2"]
    done = cluster.mnspawn(*reached(cluster, transport), *options, script).check()
    one, two = cluster["h1"].address, cluster["h2"].address
    assert said(done.stdout) == {
        "alice@h1:0": ["alice", "h1", "22", one, "7000"],
        "alice@h1:1": ["alice", "h1", "22", one, "7001"],
        "bob@h1:2": ["bob", "h1", "22", one, "7002"],
        "bob@h1:3": ["bob", "h1", "22", one, "7003"],
        "h2:4": ["root", "h2", "22", two, "7000"],
        "h2:5": ["root", "h2", "22", two, "7001"],
    }
    cluster.check_clean()


def test_machines_behind_one_address_meet_at_addresses_of_their_own(cluster: Cluster, script: str) -> None:
    with contextlib.ExitStack() as stack:
        for port, name in ((40123, "h1"), (40124, "h2")):
            forward = ["-N", "-L", f"127.0.0.1:{port}:127.0.0.1:22", "-o", "ExitOnForwardFailure=yes", name]
            stack.enter_context(cluster.start("ssh", "-F", str(cluster.ssh_config), *forward))
        ports = (40123, 40124)

        def are_open() -> bool:
            table = cluster.run("cat", "/proc/net/tcp").stdout
            return all(f":{port:04X} 00000000:0000 0A" in table for port in ports)

        wait_until(are_open)
        known = cluster.home / "known"
        keys = zip(ports, ("h1", "h2"), strict=True)
        known.write_text("".join(f"[127.0.0.1]:{port} {cluster[name].host_key}\n" for port, name in keys))
        config = cluster.home / "config"
        config.write_text(f"UserKnownHostsFile {known}\nIdentityFile {cluster.identity}\n")
        stack.callback(known.unlink)
        stack.callback(config.unlink)
        hosts = "root@127.0.0.1:40123,root@127.0.0.1:40124"
        command = ["--ssh-config", str(config), "--hosts", hosts, "--nproc-per-node", "1", script]
        done = cluster.mnspawn(*command).check()
    found = said(done.stdout)
    assert {label: words[1:4] for label, words in found.items()} == {
        "127.0.0.1:40123:0": ["h1", "22", cluster["h1"].address],
        "127.0.0.1:40124:1": ["h2", "22", cluster["h2"].address],
    }


def test_every_command_tells_the_hosts_of_one_address_apart(two_ports: Cluster, script: str) -> None:
    cluster, address = two_ports, two_ports["h1"].address
    first, second = f"{address}:2201", f"{address}:2202"
    hosts = f"root@{first},root@{second}"
    cluster.mnspawn("--hosts", hosts, "--name", "apart", "--nproc-per-node", "1", script).check()

    checked = json.loads(cluster.mnspawn("hosts", "check", "--json", hosts).check().stdout)
    assert [one["host"] for one in checked["hosts"]] == [first, second]
    executed = cluster.mnspawn("exec", hosts, "--", "id", "-un").check().stdout.splitlines()
    assert [line for line in executed if "-" not in line] == [f"{first},{second} (2)", "root"]

    for command in (["ps", "--json"], ["ps", "--json", "--hosts", hosts]):
        (run,) = json.loads(cluster.mnspawn(*command).check().stdout)["runs"]
        assert run["hosts"] == [first, second]
    for asked in (hosts, f"root@{second},root@{first}"):
        status = json.loads(cluster.mnspawn("status", "apart", "--json", "--hosts", asked).check().stdout)
        assert [one["host"] for one in status["hosts"]] == [first, second]
    for chosen in (["--hosts", f"root@{second}"], ["--only-hosts", second]):
        assert set(said(cluster.mnspawn("logs", "apart", *chosen).check().stdout)) == {f"{second}:1"}

    with cluster.start_mnspawn("tail", "-n", "1", f"root@{first}:/etc/hostname", f"root@{second}:/etc/passwd") as tail:
        tail.wait_for(lambda: f"[{first}] h1" in tail.stdout and f"[{second}] " in tail.stdout)
        tail.interrupt()
        tail.wait()


def test_two_ways_of_writing_one_account_are_refused_before_anything_is_dialled(
    controller: Controller, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  User me\n  HostName 192.0.2.1\n")
    for transport in TRANSPORTS:
        done = controller.mnspawn(
            "--transport", transport, "--ssh-config", str(config), "--hosts", "h,me@h", "--no-python", "true"
        )
        assert (done.status, done.stderr) == (
            2, "mnspawn: --hosts: hosts 'h' and 'me@h' are the same: me@192.0.2.1 port 22\n",
        )  # fmt: skip


def pasted(hint: str) -> list[str]:
    """The command in a hint, as a shell would take it."""
    command = hint.partition("mnspawn ")[2].partition(" (or ")[0].splitlines()[0]
    return shlex.split(command)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("listing", ["option", "hostfile", "inventory"])
def test_the_command_of_a_hint_does_what_it_says_when_it_is_pasted(
    two_ports: Cluster, transport: str, listing: str, tmp_path: Path
) -> None:
    cluster, address = two_ports, two_ports["h1"].address
    cluster["h1"].add_user("alice")
    config = tmp_path / "my config"
    config.write_text(f"UserKnownHostsFile {tmp_path}/known\nIdentityFile {cluster.identity}\n")
    listed = tmp_path / "hosts"
    hosts = [f"alice@{address}:2201", f"alice@{address}:2202"]
    if listing == "option":
        options = ["--hosts", ",".join(hosts)]
    elif listing == "hostfile":
        listed.write_text("\n".join(hosts) + "\n")
        options = ["--hostfile", str(listed)]
    else:
        listed = listed.with_suffix(".toml")
        listed.write_text("".join(f'[hosts.n{n}]\naddress = "{address}"\nport = 220{n}\n' for n in (1, 2)))
        options = ["--inventory", str(listed)]
    run = ["--transport", transport, "--ssh-config", str(config), *options, "--nproc-per-node", "1", "--no-python"]
    refused = cluster.mnspawn(*run, "true")
    assert refused.status == 3, refused
    assert refused.stderr.count("mnspawn hosts trust") == 1
    command = pasted(refused.stderr)
    asked = cluster.mnspawn(*command)
    assert asked.status == 2, asked
    cluster.mnspawn(*pasted(asked.stderr)).check()
    cluster.mnspawn(*run, "true").check()

    known = tmp_path / "known"
    lines = known.read_text().splitlines()
    other = cluster["h1"].run("sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f /tmp/k && cat /tmp/k.pub").check().stdout
    is_hashed = lines[0].startswith("|1|")
    assert not is_hashed or len(lines) > 1
    known.write_text("".join(f"{line.split()[0]} {' '.join(other.split()[:2])}\n" for line in lines))
    refused = cluster.mnspawn(*run, "true")
    assert (refused.status, refused.stderr.count("mnspawn hosts trust --replace")) == (3, 1), refused
    cluster.mnspawn(*pasted(refused.stderr), "--yes").check()
    cluster.mnspawn(*run, "true").check()


def test_show_takes_hosts_as_its_siblings_do(controller: Controller, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("root@192.0.2.1:40123\nroot@192.0.2.1:40124\n")
    for words in (
        ["--hostfile", str(hostfile)],
        ["root@192.0.2.1:40123,root@192.0.2.1:40124"],
        ["--hosts", "root@192.0.2.1:40123,root@192.0.2.1:40124"],
        ["--hostfile", str(hostfile), "192.0.2.1"],
    ):
        shown = json.loads(controller.mnspawn("hosts", "show", "--json", *words).check().stdout)["hosts"]
        found = [{value["name"]: value["value"] for value in one["values"]} for one in shown]
        assert [(one["host"], values["user"], values["port"]) for one, values in zip(shown, found, strict=True)] == [
            ("192.0.2.1:40123", "root", 40123),
            ("192.0.2.1:40124", "root", 40124),
        ]
    text = controller.mnspawn("hosts", "show", "192.0.2.1:40124", "--hostfile", str(hostfile)).check().stdout
    assert text.splitlines()[0].split() == ["name", "=", "192.0.2.1:40124", f"{hostfile}:2:1"]
