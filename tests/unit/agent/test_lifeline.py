import pytest

from mnspawn_agent.core.lifeline import MOVES, Lifeline, LifelineState
from tests.unit.agent.tables import reachable, terminal


def test_the_table_knows_every_state_and_only_abandoned_is_the_end() -> None:
    assert set(MOVES) == set(LifelineState) == reachable(MOVES, LifelineState.HELD)
    assert terminal(MOVES) == {LifelineState.ABANDONED}
    assert [state for state, row in MOVES.items() if "lost" not in row] == []


def test_the_pod_is_given_up_once_after_the_grace() -> None:
    line = Lifeline(20.0)
    assert line.deadline is None
    line.lost(100.0)
    assert line.deadline == 120.0
    assert not line.on_time(119.9)
    assert line.on_time(120.0)
    assert not line.on_time(121.0)
    assert (line.state, line.deadline) == (LifelineState.ABANDONED, None)


def test_a_controller_that_comes_back_in_time_keeps_it() -> None:
    line = Lifeline(20.0)
    line.lost(100.0)
    line.back()
    assert (line.state, line.deadline) == (LifelineState.HELD, None)
    assert not line.on_time(130.0)
    line.lost(200.0)
    assert line.deadline == 220.0


def test_a_second_loss_gives_no_more_time() -> None:
    line = Lifeline(20.0)
    line.lost(100.0)
    line.lost(115.0)
    assert line.deadline == 120.0


def test_one_that_comes_back_too_late_changes_nothing() -> None:
    line = Lifeline(20.0)
    line.lost(100.0)
    line.on_time(120.0)
    line.back()
    line.lost(130.0)
    assert (line.state, line.deadline) == (LifelineState.ABANDONED, None)


def test_no_grace_gives_up_at_the_next_look() -> None:
    line = Lifeline(0.0)
    line.lost(100.0)
    assert line.on_time(100.0)


def test_a_detached_run_waits_for_ever() -> None:
    line = Lifeline(None)
    line.lost(100.0)
    assert line.deadline is None
    assert not line.on_time(1e9)
    line.back()
    assert line.state is LifelineState.HELD


def test_a_return_without_a_loss_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="lifeline: back in state held"):
        Lifeline(20.0).back()
