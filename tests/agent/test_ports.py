"""Ports are the run's own from PREPARE to its end, whether its trainers bind them or not."""

import socket

import pytest

from mnspawn_agent.posix.ports import HeldPorts, PortTaken


@pytest.fixture
def port() -> int:
    """One that is free now, from a range that tests of runs do not use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def test_a_held_port_can_be_bound_by_nobody_else(port: int) -> None:
    held = HeldPorts()
    assert held.hold_exactly(port) == port
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("0.0.0.0", port))
    held.close()


def test_a_released_port_can_be_bound_by_a_trainer_but_is_given_to_no_other_run(port: int) -> None:
    ours, theirs = HeldPorts(), HeldPorts()
    ours.hold_exactly(port)
    ours.release()
    with pytest.raises(PortTaken):
        theirs.hold_exactly(port)
    with socket.socket() as trainer:
        trainer.bind(("0.0.0.0", port))
    ours.close()
    assert theirs.hold_exactly(port) == port
    theirs.close()


def test_a_row_with_a_taken_port_gives_back_what_it_had(port: int) -> None:
    ours, theirs = HeldPorts(), HeldPorts()
    ours.hold_exactly(port + 1)
    row = theirs.hold_row(port, 2, is_required=False)
    assert port not in row
    assert port + 1 not in row
    assert ours.hold(port)
    ours.close()
    theirs.close()


def test_a_required_row_with_a_taken_port_is_refused(port: int) -> None:
    ours, theirs = HeldPorts(), HeldPorts()
    ours.hold_exactly(port + 1)
    with pytest.raises(PortTaken, match=f"port {port + 1} is in use"):
        theirs.hold_row(port, 2, is_required=True)
    ours.close()
    theirs.close()
