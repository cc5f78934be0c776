"""Names with several addresses, some of which lead nowhere: each has its share of time, whatever the transport."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn.transport import SshOptions, Target
from mnspawn.transport.config.route import Hop, Router
from mnspawn.transport.ssh import addresses, sockets
from mnspawn.transport.ssh.addresses import Address, in_turn
from tests.ssh.test_across_hosts import SHORT, probe
from tests.support import PATIENCE, Cluster

# of nobody, see `swallow`; the resolver puts them first: they have more in common with the controller's own addresses
NOWHERE = "10.77.0.3"
NOWHERE6 = "fd77::3"
BRIEF = 2.0  # seconds for each address, where none can be used


@pytest.fixture
def pair(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two hosts, and two addresses that swallow packets. Names are what a test puts into /etc/hosts."""
    cluster = make_cluster(2)
    swallow(cluster)
    return cluster


def swallow(cluster: Cluster) -> None:
    for address in (NOWHERE, NOWHERE6):
        cluster.run("ip", "neigh", "replace", address, "lladdr", "02:77:00:00:ff:ff", "dev", "br0", "nud", "permanent")


def name(cluster: Cluster, *lines: str, known: str = "h1") -> Path:
    """Put lines before /etc/hosts, where the controller stands; a config by which all names in them are `known`."""
    hosts = cluster.folder / "hosts"
    hosts.write_text("".join(f"{line}\n" for line in lines) + hosts.read_text())
    config = cluster.home / "several"
    config.write_text(f"Host many\n  HostKeyAlias {known}\n{cluster.ssh_config.read_text()}")
    return config


@pytest.mark.parametrize(
    ("dead", "alive"), [(NOWHERE, "address"), (NOWHERE6, "address6"), (NOWHERE6, "address")], ids=["v4", "v6", "mixed"]
)
def test_an_address_that_leads_nowhere_does_not_hide_the_next(
    pair: Cluster, ssh_name: str, dead: str, alive: str
) -> None:
    config = name(pair, f"{dead} many", f"{getattr(pair['h1'], alive)} many")
    found = probe(pair, ssh_name, "many", config=config, timeout=SHORT)
    assert found["many"] == ["root@h1", "", ""]
    first = pair.run("getent", "ahosts", "many").stdout.split()[0]
    assert first == dead, "the resolver has another order: nothing was tried"


def test_the_address_family_of_ssh_config_leaves_out_the_others(pair: Cluster, ssh_name: str) -> None:
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address6} many")
    config.write_text(f"AddressFamily inet6\n{config.read_text()}")
    assert probe(pair, ssh_name, "many", config=config)["many"] == ["root@h1", "", ""]
    config.write_text(config.read_text().replace("inet6", "inet"))
    kind, message, _ = probe(pair, ssh_name, "many", config=config, timeout=BRIEF)["many"]
    assert kind == "ConnectTimeout"
    assert f"many [{NOWHERE}] port 22" in message


def test_all_addresses_are_told_each_with_its_reason(pair: Cluster, ssh_name: str) -> None:
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address} many")
    config.write_text(f"Port 2222\nConnectTimeout 2\n{config.read_text()}")
    kind, message, _ = probe(pair, ssh_name, "many", config=config)["many"]
    assert kind == "ConnectionRefused"
    assert "none of its 2 addresses can be used" in message
    assert f"connection refused at {pair['h1'].address} port 2222" in message
    assert f"the host does not answer ({NOWHERE} port 2222" in message


def test_the_connect_timeout_of_ssh_config_holds_for_each_address(pair: Cluster, ssh_name: str) -> None:
    """Ours must not strike: what is longer than the test has patience for shows that theirs did."""
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address} many")
    config.write_text(f"ConnectTimeout 1\n{config.read_text()}")
    assert probe(pair, ssh_name, "many", config=config, timeout=100 * PATIENCE)["many"] == ["root@h1", "", ""]


@pytest.mark.parametrize("transport", ["asyncssh", "paramiko"])  # ssh itself waits for each as long as it may take
def test_the_next_address_is_tried_while_one_does_not_answer(pair: Cluster, transport: str) -> None:
    """The connect timeout must not strike: it is longer than the test has patience for."""
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address} many")
    assert probe(pair, transport, "many", config=config, timeout=100 * PATIENCE)["many"] == ["root@h1", "", ""]


def test_a_jump_host_has_several_addresses_as_well(pair: Cluster, ssh_name: str) -> None:
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address} many")
    config.write_text(f"Host h2\n  ProxyJump root@many:22\n{config.read_text()}")
    assert probe(pair, ssh_name, "h2", config=config, timeout=SHORT)["h2"] == ["root@h2", "", ""]
    config.write_text(config.read_text().replace("Host many\n", "Host many\n  Port 2222\n").replace(":22\n", "\n"))
    kind, message, _ = probe(pair, ssh_name, "h2", config=config, timeout=BRIEF)["h2"]
    assert kind == "ConnectionRefused"
    assert "jump host many: none of its 2 addresses can be used" in message
    assert NOWHERE in message


def test_a_chain_of_jump_hosts_has_several_addresses_as_well(make_cluster: Callable[..., Cluster]) -> None:
    """Over openssh each ssh on the way has to be told of the timeout; the other transports are their own jump hosts."""
    cluster = make_cluster(3)
    swallow(cluster)
    config = name(cluster, f"{NOWHERE} many", f"{cluster['h1'].address} many")
    config.write_text(f"Host h3\n  ProxyJump many,h2\n{config.read_text()}")
    assert probe(cluster, "openssh", "h3", config=config, timeout=SHORT)["h3"] == ["root@h3", "", ""]


@pytest.mark.parametrize("transport", ["asyncssh", "paramiko"])  # ssh itself stays with the first that answers
def test_an_address_that_leads_to_another_host_does_not_hide_the_next(pair: Cluster, transport: str) -> None:
    config = name(pair, f"{pair['h2'].address} many", f"{pair['h1'].address} many")
    assert probe(pair, transport, "many", config=config)["many"] == ["root@h1", "", ""]
    config = name(pair, f"{pair['h2'].address} other", known="h1")
    config.write_text(f"Host other\n  HostKeyAlias h1\n{config.read_text()}")
    assert probe(pair, transport, "other", config=config)["other"][0] == "HostKeyChanged"


def test_a_run_uses_the_address_that_answers(pair: Cluster, ssh_name: str) -> None:
    config = name(pair, f"{NOWHERE} many", f"{pair['h1'].address} many")
    options = ["--ssh-config", str(config), "--transport", ssh_name, "--connect-timeout", str(SHORT), "--hosts", "many"]
    done = pair.mnspawn(*options, "--nproc-per-node", "1", "--no-python", "hostname")
    assert (done.status, done.stdout) == (0, "[many:0] h1\n"), done


def test_families_take_turns_and_no_address_comes_twice() -> None:
    def at(family: int, text: str) -> Address:
        return Address(family, socket.SOCK_STREAM, 6, (text, 22))

    six, four = socket.AF_INET6, socket.AF_INET
    found = [at(six, "::1"), at(six, "::2"), at(six, "::3"), at(four, "1"), at(six, "::1"), at(four, "2")]
    assert [address.shown for address in in_turn(found)] == ["::1", "1", "::2", "2", "::3"]


async def test_one_address_after_the_other_is_tried_while_none_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few at the same time, however many there are; and all that were opened are closed but one."""
    number = 3 * addresses.AT_ONCE
    waiting: list[str] = []
    opened: list[socket.socket] = []

    async def connect(hop: Hop, address: Address, timeout: float) -> socket.socket:
        waiting.append(address.shown)
        assert len(waiting) <= addresses.AT_ONCE
        if len(waiting) == addresses.AT_ONCE:
            everybody.set()
        await everybody.wait()
        opened.append(socket.socket())
        return opened[-1]

    async def shake(sock: socket.socket, deadline: float) -> socket.socket:
        return sock

    everybody = asyncio.Event()
    found = [Address(socket.AF_INET, socket.SOCK_STREAM, 6, (f"10.0.0.{last}", 22)) for last in range(number)]
    monkeypatch.setattr(addresses, "NEXT_AFTER", 0.0)
    monkeypatch.setattr(addresses, "resolved", lambda hop, flags=0: list(found))
    monkeypatch.setattr(sockets, "_connect", connect)
    hop = Router(SshOptions(config=Path("/dev/null"))).hop(Target("many"))
    won = await sockets.Dialler().reach(hop, PATIENCE, shake)
    assert waiting == [f"10.0.0.{last}" for last in range(addresses.AT_ONCE)]
    assert [sock for sock in opened if sock.fileno() >= 0] == [won]
    won.close()
