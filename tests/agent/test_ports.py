import errno
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from mnspawn.core.agent_events import Complete, Started
from mnspawn_agent.posix.run.ports import POOL, HeldPorts, PortTaken
from mnspawn_agent.posix.run.probe import probe
from mnspawn_agent.protocol import messages
from tests.agent.live import RUN, Account, Live


def bind(port: int, address: str = "", family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def can_bind(port: int) -> bool:
    try:
        bind(port).close()
    except OSError:
        return False
    return True


def free_row(count: int) -> int:
    """The first of some ports in a row that nobody has."""
    return next(port for port in range(20000, 30000) if all(can_bind(port + n) for n in range(count)))


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    held = HeldPorts()
    yield held
    held.close()


def test_a_held_port_can_be_bound_by_nobody_else_on_any_address(held: HeldPorts) -> None:
    port = held.hold_free()
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        with pytest.raises(OSError, match="in use"):
            bind(port, address, family)


def test_a_held_port_takes_no_connection(held: HeldPorts) -> None:
    port = held.hold_free()
    with closing(socket.socket()) as sock:
        assert sock.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_released_ports_are_free_at_once(held: HeldPorts) -> None:
    ports = [held.hold_free() for _ in range(5)]
    assert len(set(ports)) == 5
    held.release()
    assert [can_bind(port) for port in ports] == [True] * 5


def test_free_ports_are_none_that_the_system_gives_to_connections(held: HeldPorts) -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    assert set(POOL) & set(range(first, last + 1)) == set()
    assert held.hold_free() in POOL


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_that_somebody_has_on_one_address_is_taken(
    held: HeldPorts, family: socket.AddressFamily, address: str
) -> None:
    port = free_row(1)
    with closing(bind(port, address, family)):
        assert not held.hold(port)
        with pytest.raises(PortTaken, match=f"port {port} is in use"):
            held.hold_exactly(port)
    assert held.hold_exactly(port) == port


def test_a_row_of_ports_is_taken_whole_or_not_at_all(held: HeldPorts) -> None:
    first = free_row(4)
    with closing(bind(first + 2)):
        others = held.hold_row(first, 4, is_required=False)
        assert len(set(others)) == 4
        assert set(others) & set(range(first, first + 4)) == set()
        assert can_bind(first)
        with pytest.raises(PortTaken, match=f"port {first + 2} is in use"):
            held.hold_row(first, 4, is_required=True)
    held.close()
    assert held.hold_row(first, 4, is_required=True) == [first, first + 1, first + 2, first + 3]


def test_a_row_that_runs_over_the_last_port_is_said(held: HeldPorts) -> None:
    with pytest.raises(PortTaken, match="port 65536 does not exist"):
        held.hold_row(65535, 2, is_required=True)


def serve_once(port: int) -> None:
    """Leave a port as a server does that closes its connections first: the kernel remembers them."""
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()
        assert client.recv(1) == b""
        client.close()


def test_a_server_that_ended_a_moment_ago_leaves_a_port_that_can_be_asked_for(held: HeldPorts) -> None:
    first = free_row(2)
    serve_once(first + 1)
    assert not can_bind(first + 1)
    others = held.hold_row(first, 2, is_required=False)  # whoever does not ask for a port gets one that all can bind
    assert [port in POOL and port not in (first, first + 1) for port in others] == [True, True]
    assert held.hold_row(first, 2, is_required=True) == [first, first + 1]
    held.release()
    socket.create_server(("", first + 1)).close()


def test_a_server_that_serves_takes_its_port_also_when_it_is_asked_for(held: HeldPorts) -> None:
    port = free_row(1)
    with closing(socket.create_server(("127.0.0.1", port))), pytest.raises(PortTaken, match=f"port {port} is in use"):
        held.hold_exactly(port)
    with closing(socket.create_server(("127.0.0.1", port))):  # nothing of the attempt holds it
        pass


# -- in a real agent


def test_ports_are_held_from_prepared_until_the_workers_start(account: Account) -> None:
    with Live(account) as agent:
        answer = agent.prepare("/bin/sh", "-c", "echo up; exec sleep 1000", nproc=2)
        ports = [*answer.ports, *answer.extra_ports]
        assert len(set(ports)) == 4
        assert [can_bind(port) for port in ports] == [False] * 4
        agent.start(answer)
        agent.until_a(Started)
        assert [can_bind(port) for port in ports] == [True] * 4
        agent.send(messages.STOP, grace=0)
        agent.until_a(Complete)
        agent.finish()


def test_a_port_is_no_other_runs_even_after_its_release(held: HeldPorts) -> None:
    port = held.hold_free()
    held.release()
    other = HeldPorts()
    assert not other.hold(port)
    held.close()
    assert other.hold(port)
    other.close()


def test_two_runs_on_one_host_get_different_ports(account: Account) -> None:
    with Live(account) as first, Live(account) as second:
        one = first.prepare("/bin/sh", "-c", "true", nproc=4)
        other = second.prepare("/bin/sh", "-c", "true", nproc=4, run=f"{RUN}-other")
        assert {*one.ports, *one.extra_ports} & {*other.ports, *other.extra_ports} == set()
        for agent in (first, second):
            agent.finish(keep=False)


def test_what_a_run_had_is_free_once_its_wire_has_ended(account: Account, held: HeldPorts) -> None:
    with Live(account) as agent:
        answer = agent.prepare("/bin/sh", "-c", "true", nproc=4)
        for number in range(3000):  # giving this back takes a while
            (account.pod / f"{number}").touch()
        agent.send(messages.FINISH, keep=False)
        while agent.read():
            pass
        assert not account.pod.exists()
        assert [held.hold(port) for port in [*answer.ports, *answer.extra_ports]] == [True] * 6


def test_a_worker_can_use_its_port(account: Account) -> None:
    script = (
        "import os, socket; port = os.environ['PADDLE_CURRENT_ENDPOINT'].rpartition(':')[2]; "
        "socket.create_server(('', int(port))); print('bound')"
    )
    with Live(account) as agent:
        agent.begin(str(account.python), "-c", script, nproc=2, contracts=("paddle",))
        assert agent.until_drained(0, 1) == {0: 0, 1: 0}, agent.text(0, 2)
        assert (agent.text(0), agent.text(1)) == (b"bound\n", b"bound\n")
        agent.finish()


@pytest.mark.parametrize("option", ["start_port", "master_port"])
def test_a_port_that_was_asked_for_and_is_taken_refuses_the_plan(account: Account, option: str) -> None:
    port = free_row(1)
    with closing(bind(port)), Live(account) as agent:
        with pytest.raises(AssertionError, match=f"port {port} is in use"):
            agent.prepare("/bin/sh", "-c", "true", **{option: port})
        assert agent.finish(keep=False) == 0
    assert not account.pod.exists()


# -- whether others' addresses answer


def test_a_refusal_is_an_answer_and_nothing_needs_to_listen() -> None:
    port = free_row(1)
    assert probe([("127.0.0.1", port)]) == [["127.0.0.1", ""]]
    with closing(bind(port)) as sock:
        sock.listen()
        assert probe([("127.0.0.1", port)]) == [["127.0.0.1", ""]]


def test_an_address_that_is_none_or_that_no_route_leads_to_is_a_problem() -> None:
    ((address, problem),) = probe([("255.255.255.255", 9)])
    assert (address, bool(problem)) == ("255.255.255.255", True)
    ((address, problem),) = probe([("no address", 9)])
    assert (address, bool(problem)) == ("no address", True)


def test_nothing_to_probe_takes_no_time() -> None:
    assert probe([]) == []
