from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.core.actions import Dismiss, GiveUpHost, Leave, PrepareAll, StartAll, StopAll
from mnspawn.core.agent_events import Exited
from mnspawn.core.patience import PROOF_LIMIT
from mnspawn.core.run import EOF_SLACK, MOVES, RunMachine, RunState
from mnspawn.errors import ExitStatus
from mnspawn.report import RankEnd
from tests.unit.agent.tables import reachable, terminal

GRACE = 10.0
SIGINT = ExitStatus.INTERRUPTED


def connecting(*hosts: str) -> RunMachine:
    return RunMachine("r1", hosts or ("h1", "h2"), GRACE, now=0.0)


def preparing() -> RunMachine:
    """Two hosts with ranks 0, 1 and 2, 3."""
    run = connecting()
    run.connected(0)
    run.connected(1)
    assert run.actions() == [PrepareAll()]
    run.laid_out([[0, 1], [2, 3]])
    return run


def starting() -> RunMachine:
    run = preparing()
    run.prepared(0, now=1.0)
    run.prepared(1, now=2.0)
    assert run.actions() == [StartAll()]
    return run


def running() -> RunMachine:
    """Since second 2; rank r has pid 100+r."""
    run = starting()
    for rank in range(4):
        run.started(rank, 100 + rank)
    assert run.state is RunState.RUNNING
    return run


def stopping() -> RunMachine:
    run = running()
    exits(run, 1, code=7, at=10.0)
    run.actions()
    return run


def done() -> RunMachine:
    run = running()
    for rank in range(4):
        exits(run, rank, at=9.0)
    return settle(run, now=10.0)


def exits(
    run: RunMachine, rank: int, code: int = 0, at: float = 5.0, stopped: bool = False, killed: bool = False
) -> None:
    end = RankEnd(100 + rank, code, at - 2.0, stopped, killed, ("last words",))
    run.exited(Exited(rank, at, end), now=at + 0.1)


def settle(run: RunMachine, now: float, hosts: tuple[int, ...] = (0, 1)) -> RunMachine:
    for host in hosts:
        run.done(host, (), 0)
        run.settled(host, now)
    return run


STATES = {
    RunState.CONNECTING: connecting,
    RunState.PREPARING: preparing,
    RunState.STARTING: starting,
    RunState.RUNNING: running,
    RunState.STOPPING: stopping,
    RunState.DONE: done,
}


# -- the table


def test_every_state_can_be_reached_and_only_done_is_the_end() -> None:
    assert set(MOVES) == set(RunState) == reachable(MOVES, RunState.CONNECTING)
    assert terminal(MOVES) == {RunState.DONE}


def test_every_state_answers_stop_or_gives_up() -> None:
    assert [state for state, row in MOVES.items() if not row.keys() & {"stop", "give_up"}] == []


@pytest.mark.parametrize("state", RunState)
def test_the_examples_here_are_in_the_state_they_say(state: RunState) -> None:
    assert STATES[state]().state is state


# -- barriers


def test_nothing_is_prepared_before_every_host_has_said_hello() -> None:
    run = connecting("h1", "h2", "h3")
    run.connected(2)
    run.connected(0)
    assert run.actions() == []
    run.connected(1)
    assert run.actions() == [PrepareAll()]


def test_nothing_is_started_before_every_host_is_prepared() -> None:
    run = preparing()
    run.prepared(1, now=1.0)
    assert (run.actions(), run.state) == ([], RunState.PREPARING)
    run.prepared(0, now=2.0)
    assert (run.actions(), run.state) == ([StartAll()], RunState.STARTING)


def test_the_run_runs_when_every_rank_has_started() -> None:
    run = starting()
    for rank in (3, 0, 2):
        run.started(rank, 100 + rank)
    assert run.state is RunState.STARTING
    run.started(1, 101)
    assert (run.state, run.actions()) == (RunState.RUNNING, [])


@pytest.mark.parametrize("state", [RunState.CONNECTING, RunState.PREPARING])
def test_giving_up_before_the_start_dismisses_every_host_once(state: RunState) -> None:
    run = STATES[state]()
    run.give_up(3.0, ExitStatus.PLAN_REFUSED, "hosts refused the plan")
    run.give_up(4.0, ExitStatus.HOST_UNUSABLE, "later")
    assert (run.actions(), run.state) == ([Dismiss()], RunState.DONE)
    report = run.report()
    assert (report.exit_status, report.reason, report.seconds) == (4, "hosts refused the plan", 3.0)
    assert [host.is_confirmed for host in report.hosts] == [True, True]


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING, RunState.STOPPING, RunState.DONE])
def test_giving_up_comes_too_late_after_the_start(state: RunState) -> None:
    run = STATES[state]()
    run.actions()
    run.give_up(3.0, ExitStatus.PLAN_REFUSED, "late")
    assert (run.actions(), run.state) == ([], state)


# -- a good end


def test_a_run_ends_well_when_every_rank_does_and_every_host_has_said_all() -> None:
    run = running()
    for rank in range(4):
        exits(run, rank, at=20.0)
    settle(run, 21.0, hosts=(0,))
    assert run.state is RunState.RUNNING
    settle(run, 30.0, hosts=(1,))
    assert run.actions() == []
    report = run.report()
    assert (report.exit_status, report.reason, report.seconds) == (0, "every rank ended with status 0", 30.0)
    assert report.first_failure is None
    assert [(r.rank, r.local_rank, r.host, r.pid, r.code, r.ended_at) for r in report.ranks] == [
        (0, 0, "h1", 100, 0, 18.0), (1, 1, "h1", 101, 0, 18.0), (2, 0, "h2", 102, 0, 18.0), (3, 1, "h2", 103, 0, 18.0),
    ]  # fmt: skip


def test_a_rank_that_would_not_die_does_not_replace_the_status_of_the_one_that_failed() -> None:
    run = running()
    exits(run, 1, code=7, at=10.0)
    exits(run, 0, code=-9, at=25.0, stopped=True, killed=True)
    run.done(0, (), 0)
    run.settled(0, 25.0)
    exits(run, 2, code=-15, at=11.0, stopped=True)
    run.done(1, (103,), 0, ("may not be signalled (it runs as uid 0)",))
    run.settled(1, 30.0)
    report = run.report()
    assert (run.state, report.exit_status, report.first_failure and report.first_failure.rank) == (RunState.DONE, 7, 1)
    left = report.hosts[1]
    assert (left.is_confirmed, left.leftovers) == (False, (103,))
    assert left.reasons == ("may not be signalled (it runs as uid 0)",)


def test_leftovers_turn_a_good_end_into_one_that_is_not_confirmed() -> None:
    run = running()
    for rank in range(4):
        exits(run, rank)
    run.done(0, (7, 8), 3)
    run.settled(0, 9.0)
    settle(run, 9.0, hosts=(1,))
    report = run.report()
    assert (report.exit_status, report.reason) == (5, "not every host confirmed that nothing is left")
    assert [(h.is_confirmed, h.leftovers, h.swept) for h in report.hosts] == [(False, (7, 8), 3), (True, (), 0)]


# -- a rank that fails


def test_the_first_failure_stops_all_once() -> None:
    run = running()
    exits(run, 1, code=7, at=10.0)
    assert run.actions() == [StopAll(GRACE, "rank 1 on h1 failed")]
    exits(run, 2, code=1, at=10.2)
    assert (run.actions(), run.state) == ([], RunState.STOPPING)


@pytest.mark.parametrize(
    ("code", "status", "end"),
    [
        (7, 7, "exit status 7"),
        (255, 255, "exit status 255"),
        (-9, 137, "signal 9 (SIGKILL, possibly out of memory)"),
        (-11, 139, "signal 11 (SIGSEGV)"),
    ],
)
def test_the_status_of_the_first_failure_is_the_runs(code: int, status: int, end: str) -> None:
    run = running()
    exits(run, 2, code=code, at=10.0)
    for rank in (0, 1, 3):
        exits(run, rank, code=-15, at=10.5, stopped=True)
    report = settle(run, 11.0).report()
    assert (report.exit_status, report.reason) == (status, f"rank 2 on h2: {end}")
    assert report.first_failure is not None
    assert (report.first_failure.rank, report.first_failure.tail) == (2, ("last words",))
    assert [rank.has_failed for rank in report.ranks] == [False, False, True, False]


def test_the_first_failure_is_the_first_by_time_and_not_by_news() -> None:
    run = running()
    exits(run, 3, code=1, at=10.5)
    exits(run, 0, code=9, at=10.4)
    first = settle(run, 11.0).report().first_failure
    assert first is not None
    assert (first.rank, first.code) == (0, 9)


def test_of_failures_at_the_same_moment_the_lowest_rank_is_named() -> None:
    run = running()
    for rank in (3, 1, 2):
        exits(run, rank, code=rank, at=10.0)
    first = settle(run, 11.0).report().first_failure
    assert first is not None
    assert first.rank == 1


def test_deaths_that_our_own_stop_caused_are_never_blamed() -> None:
    run = running()
    exits(run, 0, code=-15, at=9.0, stopped=True)  # its clock is a little behind
    exits(run, 1, code=7, at=9.1)
    first = settle(run, 11.0).report().first_failure
    assert first is not None
    assert first.rank == 1


def test_a_rank_that_can_not_be_started_stops_the_rest_with_a_shells_status() -> None:
    run = starting()
    run.started(0, 100)
    run.not_started(1, at=3.0, error="no such file: nope", now=3.1)
    assert run.actions() == [StopAll(GRACE, "rank 1 could not be started")]
    exits(run, 0, code=-15, stopped=True)
    report = settle(run, 5.0).report()
    assert (report.exit_status, report.reason) == (127, "rank 1 on h1: could not be started: no such file: nope")


def test_the_rest_runs_on_where_somebody_else_decides() -> None:
    run = RunMachine("r1", ["h1"], GRACE, 0.0, stops_on_failure=False)
    run.connected(0)
    run.laid_out([[0, 1]])
    run.prepared(0, 1.0)
    run.started(0, 100)
    run.started(1, 101)
    run.actions()
    exits(run, 0, code=7)
    assert (run.actions(), run.state) == ([], RunState.RUNNING)
    exits(run, 1)
    assert settle(run, 9.0, hosts=(0,)).report().exit_status == 7


def test_a_host_that_stops_its_workers_by_itself_stops_the_others_and_is_no_success() -> None:
    run = running()
    exits(run, 0, code=0, at=30.0, stopped=True)  # its agent gave up waiting for us; the worker obeyed
    assert run.actions() == [StopAll(GRACE, "host h1 stopped its workers")]
    exits(run, 1, code=-15, at=30.0, stopped=True)
    exits(run, 2, code=-15, at=31.0, stopped=True)
    exits(run, 3, code=-15, at=31.0, stopped=True)
    report = settle(run, 32.0).report()
    assert (report.exit_status, report.reason) == (5, "rank 0 on h1: was stopped on its host")


def test_a_rank_that_nothing_was_heard_of_is_no_success() -> None:
    run = running()
    for rank in (0, 1, 2):
        exits(run, rank)
    report = settle(run, 9.0).report()
    assert (report.exit_status, report.reason) == (5, "rank 3 on h2: no news of its end")


@pytest.mark.parametrize("state", [RunState.CONNECTING, RunState.PREPARING])
def test_news_of_workers_that_nobody_has_started_is_no_reason_to_fall_over(state: RunState) -> None:
    run = STATES[state]()
    exits(run, 0, code=1)
    exits(run, 99, code=1)
    run.started(0, 100)
    run.not_started(1, 1.0, "odd", 1.0)
    assert (run.actions(), run.state) == ([], state)


# -- a host that is lost


def test_a_lost_host_stops_the_others_and_counts_as_failed() -> None:
    run = running()
    run.lost(1, "no heartbeat for 10 s", lost_at=20.0, is_clean=False, now=40.0)
    assert run.actions() == [StopAll(GRACE, "host h2 was lost")]
    exits(run, 0, code=-15, at=41.0, stopped=True)
    exits(run, 1, code=-15, at=41.0, stopped=True)
    report = settle(run, 42.0, hosts=(0,)).report()
    assert (report.exit_status, report.reason) == (5, "host h2 was lost: no heartbeat for 10 s")
    assert [(h.lost, h.is_confirmed) for h in report.hosts] == [(None, True), ("no heartbeat for 10 s", False)]
    assert report.first_failure is None


def test_ranks_that_fail_because_a_host_went_are_not_blamed() -> None:
    run = running()
    run.lost(1, "gone", lost_at=20.0, is_clean=False, now=20.2)
    exits(run, 0, code=1, at=20.0 + 0.1)  # connection reset by peer
    exits(run, 1, code=1, at=20.0 - EOF_SLACK / 2)  # it noticed before our link did
    report = settle(run, 21.0, hosts=(0,)).report()
    assert (report.exit_status, report.first_failure) == (5, None)


def test_a_rank_that_failed_clearly_before_the_host_went_is_blamed() -> None:
    run = running()
    exits(run, 0, code=7, at=15.0)
    run.lost(1, "gone", lost_at=20.0, is_clean=False, now=40.0)
    report = settle(run, 41.0, hosts=(0,)).report()
    assert report.exit_status == 7


def test_what_would_not_die_on_a_lost_host_is_named() -> None:
    run = running()
    run.lost(1, "its agent died", 20.0, False, 21.0, [(17, "hangs in the kernel (state D)")])
    left = run.report().hosts[1]
    assert (left.is_confirmed, left.leftovers, left.reasons) == (False, (17,), ("hangs in the kernel (state D)",))


def test_a_lost_host_on_which_nothing_is_left_is_confirmed() -> None:
    run = running()
    run.lost(1, "its agent died", lost_at=20.0, is_clean=True, now=21.0)
    assert [host.is_confirmed for host in run.report().hosts] == [False, True]


def test_a_host_lost_after_its_proof_is_confirmed_though_output_is_missing() -> None:
    run = running()
    for rank in range(4):
        exits(run, rank)
    run.done(1, (), 0)
    run.lost(1, "gone", lost_at=20.0, is_clean=False, now=40.0)
    report = settle(run, 41.0, hosts=(0,)).report()
    assert [host.is_confirmed for host in report.hosts] == [True, True]
    assert report.exit_status == 5


def test_a_host_that_has_said_all_can_not_be_lost_any_more() -> None:
    run = running()
    settle(run, 5.0, hosts=(0,))
    run.lost(0, "gone", lost_at=6.0, is_clean=False, now=7.0)
    assert (run.actions(), run.state) == ([], RunState.RUNNING)


def test_all_hosts_lost_is_the_end() -> None:
    run = running()
    run.lost(1, "cable", lost_at=19.0, is_clean=False, now=40.0)
    run.lost(0, "power", lost_at=18.0, is_clean=False, now=41.0)
    assert run.state is RunState.DONE
    report = run.report()
    assert (report.exit_status, report.reason, report.seconds) == (5, "host h1 was lost: power", 41.0)


@pytest.mark.parametrize("state", [RunState.CONNECTING, RunState.PREPARING])
def test_a_host_lost_before_the_start_could_not_be_used(state: RunState) -> None:
    run = STATES[state]()
    run.lost(0, "gone", lost_at=1.0, is_clean=False, now=2.0)
    assert run.actions() == [Dismiss()]
    assert (run.report().exit_status, run.report().reason) == (3, "h1: gone")


def test_a_host_that_ends_before_the_start_ends_the_run() -> None:
    run = preparing()
    settle(run, 3.0, hosts=(0,))
    assert run.actions() == [Dismiss()]
    assert (run.report().exit_status, run.report().reason) == (5, "host h1 stopped before the start")


# -- somebody else stops it


def test_a_stop_on_one_host_stops_the_others_with_its_grace() -> None:
    run = running()
    run.stop_asked(5.0, 3.0, "mnspawn stop")
    assert run.actions() == [StopAll(3.0, "mnspawn stop")]
    run.stop_asked(6.0, 3.0, "mnspawn stop")
    assert run.actions() == []
    run.stop_asked(7.0, 0.0, "mnspawn stop")
    assert run.actions() == [StopAll(0.0, "mnspawn stop", is_hurried=True)]
    for rank in range(4):
        exits(run, rank, code=-15, at=8.0, stopped=True)
    report = settle(run, 9.0).report()
    assert (report.exit_status, report.reason) == (143, "stopped: mnspawn stop")


def test_an_agent_that_stopped_because_it_was_left_alone_is_a_lost_host() -> None:
    run = running()
    run.stop_asked(5.0, 3.0, "the controller was lost on b", is_orphaned=True)
    for rank in range(4):
        exits(run, rank, code=-15, at=8.0, stopped=True)
    report = settle(run, 9.0).report()
    assert (report.exit_status, report.reason) == (5, "stopped: the controller was lost on b")


def test_a_stop_on_a_host_before_the_start_starts_nothing() -> None:
    run = preparing()
    run.stop_asked(1.0, 3.0, "SIGTERM")
    assert run.actions() == [Dismiss()]
    assert (run.report().exit_status, run.report().reason) == (143, "stopped before the start: SIGTERM")


# -- interrupts


@pytest.mark.parametrize("state", [RunState.CONNECTING, RunState.PREPARING])
def test_one_interrupt_before_the_start_ends_the_run(state: RunState) -> None:
    run = STATES[state]()
    run.interrupt(1.0, SIGINT, "SIGINT")
    assert (run.actions(), run.state) == ([Dismiss()], RunState.DONE)
    assert (run.report().exit_status, run.report().reason) == (130, "SIGINT before the start")
    run.interrupt(2.0, SIGINT, "SIGINT")
    run.interrupt(3.0, SIGINT, "SIGINT")
    assert run.actions() == [Leave()]


@pytest.mark.parametrize("make", [starting, running])
def test_once_stops_twice_kills_three_times_leaves(make: Callable[[], RunMachine]) -> None:
    run = make()
    run.interrupt(5.0, SIGINT, "SIGINT")
    assert (run.actions(), run.state) == ([StopAll(GRACE, "SIGINT")], RunState.STOPPING)
    run.interrupt(6.0, SIGINT, "SIGINT")
    assert run.actions() == [StopAll(0.0, "SIGINT again", is_hurried=True)]
    run.interrupt(7.0, SIGINT, "SIGINT")
    assert run.actions() == [Leave()]
    run.interrupt(8.0, SIGINT, "SIGINT")
    assert run.actions() == []
    report = run.report()
    assert (report.exit_status, report.reason, report.seconds) == (130, "interrupted by SIGINT", 7.0)
    assert [host.is_confirmed for host in report.hosts] == [False, False]


def test_without_a_grace_the_first_stop_kills_and_only_the_second_interrupt_is_in_a_hurry() -> None:
    run = RunMachine.adopt("r1", ["h1", "h2"], [[0, 1], [2, 3]], 0.0, now=2.0, began=0.0)
    exits(run, 1, code=7, at=10.0)
    assert run.actions() == [StopAll(0.0, "rank 1 on h1 failed")]
    run.interrupt(10.1, SIGINT, "SIGINT")
    assert run.actions() == []
    run.interrupt(10.2, SIGINT, "SIGINT")
    assert run.actions() == [StopAll(0.0, "SIGINT again", is_hurried=True)]


def test_interrupts_while_a_failure_stops_the_run_hurry_it_and_do_not_take_the_blame() -> None:
    run = stopping()
    run.interrupt(10.5, SIGINT, "SIGINT")
    assert run.actions() == []
    run.interrupt(10.6, SIGINT, "SIGINT")
    assert run.actions() == [StopAll(0.0, "SIGINT again", is_hurried=True)]
    assert settle(run, 11.0).report().exit_status == 7


def test_interrupts_after_the_end_change_nothing_in_the_report() -> None:
    run = done()
    before = run.report()
    run.interrupt(10.1, SIGINT, "SIGINT")
    run.interrupt(10.2, SIGINT, "SIGINT")
    assert run.actions() == []
    assert run.report() == before
    assert before.exit_status == 0


def test_a_rank_that_failed_before_the_interrupt_is_blamed_and_one_after_it_is_not() -> None:
    for at, status in ((4.9, 7), (5.1, 130)):
        run = running()
        run.interrupt(5.0, SIGINT, "SIGINT")
        exits(run, 0, code=7, at=at)
        assert settle(run, 9.0).report().exit_status == status


@pytest.mark.parametrize(
    ("status", "name"), [(ExitStatus.TERMINATED, "SIGTERM"), (ExitStatus.HANGUP, "SIGHUP"), (SIGINT, "SIGINT")]
)
def test_the_signal_gives_the_status(status: ExitStatus, name: str) -> None:
    run = running()
    run.interrupt(5.0, status, name)
    for rank in range(4):
        exits(run, rank, code=-15, at=6.0, stopped=True)
    assert settle(run, 9.0).report().exit_status == status


# -- the timeout


@pytest.mark.parametrize("make", [connecting, preparing])
def test_a_timeout_before_the_start_starts_nothing(make: Callable[[], RunMachine]) -> None:
    run = make()
    run.timed_out(60.0, 60.0)
    assert run.actions() == [Dismiss()]
    assert (run.report().exit_status, run.report().reason) == (124, "timed out after 60 s")


@pytest.mark.parametrize("make", [starting, running])
def test_a_timeout_stops_the_run(make: Callable[[], RunMachine]) -> None:
    run = make()
    run.timed_out(60.0, 60.0)
    assert run.actions() == [StopAll(GRACE, "timed out after 60 s")]
    for rank in range(4):
        exits(run, rank, code=-15, at=61.0, stopped=True)
    assert settle(run, 62.0).report().exit_status == 124


def test_a_timeout_of_a_run_that_has_ended_is_no_news() -> None:
    run = done()
    before = run.report()
    run.timed_out(60.0, 60.0)
    assert run.actions() == []
    assert run.report() == before


def test_a_timeout_while_a_failure_stops_the_run_kills_and_does_not_take_the_blame() -> None:
    run = stopping()
    run.timed_out(12.0, 12.0)
    assert run.actions() == [StopAll(0.0, "timed out after 12 s", is_hurried=True)]
    assert settle(run, 13.0).report().exit_status == 7


# -- agents that answer and do not finish


def test_an_agent_that_never_finishes_a_stop_counts_as_lost_after_the_grace_and_the_limits() -> None:
    run = stopping()  # since second 10.1, rank 1 having failed with 7
    run.done(0, (), 0)
    run.settled(0, 11.0)
    assert run.deadline == 10.1 + GRACE + PROOF_LIMIT
    run.on_time(run.deadline - 0.1)
    assert run.actions() == []
    run.on_time(run.deadline)
    reason = "its agent did not finish within 55 s"
    assert run.actions() == [GiveUpHost(1, reason)]
    assert run.deadline is None
    run.lost(1, reason, 65.1, False, 65.1)
    report = run.report()
    assert (run.state, report.exit_status) == (RunState.DONE, 7)
    assert [(host.lost, host.is_confirmed) for host in report.hosts] == [(None, True), (reason, False)]


def test_a_run_that_no_rank_failed_ends_as_one_that_lost_a_host() -> None:
    run = running()
    for rank in range(4):
        exits(run, rank, at=20.0)
    run.done(0, (), 0)
    run.settled(0, 20.5)
    run.on_time(20.1 + GRACE + PROOF_LIMIT)
    (action,) = run.actions()
    assert isinstance(action, GiveUpHost)
    run.lost(1, action.reason, 75.1, True, 75.1)
    assert run.report().exit_status == 5


def test_output_that_comes_slowly_after_the_proof_is_waited_for_as_long_as_it_takes() -> None:
    run = running()
    for rank in range(4):
        exits(run, rank, at=20.0)
    for host in (0, 1):
        run.done(host, (), 0)
    assert run.deadline is None


def test_a_second_interrupt_shortens_the_time_that_agents_have() -> None:
    run = running()
    run.interrupt(5.0, SIGINT, "SIGINT")
    assert run.deadline == 5.0 + GRACE + PROOF_LIMIT
    run.interrupt(6.0, SIGINT, "SIGINT")
    assert run.deadline == 6.0 + PROOF_LIMIT


def test_a_host_without_a_link_has_its_time_from_when_it_is_heard_again() -> None:
    run = running()
    run.link_lost(0)
    run.interrupt(5.0, SIGINT, "SIGINT")
    run.done(1, (), 0)
    assert run.deadline is None  # how long a link is looked for is bounded elsewhere
    run.link_back(0, 15.0)
    assert run.deadline == 15.0 + GRACE + PROOF_LIMIT


def test_a_link_that_is_lost_and_found_while_ranks_run_has_no_end_to_expect() -> None:
    run = running()
    run.link_lost(0)
    run.link_back(0, 15.0)
    assert run.deadline is None


@pytest.mark.parametrize("make", [starting, running])
def test_a_timeout_bounds_agents_that_never_answer(make: Callable[[], RunMachine]) -> None:
    run = make()
    run.timed_out(60.0, 60.0)
    assert run.deadline == 60.0 + GRACE + PROOF_LIMIT


# -- all ranks have ended: the result stands


def ended(code: int) -> RunMachine:
    """At second 20; the hosts have proved nothing yet, and their output is on its way."""
    run = running()
    for rank in range(4):
        exits(run, rank, code=code if rank == 2 else 0, at=20.0)
    run.actions()
    return run


@pytest.mark.parametrize("code", [0, 7])
def test_when_all_ranks_have_ended_nothing_that_comes_replaces_their_status(code: int) -> None:
    happenings: list[Callable[[RunMachine], None]] = [
        lambda run: run.interrupt(20.1, SIGINT, "SIGINT"),
        lambda run: run.interrupt(20.1, ExitStatus.TERMINATED, "SIGTERM"),
        lambda run: run.timed_out(20.1, 20.0),
        lambda run: run.stop_asked(20.1, 5.0, "asked for by mnspawn stop"),
    ]
    for happen in happenings:
        run = ended(code)
        happen(run)
        assert settle(run, 21.0).report().exit_status == code


def test_an_interrupt_then_leaves_output_on_the_hosts_instead_of_waiting_for_who_reads_it() -> None:
    run = ended(0)
    run.interrupt(20.1, SIGINT, "SIGINT")
    (action,) = run.actions()
    assert isinstance(action, StopAll)
    assert (action.grace, action.is_hurried) == (GRACE, True)
    run.interrupt(20.2, SIGINT, "SIGINT")
    assert run.actions() == [StopAll(0.0, "SIGINT again", is_hurried=True)]


# -- a run that others started


def test_an_adopted_run_is_told_as_it_was_whatever_the_order_of_the_news() -> None:
    run = RunMachine.adopt("r1", ["h1", "h2"], [[0, 1], [2, 3]], GRACE, now=500.0, began=100.0)
    for rank in (2, 3):
        exits(run, rank, code=-15, at=150.0, stopped=True)
    assert run.actions() == []
    exits(run, 0, code=7, at=149.9)
    exits(run, 1, code=-15, at=150.0, stopped=True)
    report = settle(run, 501.0).report()
    assert (report.exit_status, report.seconds) == (7, 50.0)


def test_an_adopted_run_began_when_its_hosts_say_not_when_our_clock_does() -> None:
    run = RunMachine.adopt("r1", ["h1", "h2"], [[0, 1], [2, 3]], GRACE, now=500.0, began=-3000.0)
    for host, phases in enumerate(({"prepared": 100.0, "started": 101.0}, {"prepared": 99.5, "started": 101.5})):
        for name, at in phases.items():
            run.phase(host, name, at)
    for rank in range(4):
        exits(run, rank, at=151.0)
    report = settle(run, 501.0).report()
    assert report.seconds == 51.5
    assert [rank.ended_at for rank in report.ranks] == [50.0] * 4
    assert [dict(host.phases) for host in report.hosts] == [
        {"prepared": 0.5, "started": 1.5}, {"prepared": 0.0, "started": 2.0}
    ]  # fmt: skip


# -- words


@pytest.mark.parametrize(
    ("code", "killed", "words"),
    [
        (0, False, "exit status 0"),
        (-9, False, "signal 9 (SIGKILL, possibly out of memory)"),
        (-9, True, "signal 9 (SIGKILL)"),
        (-6, False, "signal 6 (SIGABRT)"),
        (-77, False, "signal 77"),
    ],
)
def test_an_end_in_words(code: int, killed: bool, words: str) -> None:
    run = running()
    exits(run, 0, code=code, killed=killed)
    assert run.report().ranks[0].cause == words


# -- anything

facts = st.lists(
    st.tuples(
        st.sampled_from(["connect", "prepare", "start", "exit", "fail", "interrupt", "timeout", "lose", "stop asked"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(facts)
def test_whatever_happens_in_whatever_order_the_run_ends_when_its_hosts_do(script: list[tuple[str, int]]) -> None:
    run, now, ended = connecting(), 0.0, set[int]()

    def act() -> None:
        for action in run.actions():
            if action == PrepareAll():
                run.laid_out([[0, 1], [2, 3]])

    for fact, number in script:
        now += 1.0
        if fact == "connect":
            run.connected(number % 2)
        elif fact == "prepare" and run.state is not RunState.CONNECTING:
            run.prepared(number % 2, now)
        elif fact == "start":
            run.started(number, 100 + number)
        elif fact in ("exit", "fail") and number not in ended:
            ended.add(number)
            exits(run, number, code=0 if fact == "exit" else 3, at=now)
        elif fact == "interrupt":
            run.interrupt(now, SIGINT, "SIGINT")
        elif fact == "timeout":
            run.timed_out(now, 60.0)
        elif fact == "lose":
            run.lost(number % 2, "gone", now, False, now)
        elif fact == "stop asked":
            run.stop_asked(now, 1.0, "SIGTERM")
        act()
    if run.state in (RunState.CONNECTING, RunState.PREPARING):
        run.give_up(now, ExitStatus.HOST_UNUSABLE, "enough")
    settle(run, now + 1.0)
    report = run.report()
    assert run.state is RunState.DONE
    assert report.exit_status != 0 or all(rank.code == 0 for rank in report.ranks)
    assert (report.exit_status == 0) == (report.reason == "every rank ended with status 0")


def test_a_report_says_when_each_host_first_reached_each_phase() -> None:
    run = RunMachine("r1", ["a", "b"], GRACE, now=100.0)
    run.phase(0, "connected", 100.25)
    run.phase(0, "started", 101.0)
    run.phase(0, "started", 109.0)  # told again, over a new connection
    assert [host.phases for host in run.report().hosts] == [{"connected": 0.25, "started": 1.0}, {}]


def test_a_kill_is_ordered_once_however_often_it_is_asked_for() -> None:
    run = RunMachine.adopt("r1", ["a", "b"], [[0], [1]], GRACE, now=10.0, began=0.0)
    run.stop_asked(10.0, 0.0, "asked for by mnspawn stop")
    run.stop_asked(10.1, 0.0, "asked for by mnspawn stop on b")  # the host's own word of it
    assert run.actions() == [StopAll(0.0, "asked for by mnspawn stop", is_hurried=True)]
