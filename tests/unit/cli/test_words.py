"""What people read: causes, summaries, grouped errors, and nothing that steers their terminal."""

from dataclasses import replace

import pytest

from mnspawn.cli.wording.run import (
    EventWording,
    duration,
    error_lines,
    fold_hosts,
    message_lines,
    ranks_of,
    summary,
    visible,
)
from mnspawn.errors import AuthRefused, ConnectionRefused, HostsUnusable, PlanRefused, UsageError
from mnspawn.events import (
    HostConnected,
    HostFailed,
    HostLinkLost,
    HostStopped,
    Notice,
    OutputLost,
    RunStarting,
    RunStopping,
    Stream,
    WorkerExited,
)
from mnspawn.report import HostOutcome, RankEnd, RankOutcome, RunReport


def rank(
    number: int,
    host: str = "gpu-01",
    code: int | None = 0,
    *,
    stopped: bool = False,
    killed: bool = False,
    outlived_term: bool = False,
    tail: tuple[str, ...] = (),
    error: str | None = None,
) -> RankOutcome:
    return RankOutcome(
        rank=number, local_rank=number % 2, host=host, pid=4000 + number, code=code, seconds=12.34, stopped=stopped,
        killed=killed, ended_at=12.5, tail=tail, error=error, outlived_term=outlived_term,
    )  # fmt: skip


def report(*ranks: RankOutcome, status: int = 0, hosts: tuple[HostOutcome, ...] = (), reason: str = "") -> RunReport:
    first = next((one for one in ranks if one.has_failed), None)
    return RunReport("r1", status, reason, 13.0, first, ranks, hosts)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (7, "exit status 7"),
        (-9, "signal 9 (SIGKILL, possibly out of memory)"),
        (-11, "signal 11 (SIGSEGV)"),
        (-40, "signal 40"),
        (None, "no news of its end"),
    ],
)
def test_causes(code: int | None, text: str) -> None:
    assert RankEnd(code=code).cause == text


def test_the_summary_names_who_failed_why_and_what_followed() -> None:
    lines = summary(
        report(
            rank(0, code=-15, stopped=True),
            rank(1, code=-9, stopped=True, killed=True, outlived_term=True),
            rank(2, "gpu-02", code=-15, stopped=True),
            rank(3, "gpu-02", code=7, tail=("Traceback:", "ValueError: no")),
            status=7,
        )
    )
    assert lines == [
        "mnspawn: rank 3 failed: exit status 7 (host gpu-02, local rank 1, pid 4003, ran 12.3 s)",
        "  its last lines on stderr:",
        "    Traceback:",
        "    ValueError: no",
        "  stopped because of it: ranks 0-2",
        "  TERM was not enough and KILL followed for rank 1",
    ]


def test_a_kill_that_was_asked_for_says_nothing_of_term() -> None:
    lines = summary(report(rank(0, code=-9, stopped=True, killed=True), status=143, reason="stopped: by hand"))
    assert lines == ["mnspawn: stopped: by hand", "  stopped because of it: rank 0"]


def test_other_failures_and_those_that_had_ended_well_are_listed_apart() -> None:
    lines = summary(report(rank(0), rank(1, code=1), rank(2, "gpu-02", code=1), rank(3, "gpu-03", code=1), status=1))
    assert "  failed as well: ranks 2-3 on gpu-[02-03]: exit status 1" in lines
    assert "  had ended well before: rank 0" in lines


def test_a_good_end_says_nothing() -> None:
    assert summary(report(rank(0), rank(1), hosts=(HostOutcome("gpu-01", None, True),))) == []


def test_an_interrupted_run_says_why_and_who_was_stopped() -> None:
    lines = summary(report(rank(0, code=-15, stopped=True), status=130, reason="interrupted"))
    assert lines == ["mnspawn: interrupted", "  stopped because of it: rank 0"]


def test_a_host_that_is_lost_while_a_run_is_stopped_is_not_the_reason() -> None:
    hosts = (HostOutcome("a", None, True), HostOutcome("b", "no answer", False))
    ranks = rank(0, "a", -15, stopped=True), rank(1, "b", None)
    assert summary(report(*ranks, status=143, hosts=hosts, reason="stopped: asked for by mnspawn stop"))[:3] == [
        "mnspawn: stopped: asked for by mnspawn stop",
        "mnspawn: host lost: b (rank 1): no answer",
        "  stopped because of it: rank 0",
    ]


def test_lost_hosts_are_grouped_and_nothing_claims_that_they_were_stopped() -> None:
    hosts = tuple(HostOutcome(f"gpu-0{n}", "no heartbeat for 30 s", False) for n in (1, 2))
    lines = summary(report(rank(0, "gpu-01", None), rank(1, "gpu-02", None), status=5, hosts=hosts, reason="lost"))
    assert lines[0] == "mnspawn: hosts lost: gpu-[01-02] (ranks 0-1): no heartbeat for 30 s"
    assert "mnspawn: not confirmed stopped: gpu-[01-02]" in lines


def test_leftovers_are_told_even_after_a_good_end() -> None:
    lines = summary(report(rank(0), hosts=(HostOutcome("gpu-01", None, True, leftovers=(17, 18)),)))
    assert lines == [
        "mnspawn: gpu-01: still running: processes 17, 18",
        "  hint: end them there before you start again",
    ]


def test_why_a_process_is_left_is_told_instead_of_that_nobody_knows() -> None:
    left = HostOutcome("gpu-01", None, False, (17, 18), reasons=("may not be signalled (it runs as uid 0)", ""))
    lines = summary(report(rank(0, code=7), status=7, hosts=(left,)))
    assert lines[-2] == "mnspawn: gpu-01: still running: processes 17 may not be signalled (it runs as uid 0), 18"
    assert not [line for line in lines if "not confirmed" in line]


def test_nothing_claims_that_processes_which_outlived_kill_end_by_themselves() -> None:
    left = HostOutcome("gpu-01", "its agent died", False, (17,), reasons=("hangs in the kernel (state D)",))
    lines = summary(report(rank(0, code=None), status=5, hosts=(left,), reason="lost"))
    assert lines[-2:] == [
        "mnspawn: gpu-01: still running: process 17 hangs in the kernel (state D)",
        "  hint: end them there before you start again",
    ]
    assert not [line for line in lines if "orphan_grace" in line]


def test_a_rank_that_could_not_be_started() -> None:
    first = RankOutcome(rank=0, local_rank=0, host="a", error="exec: no such file")
    assert summary(report(first, status=1)) == [
        "mnspawn: rank 0 failed: could not be started: exec: no such file (host a, local rank 0)"
    ]


def test_tails_are_bounded_and_can_do_nothing_to_a_terminal() -> None:
    tail = (*(f"line {n}" for n in range(50)), "\x1b[31mred\x1b[0m", "10%\r100%", "bell\x07", "x" * 70_000)
    lines = summary(report(rank(0, code=1, tail=tail), status=1))
    shown = lines[2:]
    assert len(shown) == 20
    assert shown[-4:-1] == ["    red", "    100%", "    bell\\x07"]
    assert len(shown[-1]) < 1100
    assert shown[-1].endswith("(69000 more characters)")


def test_what_torch_recorded_is_told_before_the_last_lines() -> None:
    first = replace(rank(0, code=1, tail=("last",)), raised="ValueError: no\n\x1b[2Jmore")
    assert summary(report(first, status=1))[1:] == [
        "  torch recorded its error: ValueError: no",
        "    \\x1b[2Jmore",
        "  its last lines on stderr:",
        "    last",
    ]


def test_a_bare_initialize_of_jax_is_told_with_what_it_needs() -> None:
    hint = "  hint: jax.distributed.initialize() without arguments needs --contract default,jax"
    for last in ("Number of processes must be defined.", "coordinator_address should be defined."):
        assert summary(report(rank(0, code=1, tail=("x", f"ValueError: {last}")), status=1))[-1] == hint
    assert hint not in summary(report(rank(0, code=1, tail=("ValueError: no",)), status=1))


def test_equal_errors_of_many_hosts_stand_once_with_a_range_and_one_hint() -> None:
    hosts = [ConnectionRefused("connection refused", host=f"gpu-{n:02}", hint="is sshd running?") for n in range(1, 13)]
    error = HostsUnusable([*hosts, AuthRefused("no key was accepted", host="login", hint="add the key")])
    assert error_lines(error) == [
        "mnspawn: 12 hosts: connection refused: gpu-[01-12]",
        "  hint: is sshd running?",
        "mnspawn: login: no key was accepted",
        "  hint: add the key",
    ]


def test_hosts_that_the_message_names_already_are_not_named_again() -> None:
    error = HostsUnusable(
        [ConnectionRefused(f"connection refused at n{n} port 22", host=f"n{n}", hint=f"ssh n{n}") for n in (1, 2)]
    )
    assert error_lines(error) == ["mnspawn: 2 hosts: connection refused at n[1-2] port 22", "  hint: ssh n[1-2]"]


def test_a_hint_of_several_messages_stands_once() -> None:
    error = HostsUnusable([AuthRefused(f"no key ({host})", host=host, hint="add the key") for host in "ab"])
    assert error_lines(error).count("  hint: add the key") == 1


def test_refusals_are_grouped_too() -> None:
    error = PlanRefused([("a1", "port 6070 is taken"), ("a2", "port 6070 is taken")], hint="choose another")
    assert error_lines(error) == ["mnspawn: 2 hosts: port 6070 is taken: a[1-2]", "  hint: choose another"]


def test_a_usage_error_names_its_place() -> None:
    assert error_lines(UsageError("expected slots, found '4x'", place="hosts:3:8")) == [
        "mnspawn: hosts:3:8: expected slots, found '4x'"
    ]


def test_further_lines_of_a_message_are_indented() -> None:
    assert message_lines("a: no agent came up\nbash: \x1b]0;x\x07") == [
        "mnspawn: a: no agent came up",
        "    bash: \\x1b]0;x\\x07",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本", "plain é 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\udcff", "\\udcff"),
        ("a\u202eb", "a\\u202eb"),
        ("\x9b", "\\x9b"),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_hosts_fold_and_names_that_cant_be_folded_stay() -> None:
    assert fold_hosts(["n1", "n2", "n2", "login"]) == "login,n[1-2]"
    assert fold_hosts(["a&b", "c", "d!\x1b"]) == "a&b,c,d!\\x1b"


def test_facts_that_a_host_makes_up_do_no_harm() -> None:
    words = EventWording(1, 1)
    assert words.line(HostConnected(0.0, "a", {"python_version": 3, "devices": 7, "cpus": "\x07"}, cached=False)) == (
        "mnspawn: a: connected: Python ?, \\x07 CPUs, ? devices, agent sent"
    )


def test_ranks_fold() -> None:
    assert ranks_of([5, 0, 1, 2, 7, 8]) == "ranks 0-2,5,7-8"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.034, "0.03 s"), (12.34, "12.3 s"), (302, "5 min 02 s"), (11100, "3 h 05 min"), (59.99, "60.0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def connected(host: str) -> HostConnected:
    return HostConnected(0.0, host, {"python_version": [3, 11, 2], "cpus": 8, "devices": [0, 1]}, cached=True)


def test_the_live_line_counts_hosts_until_workers_start() -> None:
    words = EventWording(3)
    assert words.connecting() == "mnspawn: connecting: 0 of 3 hosts"
    assert words.live(connected("a")) == "mnspawn: connecting: 1 of 3 hosts"
    assert words.live(HostFailed(0.0, "b", "refused")) == "mnspawn: connecting: 1 of 3 hosts, 1 failed"
    assert words.live(Notice(0.0, None, "x")) is None
    assert words.live(RunStarting(0.0, "r1", 6, {})) == ""
    assert EventWording(1).live(connected("a")) == "mnspawn: preparing 1 host"


def test_what_a_user_must_know_is_told_without_being_asked() -> None:
    words = EventWording(2)
    assert words.line(RunStopping(0.0, "rank 3 failed", kill=False)) == "mnspawn: stopping all ranks: rank 3 failed"
    assert words.line(HostLinkLost(0.0, "a", "no\nnews")) == "mnspawn: a: link lost: no\\nnews; trying to get it back"
    lost = OutputLost(0.0, "a", 3, Stream.STDERR, 100, 4096)
    assert words.line(lost) == "mnspawn: a: rank 3: 4096 bytes of stderr from offset 100 are lost"
    assert words.line(HostStopped(0.0, "a", (7,), 0)) == "mnspawn: a: still running: process 7"
    assert words.line(connected("a")) is None


def test_steps_are_told_to_those_who_ask() -> None:
    exited = WorkerExited(0.0, "a", 1, 1, 9, 0, 2.0, stopped=False, killed=False)
    assert (
        EventWording(1, 1).line(connected("a"))
        == "mnspawn: a: connected: Python 3.11.2, 8 CPUs, 2 devices, agent cached"
    )
    assert EventWording(1, 1).line(exited) is None
    assert EventWording(1, 2).line(exited) == "mnspawn: a: rank 1: exit status 0 after 2.0 s"
