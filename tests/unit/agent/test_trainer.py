import pytest

from mnspawn_agent.core.trainer import ENDED, MOVES, SendSignal, TrainerMachine, TrainerState
from mnspawn_agent.protocol.exits import KILL_LIMIT
from tests.unit.agent.tables import reachable, terminal


def running(pid: int = 42) -> TrainerMachine:
    trainer = TrainerMachine(rank=3)
    trainer.spawned(pid, now=100.0)
    return trainer


TERM = [SendSignal(42, "SIGTERM"), SendSignal(42, "SIGCONT")]
KILL = [SendSignal(42, "SIGKILL")]


def test_every_state_answers_stop() -> None:
    assert set(MOVES) == set(TrainerState)
    assert [state for state, row in MOVES.items() if "stop" not in row] == []


def test_every_state_can_be_reached() -> None:
    assert reachable(MOVES, TrainerState.PENDING) == set(TrainerState)


def test_only_ended_states_have_no_way_out_but_who_was_given_up_may_still_end() -> None:
    assert terminal(MOVES) == {TrainerState.EXITED, TrainerState.NOT_STARTED}
    assert ENDED - terminal(MOVES) == {TrainerState.GIVEN_UP}


def test_stop_escalates_to_sigkill_only_after_the_grace_period() -> None:
    trainer = running()
    assert trainer.stop(now=100.0, grace=10.0) == TERM
    assert trainer.deadline == 110.0
    assert trainer.stop(now=105.0, grace=10.0) == []
    assert trainer.on_time(now=109.9) == []
    assert trainer.on_time(now=110.0) == KILL
    assert trainer.on_time(now=111.0) == []
    assert (trainer.was_stopped, trainer.was_killed, trainer.outlived_term) == (True, True, True)


def test_asking_again_can_shorten_the_grace_but_never_lengthen_it() -> None:
    trainer = running()
    trainer.stop(now=100.0, grace=10.0)
    trainer.stop(now=101.0, grace=60.0)
    assert trainer.deadline == 110.0
    trainer.stop(now=102.0, grace=1.0)
    assert trainer.deadline == 103.0
    assert trainer.stop(now=102.5, grace=0.0) == KILL
    assert (trainer.was_killed, trainer.outlived_term) == (True, False)  # it may have been about to end


def test_a_grace_that_was_shortened_is_waited_for() -> None:
    trainer = running()
    trainer.stop(now=100.0, grace=10.0)
    assert trainer.stop(now=101.0, grace=1.0) == []
    assert trainer.on_time(now=102.0) == KILL
    assert trainer.outlived_term


def test_no_grace_kills_at_once() -> None:
    trainer = running()
    assert trainer.stop(now=100.0, grace=0.0) == KILL
    assert (trainer.was_killed, trainer.outlived_term) == (True, False)


def test_kill_is_sent_once() -> None:
    trainer = running()
    trainer.stop(now=100.0, grace=0.0)
    assert trainer.stop(now=100.1, grace=0.0) == []
    assert trainer.on_time(now=200.0) == []


def test_one_that_outlives_kill_is_given_up_in_time() -> None:
    trainer = running()
    trainer.stop(now=100.0, grace=10.0)
    trainer.on_time(now=110.0)
    assert (trainer.deadline, trainer.has_ended) == (110.0 + KILL_LIMIT, False)
    trainer.stop(now=111.0, grace=0.0)  # asking again takes nothing and gives nothing
    assert trainer.on_time(now=110.0 + KILL_LIMIT) == []
    assert (trainer.state, trainer.has_ended, trainer.code) == (TrainerState.GIVEN_UP, True, None)
    assert trainer.stop(now=120.0, grace=0.0) == []
    trainer.exited(-9)  # after all
    assert (trainer.state, trainer.code) == (TrainerState.EXITED, -9)


def test_one_that_ends_in_its_grace_is_not_killed() -> None:
    trainer = running()
    trainer.stop(now=100.0, grace=10.0)
    trainer.exited(0)
    assert trainer.on_time(now=110.0) == []
    assert (trainer.code, trainer.was_stopped, trainer.was_killed, trainer.deadline) == (0, True, False, None)


def test_a_death_before_the_stop_is_not_marked_as_stopped() -> None:
    trainer = running()
    trainer.exited(-9)
    assert trainer.stop(now=101.0, grace=10.0) == []
    assert (trainer.code, trainer.was_stopped) == (-9, False)


def test_one_that_never_started_needs_no_signal() -> None:
    trainer = TrainerMachine(rank=0)
    assert trainer.stop(now=1.0, grace=10.0) == []
    assert (trainer.state, trainer.was_stopped, trainer.has_ended) == (TrainerState.NOT_STARTED, True, True)


def test_one_that_could_not_be_started_was_not_stopped() -> None:
    trainer = TrainerMachine(rank=0)
    trainer.spawn_failed()
    assert trainer.stop(now=1.0, grace=10.0) == []
    assert (trainer.was_stopped, trainer.code, trainer.has_ended) == (False, None, True)


def test_facts_that_can_not_be_true_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="trainer 3: spawned in state running"):
        running().spawned(43, now=1.0)
    trainer = running()
    trainer.exited(0)
    with pytest.raises(AssertionError, match="exited in state exited"):
        trainer.exited(0)
    with pytest.raises(AssertionError, match="exited in state pending"):
        TrainerMachine(rank=0).exited(0)
