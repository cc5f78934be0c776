import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn_agent.core.pod import (
    MOVES,
    SCAN_FIRST,
    SCAN_MOST,
    Ended,
    Finished,
    PodMachine,
    PodState,
    Sweep,
)
from mnspawn_agent.core.worker import SendSignal
from mnspawn_agent.protocol.exits import KILL_LIMIT
from tests.unit.agent.tables import reachable, terminal

GRACE = 10.0


def running(*ranks: int) -> PodMachine:
    """A pod whose workers run since second 0; rank r has pid 100+r."""
    pod = PodMachine(ranks, GRACE)
    pod.start()
    for rank in ranks:
        pod.spawned(rank, 100 + rank, now=0.0)
    pod.settle(0.0)
    assert pod.actions() == []
    return pod


def sweeping(grace: float = GRACE) -> PodMachine:
    """A pod whose only worker ended at second 5, after a stop at second 0."""
    pod = running(0)
    pod.stop(0.0, grace)
    pod.exited(0, -15)
    pod.settle(5.0)
    pod.actions()
    return pod


def term(*ranks: int) -> list[SendSignal]:
    return [SendSignal(100 + rank, name) for rank in ranks for name in ("SIGTERM", "SIGCONT")]


def kill(*ranks: int) -> list[SendSignal]:
    return [SendSignal(100 + rank, "SIGKILL") for rank in ranks]


def stopped(pod: PodMachine) -> list[bool]:
    return [worker.was_stopped for worker in pod.workers.values()]


# -- the table


def test_every_state_answers_stop() -> None:
    assert set(MOVES) == set(PodState)
    assert [state for state, row in MOVES.items() if "stop" not in row] == []


def test_every_state_can_be_reached_and_only_done_is_the_end() -> None:
    assert reachable(MOVES, PodState.PREPARED) == set(PodState)
    assert terminal(MOVES) == {PodState.DONE}


# -- a good end


def test_workers_that_end_well_are_told_and_then_swept_after() -> None:
    pod = running(0, 1)
    pod.exited(1, 0)
    pod.settle(1.0)
    assert pod.actions() == [Ended(1)]
    pod.exited(0, 0)
    pod.settle(2.0)
    assert pod.actions() == [Ended(0), Sweep("SIGTERM")]
    pod.swept([], 2.0)
    assert pod.actions() == [Finished([], 0)]
    assert (pod.state, pod.deadline, stopped(pod)) == (PodState.DONE, None, [False, False])


def test_a_pod_without_workers_is_done_as_soon_as_it_starts() -> None:
    pod = PodMachine([], GRACE)
    pod.start()
    pod.settle(0.0)
    assert pod.actions() == [Sweep("SIGTERM")]


# -- first failure stops all


def test_the_first_failure_stops_the_others() -> None:
    pod = running(0, 1, 2)
    pod.exited(1, 7)
    pod.settle(3.0)
    assert pod.actions() == [Ended(1), *term(0, 2)]
    assert (pod.state, pod.deadline) == (PodState.STOPPING, 13.0)


def test_deaths_told_together_are_not_marked_as_stopped() -> None:
    pod = running(0, 1, 2)
    pod.exited(0, -11)
    pod.exited(1, -11)
    pod.settle(3.0)
    assert pod.actions() == [Ended(0), Ended(1), *term(2)]
    pod.exited(2, -15)
    pod.settle(3.5)
    assert stopped(pod) == [False, False, True]


def test_a_worker_that_could_not_be_started_stops_the_others() -> None:
    pod = PodMachine([0, 1], GRACE)
    pod.start()
    pod.spawn_failed(0)
    pod.spawned(1, 101, now=0.0)
    pod.settle(0.0)
    assert pod.actions() == term(1)
    assert stopped(pod) == [False, True]


def test_those_that_outlive_the_grace_are_killed() -> None:
    pod = running(0, 1, 2)
    pod.exited(0, 1)
    pod.settle(0.0)
    pod.exited(1, -15)
    pod.settle(1.0)
    pod.actions()
    pod.on_time(9.9)
    assert pod.actions() == []
    pod.on_time(10.0)
    assert pod.actions() == kill(2)
    assert pod.deadline == 10.0 + KILL_LIMIT
    pod.exited(2, -9)
    pod.settle(10.1)
    assert pod.actions() == [Ended(2), Sweep("SIGKILL")]
    assert [worker.was_killed for worker in pod.workers.values()] == [False, False, True]


# -- asked to stop


def test_a_stop_before_the_start_needs_no_signal_and_no_sweep() -> None:
    pod = PodMachine([0, 1], GRACE)
    pod.stop(0.0, GRACE)
    assert pod.actions() == [Finished([], 0)]
    assert (pod.state, stopped(pod)) == (PodState.DONE, [True, True])


def test_a_second_stop_hurries_and_a_third_changes_nothing() -> None:
    pod = running(0, 1)
    pod.stop(0.0, GRACE)
    assert pod.actions() == term(0, 1)
    pod.stop(1.0, 0.0)
    assert pod.actions() == kill(0, 1)
    pod.stop(2.0, 0.0)
    assert pod.actions() == []


def test_a_long_stop_after_a_short_one_takes_nothing_back() -> None:
    pod = running(0)
    pod.stop(0.0, 1.0)
    pod.stop(0.5, 60.0)
    assert pod.deadline == 1.0


def test_a_stop_when_all_is_over_is_no_news() -> None:
    pod = sweeping()
    pod.swept([], 5.0)
    pod.actions()
    pod.stop(6.0, 0.0)
    assert (pod.actions(), pod.state) == ([], PodState.DONE)


def test_a_stop_between_the_last_death_and_its_telling_sweeps_once() -> None:
    pod = running(0)
    pod.exited(0, 0)
    pod.stop(1.0, GRACE)
    pod.settle(1.0)
    assert pod.actions() == [Ended(0), Sweep("SIGTERM")]
    assert stopped(pod) == [False]


# -- the sweep


def test_what_is_left_gets_term_then_the_rest_of_the_grace_then_kill() -> None:
    pod = running(0)
    pod.exited(0, 0)
    pod.settle(100.0)
    assert pod.actions() == [Ended(0), Sweep("SIGTERM")]
    pod.swept([7, 8], 100.0)
    assert pod.deadline == 100.0 + SCAN_FIRST
    now, signals = 100.0, []
    while now < 100.0 + GRACE:
        assert pod.deadline is not None
        now = pod.deadline
        pod.on_time(now)
        signals += pod.actions()
        pod.swept([7], now)
    assert signals[-1] == Sweep("SIGKILL")
    assert set(signals[:-1]) == {Sweep("")}
    assert now < 100.0 + GRACE + SCAN_MOST
    pod.on_time(now + SCAN_MOST)
    pod.swept([], now + SCAN_MOST)
    assert pod.actions()[-1] == Finished([], swept=2)


def test_looks_at_what_is_left_become_rarer_up_to_a_bound() -> None:
    pod = sweeping()
    now, pauses = 5.0, []
    for _ in range(8):
        pod.swept([7], now)
        assert pod.deadline is not None
        pauses.append(round(pod.deadline - now, 4))
        now = pod.deadline
        pod.on_time(now)
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25]


def test_the_sweep_has_what_the_workers_left_of_the_grace() -> None:
    pod = sweeping(grace=6.0)
    pod.swept([7], 5.0)
    pod.on_time(5.9)
    assert pod.actions() == [Sweep("")]
    pod.swept([7], 5.9)
    pod.on_time(6.1)
    assert pod.actions() == [Sweep("SIGKILL")]


def test_after_a_kill_the_sweep_kills_from_the_start() -> None:
    pod = running(0)
    pod.stop(0.0, 0.0)
    pod.exited(0, -9)
    pod.settle(0.1)
    assert pod.actions()[-1] == Sweep("SIGKILL")


def test_a_stop_during_the_sweep_hurries_it() -> None:
    pod = sweeping()
    pod.swept([7], 5.0)
    pod.stop(5.1, 0.0)
    assert pod.deadline == 5.1
    pod.on_time(5.1)
    assert pod.actions() == [Sweep("SIGKILL")]


def test_what_outlives_kill_is_given_up_and_named() -> None:
    pod = sweeping(grace=0.0)
    now = 5.0
    while pod.state is PodState.SWEEPING:
        pod.swept([7, 8] if now < 6.0 else [8], now)
        if pod.deadline is not None:
            now = pod.deadline
            pod.on_time(now)
    assert pod.actions()[-1] == Finished([8], swept=2)
    assert 5.0 + KILL_LIMIT <= now < 5.0 + KILL_LIMIT + 2 * SCAN_MOST
    assert pod.deadline is None


def given_up() -> PodMachine:
    """Of a pod that was to be killed at second 0, one worker of two still lives when its time is over."""
    pod = running(0, 1)
    pod.stop(0.0, 0.0)
    pod.exited(0, -9)
    pod.settle(0.1)
    assert pod.actions() == [*kill(0, 1), Ended(0)]
    assert pod.deadline == KILL_LIMIT
    pod.on_time(KILL_LIMIT)
    assert pod.actions() == [Sweep("SIGKILL")]
    return pod


@pytest.mark.parametrize("refused", [set(), {101}], ids=["in the kernel", "another user's"])
def test_a_worker_that_outlives_kill_is_given_up_and_named_at_once(refused: set[int]) -> None:
    pod = given_up()
    pod.swept([101], KILL_LIMIT, refused)
    assert (pod.actions(), pod.state, pod.deadline) == ([Finished([101], 0)], PodState.DONE, None)


def test_others_that_the_sweep_finds_then_have_their_own_time() -> None:
    pod = given_up()
    pod.swept([101, 7], KILL_LIMIT, {101})
    assert (pod.actions(), pod.state) == ([], PodState.SWEEPING)
    pod.on_time(KILL_LIMIT + 0.1)
    pod.swept([101, 8], KILL_LIMIT + 0.1, {101, 8})  # nor may 8 be signalled, whose time was over with the workers'
    assert pod.actions() == [Sweep("SIGKILL"), Finished([101, 8], 2)]


def test_who_was_given_up_and_ends_after_all_is_told_while_there_is_somebody_to_tell() -> None:
    pod = given_up()
    pod.exited(1, -9)
    assert pod.actions() == [Ended(1)]
    pod = given_up()
    pod.swept([101], KILL_LIMIT)
    pod.actions()
    pod.exited(1, -9)
    assert pod.actions() == []


def test_the_outcome_of_a_sweep_that_nobody_waits_for_is_no_news() -> None:
    pod = running(0)
    pod.swept([7], 1.0)
    assert (pod.actions(), pod.state) == ([], PodState.RUNNING)


def test_facts_that_can_not_be_true_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="pod: start in state running"):
        running(0).start()


# -- anything

facts = st.lists(
    st.tuples(st.sampled_from(["exit 0", "exit 1", "stop", "kill", "wait"]), st.integers(0, 2), st.floats(0, 8)),
    max_size=25,
)


@settings(max_examples=150)
@given(facts, st.sets(st.integers(50, 53)))
def test_whatever_happens_a_pod_that_is_asked_to_stop_ends(
    script: list[tuple[str, int, float]], strays: set[int]
) -> None:
    pod, now, done = running(0, 1, 2), 0.0, 0
    alive, left = {0, 1, 2}, set(strays)

    def take(action: object) -> None:
        nonlocal done
        if isinstance(action, SendSignal) and action.signal == "SIGKILL" and action.pgid - 100 in alive:
            alive.discard(action.pgid - 100)
            pod.exited(action.pgid - 100, -9)
        elif isinstance(action, Sweep):
            pod.swept(sorted(left), now)
            if action.signal == "SIGKILL":
                left.clear()
        elif isinstance(action, Finished):
            done += 1
            assert not alive

    def act() -> None:
        pod.settle(now)
        while actions := pod.actions():
            for action in actions:
                take(action)
            pod.settle(now)

    for fact, rank, seconds in script:
        if fact.startswith("exit") and rank in alive:
            alive.discard(rank)
            pod.exited(rank, int(fact[-1]))
        elif fact in ("stop", "kill"):
            pod.stop(now, GRACE if fact == "stop" else 0.0)
        elif fact == "wait":
            now += seconds
            pod.on_time(now)
        act()
    pod.stop(now, GRACE)
    act()
    for _ in range(200):
        if pod.deadline is None:
            break
        now = max(now, pod.deadline)
        pod.on_time(now)
        act()
    assert (pod.state, done, pod.deadline) == (PodState.DONE, 1, None)
