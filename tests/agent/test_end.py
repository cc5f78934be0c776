import json
import os
import signal
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Complete, Done, Exited, Started, StopAsked
from mnspawn_agent.protocol import messages
from tests.agent.live import RUN, Account, Live, is_alive
from tests.support import wait_until

# a worker with three descendants: in its group, in a session of its own, and in one without the run's environment
FAMILY = """
sleep 1000 & echo $!
setsid sleep 1000 & echo $!
env -i setsid sleep 1000 & echo $!
echo $$
"""
STUBBORN = 'trap "" TERM; echo up; while :; do sleep 0.05; done'
OBEDIENT = 'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.02; done'


def family_of(agent: Live) -> list[int]:
    """The pids that FAMILY told: descendants, then the worker."""
    agent.until(lambda _: agent.text().count(b"\n") >= 4)
    return [int(word) for word in agent.text().split()[:4]]


def wait_dead(*pids: int) -> None:
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], what=f"some of {pids} live on")


def finish(agent: Live) -> None:
    agent.until_a(Complete)
    assert agent.finish() == 0


# -- asked to stop


def test_a_stop_is_term_first_and_a_worker_that_obeys_is_not_killed(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT)
        agent.until_said(b"up")
        agent.send(messages.STOP, grace=600.0)
        end = agent.until_a(Exited)
        assert (end.end.code, end.end.stopped, end.end.killed) == (0, True, False)
        finish(agent)
        assert agent.text() == b"up\nbye\n"


def test_one_that_does_not_is_killed_after_the_grace(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", STUBBORN)
        agent.until_said(b"up")
        agent.send(messages.STOP, grace=0.2)
        end = agent.until_a(Exited)
        assert (end.end.code, end.end.stopped, end.end.killed, end.end.outlived_term) == (-9, True, True, True)
        finish(agent)


def test_a_second_stop_without_grace_kills_at_once(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", STUBBORN)
        agent.until_said(b"up")
        agent.send(messages.STOP, grace=1000.0)
        agent.send(messages.STOP, grace=0)
        end = agent.until_a(Exited)
        assert (end.end.killed, end.end.outlived_term) == (True, False)
        finish(agent)


def test_a_worker_that_sleeps_in_the_job_control_of_nobody_gets_its_term(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT)
        agent.until_said(b"up")
        pid = agent.until_a(Started).pid
        os.kill(pid, signal.SIGSTOP)
        agent.send(messages.STOP, grace=1000.0)
        assert not agent.until_a(Exited).end.killed
        finish(agent)


def test_a_stop_before_the_start_starts_nothing(account: Account) -> None:
    with Live(account) as agent:
        answer = agent.prepare("/bin/sh", "-c", "echo no")
        agent.send(messages.STOP, grace=1.0)
        agent.start(answer)
        assert agent.until_a(Done) == Done((), 0)
        finish(agent)
        assert [event for event in agent.events if isinstance(event, Started)] == []


def test_somebody_on_the_host_can_stop_the_run_by_the_agents_pid(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT)
        agent.until_said(b"up")
        os.kill(agent.pid, signal.SIGTERM)
        assert agent.until_a(StopAsked).reason == "the agent got a signal to end"
        assert agent.until_a(Exited).end.stopped
        finish(agent)


# -- a worker that fails


def test_the_first_failure_stops_the_others_of_its_pod_and_only_they_are_marked(account: Account) -> None:
    script = 'if [ "$RANK" = 1 ]; then until [ -e "$HOME/go" ]; do sleep 0.02; done; exit 7; fi; echo up; sleep 1000'
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, nproc=3, contracts=("torch",))
        agent.until_said(b"up", rank=0)
        agent.until_said(b"up", rank=2)
        (account.home / "go").touch()
        assert agent.until_drained(0, 1, 2) == {0: -15, 1: 7, 2: -15}
        ends = {event.rank: event.end.stopped for event in agent.events if isinstance(event, Exited)}
        assert ends == {0: True, 1: False, 2: True}
        finish(agent)


def test_deaths_that_the_agent_learns_of_together_are_not_marked_as_stopped(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo up; exec sleep 1000", nproc=3)
        for rank in range(3):
            agent.until_said(b"up", rank=rank)
        pids = {event.rank: event.pid for event in agent.events if isinstance(event, Started)}
        os.kill(agent.pid, signal.SIGSTOP)
        os.kill(pids[2], signal.SIGSEGV)
        os.kill(pids[0], signal.SIGKILL)
        wait_dead(pids[2], pids[0])
        os.kill(agent.pid, signal.SIGCONT)
        assert agent.until_drained(0, 1, 2) == {0: -9, 1: -15, 2: -11}
        ends = {event.rank: event.end.stopped for event in agent.events if isinstance(event, Exited)}
        assert ends == {0: False, 1: True, 2: False}
        finish(agent)


# -- the sweep


def test_what_a_worker_leaves_behind_is_ended_however_it_hid(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", FAMILY)
        *descendants, worker = family_of(agent)
        assert agent.until_drained(0) == {0: 0}
        assert agent.until_a(Done) == Done((), 3)
        wait_dead(*descendants, worker)
        finish(agent)


def test_what_ignores_term_is_killed_after_the_grace(account: Account) -> None:
    daemon = 'trap "" TERM; touch "$HOME/ready"; exec sleep 1000'
    script = f"setsid sh -c '{daemon}' & echo $!; until [ -e \"$HOME/ready\" ]; do sleep 0.02; done"
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, grace=0.2)
        assert agent.until_drained(0) == {0: 0}
        assert agent.until_a(Done) == Done((), 1)
        wait_dead(int(agent.text()))
        finish(agent)


def test_other_runs_of_the_same_account_are_left_alone(account: Account) -> None:
    with Live(account) as other, Live(account) as agent:
        other.begin("/bin/sh", "-c", FAMILY + "exec sleep 1000", run=f"{RUN}-other")
        others = family_of(other)
        agent.begin("/bin/sh", "-c", FAMILY)
        family_of(agent)
        finish(agent)
        assert [is_alive(pid) for pid in others] == [True] * 4
        other.send(messages.STOP, grace=0)
        finish(other)
        wait_dead(*others)


# -- an agent that dies


def test_the_guardian_ends_all_that_a_killed_agent_leaves(account: Account, agent_python: Path) -> None:
    account.python = agent_python
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", FAMILY + "exec sleep 1000")
        family = family_of(agent)
        os.kill(agent.pid, signal.SIGKILL)
        assert agent.wait() == 137
        wait_dead(*family)


def test_an_agent_that_is_killed_before_the_start_leaves_no_guardian(account: Account) -> None:
    with Live(account) as agent:
        os.kill(agent.pid, signal.SIGKILL)
        assert agent.wait() == 137


def test_what_agent_and_guardian_leave_when_both_are_killed_is_ended_by_the_next_to_come(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", FAMILY + "exec sleep 1000")
        in_group, marked, unmarked, worker = family_of(agent)
        os.kill(agent.process.pid, signal.SIGKILL)
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
        wait_dead(worker)  # it dies with the agent: PR_SET_PDEATHSIG
        assert is_alive(marked)
        with Live(account, ("reap", RUN, "0")) as reaper:
            assert reaper.read_line() == b"left "
            assert reaper.wait() == 0
        wait_dead(in_group, marked)
        os.kill(unmarked, signal.SIGKILL)  # nobody can know whose it was: no mark, no parent


def test_there_is_no_way_back_to_an_agent_that_died(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo up; exec sleep 1000")
        agent.until_said(b"up")
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
    with Live(account, ("attach", RUN, "0")) as late:
        assert late.read_line() == b"gone"
        assert late.wait() == 1


# -- a controller that does not come back


def test_an_orphan_stops_its_workers_after_the_grace_and_leaves_its_verdict(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT + "\n", orphan_grace=0.2)
        agent.until_said(b"up")
        worker = agent.until_a(Started).pid
        agent.cut()
        assert agent.wait() == 0
        wait_dead(worker)
    status = json.loads((account.pod / "status.json").read_text())
    assert (status["state"], status["leftovers"]) == ("done", [])
    assert [(t["code"], t["stopped"]) for t in status["trainers"]] == [(0, True)]
    assert (account.pod / "rank-0.out").read_bytes() == b"up\nbye\n"


def test_an_orphan_whose_workers_end_waits_for_the_controller_to_ask(account: Account) -> None:
    with Live(account) as agent:
        agent.begin(
            "/bin/sh", "-c", 'echo up; until [ -e "$HOME/go" ]; do sleep 0.02; done; exit 5', orphan_grace=600.0
        )
        agent.until_said(b"up")
        agent.cut()
        (account.home / "go").touch()
        wait_until(lambda: json.loads((account.pod / "status.json").read_text())["state"] == "done")
        with agent.come_back() as again:
            assert again.until_drained(0) == {0: 5}
            again.until_a(Complete)
            assert again.finish() == 0
        assert agent.wait() == 0


def test_an_orphan_that_has_ended_goes_after_the_grace_and_leaves_its_verdict_to_be_read(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo up; exit 5", orphan_grace=0.5)
        agent.until_said(b"up")
        wait_until(lambda: json.loads((account.pod / "status.json").read_text())["state"] == "done")
        agent.cut()
        assert agent.wait() == 0
    with Live(account, ("watch", RUN, "0", "ended")) as late:
        assert late.read_line() == b"here"


@pytest.mark.parametrize("orphan_grace", [1000.0, 1e9])
def test_a_controller_may_come_back_again_and_again(account: Account, orphan_grace: float) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT, orphan_grace=orphan_grace)
        agent.until_said(b"up")
        agent.cut()
        with agent.come_back() as second:
            second.send(messages.SIGNAL, signal="SIGCONT", ranks=None)
            second.cut()
            with second.come_back() as third:
                third.send(messages.STOP, grace=600.0)
                assert third.until_a(Exited).end.stopped
                third.until_a(Complete)
                assert third.finish() == 0
        assert agent.wait() == 0


@pytest.mark.parametrize("said", [b"x", b"\0" * 9, b"GET / HTTP/1.0\r\n\r\n"])
def test_a_stranger_at_the_control_socket_does_not_end_the_run(account: Account, said: bytes) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", OBEDIENT, orphan_grace=1000.0)
        agent.until_said(b"up")
        with Live(account, ("attach", RUN, "0")) as stranger:
            assert stranger.read_line() == b"here"
            stranger.write(said)
            stranger.cut()
            stranger.wait()
        worker = agent.until_a(Started).pid
        agent.cut()
        assert is_alive(worker)
        with agent.come_back() as again:
            again.send(messages.STOP, grace=600.0)
            assert again.until_a(Exited).end.stopped
            again.until_a(Complete)
            again.finish()
        agent.wait()
