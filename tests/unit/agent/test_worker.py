import pytest

from mnspawn_agent.core.worker import ENDED, MOVES, SendSignal, WorkerMachine, WorkerState
from mnspawn_agent.protocol.exits import KILL_LIMIT
from tests.unit.agent.tables import reachable, terminal


def running(pid: int = 42) -> WorkerMachine:
    worker = WorkerMachine(rank=3)
    worker.spawned(pid, now=100.0)
    return worker


TERM = [SendSignal(42, "SIGTERM"), SendSignal(42, "SIGCONT")]
KILL = [SendSignal(42, "SIGKILL")]


def test_every_state_answers_stop() -> None:
    assert set(MOVES) == set(WorkerState)
    assert [state for state, row in MOVES.items() if "stop" not in row] == []


def test_every_state_can_be_reached() -> None:
    assert reachable(MOVES, WorkerState.PENDING) == set(WorkerState)


def test_only_ended_states_have_no_way_out_but_who_was_given_up_may_still_end() -> None:
    assert terminal(MOVES) == {WorkerState.EXITED, WorkerState.NOT_STARTED}
    assert ENDED - terminal(MOVES) == {WorkerState.GIVEN_UP}


def test_stop_escalates_to_sigkill_only_after_the_grace_period() -> None:
    worker = running()
    assert worker.stop(now=100.0, grace=10.0) == TERM
    assert worker.deadline == 110.0
    assert worker.stop(now=105.0, grace=10.0) == []
    assert worker.on_time(now=109.9) == []
    assert worker.on_time(now=110.0) == KILL
    assert worker.on_time(now=111.0) == []
    assert (worker.was_stopped, worker.was_killed, worker.outlived_term) == (True, True, True)


def test_asking_again_can_shorten_the_grace_but_never_lengthen_it() -> None:
    worker = running()
    worker.stop(now=100.0, grace=10.0)
    worker.stop(now=101.0, grace=60.0)
    assert worker.deadline == 110.0
    worker.stop(now=102.0, grace=1.0)
    assert worker.deadline == 103.0
    assert worker.stop(now=102.5, grace=0.0) == KILL
    assert (worker.was_killed, worker.outlived_term) == (True, False)  # it may have been about to end


def test_a_grace_that_was_shortened_is_waited_for() -> None:
    worker = running()
    worker.stop(now=100.0, grace=10.0)
    assert worker.stop(now=101.0, grace=1.0) == []
    assert worker.on_time(now=102.0) == KILL
    assert worker.outlived_term


def test_no_grace_kills_at_once() -> None:
    worker = running()
    assert worker.stop(now=100.0, grace=0.0) == KILL
    assert (worker.was_killed, worker.outlived_term) == (True, False)


def test_kill_is_sent_once() -> None:
    worker = running()
    worker.stop(now=100.0, grace=0.0)
    assert worker.stop(now=100.1, grace=0.0) == []
    assert worker.on_time(now=200.0) == []


def test_one_that_outlives_kill_is_given_up_in_time() -> None:
    worker = running()
    worker.stop(now=100.0, grace=10.0)
    worker.on_time(now=110.0)
    assert (worker.deadline, worker.has_ended) == (110.0 + KILL_LIMIT, False)
    worker.stop(now=111.0, grace=0.0)  # asking again takes nothing and gives nothing
    assert worker.on_time(now=110.0 + KILL_LIMIT) == []
    assert (worker.state, worker.has_ended, worker.code) == (WorkerState.GIVEN_UP, True, None)
    assert worker.stop(now=120.0, grace=0.0) == []
    worker.exited(-9)  # after all
    assert (worker.state, worker.code) == (WorkerState.EXITED, -9)


def test_one_that_ends_in_its_grace_is_not_killed() -> None:
    worker = running()
    worker.stop(now=100.0, grace=10.0)
    worker.exited(0)
    assert worker.on_time(now=110.0) == []
    assert (worker.code, worker.was_stopped, worker.was_killed, worker.deadline) == (0, True, False, None)


def test_a_death_before_the_stop_is_not_marked_as_stopped() -> None:
    worker = running()
    worker.exited(-9)
    assert worker.stop(now=101.0, grace=10.0) == []
    assert (worker.code, worker.was_stopped) == (-9, False)


def test_one_that_never_started_needs_no_signal() -> None:
    worker = WorkerMachine(rank=0)
    assert worker.stop(now=1.0, grace=10.0) == []
    assert (worker.state, worker.was_stopped, worker.has_ended) == (WorkerState.NOT_STARTED, True, True)


def test_one_that_could_not_be_started_was_not_stopped() -> None:
    worker = WorkerMachine(rank=0)
    worker.spawn_failed()
    assert worker.stop(now=1.0, grace=10.0) == []
    assert (worker.was_stopped, worker.code, worker.has_ended) == (False, None, True)


def test_facts_that_can_not_be_true_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="worker 3: spawned in state running"):
        running().spawned(43, now=1.0)
    worker = running()
    worker.exited(0)
    with pytest.raises(AssertionError, match="exited in state exited"):
        worker.exited(0)
    with pytest.raises(AssertionError, match="exited in state pending"):
        WorkerMachine(rank=0).exited(0)
