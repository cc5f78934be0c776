"""How runs stand, in words: status, report, ps."""

import json
import os
import sys
import termios
from dataclasses import replace

import pytest

from mnspawn.api import listing
from mnspawn.api.runs import KnownRun
from mnspawn.cli import render
from mnspawn.cli.commands import ps
from mnspawn.cli.commands.logs import ranks_of
from mnspawn.cli.commands.signal import signal_of
from mnspawn.cli.wording.states import began, report_lines, state_of_rank, status_lines
from mnspawn.cli.wording.tables import columns
from mnspawn.core.pods import Pod, PodStatus, RankStatus
from mnspawn.errors import UsageError
from mnspawn.report import HostOutcome, RankEnd, RankOutcome, RunReport
from mnspawn_inventory import Host, InventoryError

KNOWN = KnownRun(
    "1a2b3c4d",
    (Host(name="a"), Host(name="b")),
    (2, 2),
    name="deep",
    program={"target": "train.py", "args": ["--lr", "0.1"]},
)


def rank(number: int, code: int | None, *, stopped: bool = False, pid: int | None = 7) -> RankOutcome:
    host = "ab"[number // 2]
    seconds = None if code is None else 2.0
    end = RankEnd(pid, code, seconds, stopped)
    return RankOutcome.of(end, rank=number, local_rank=number % 2, host=host, ended_at=seconds)


def report(*ranks: RankOutcome, status: int = 0, lost: str | None = None) -> RunReport:
    first = next((one for one in ranks if one.has_failed), None)
    hosts = (HostOutcome("a", None, True), HostOutcome("b", lost, lost is None))
    return RunReport("1a2b3c4d", status, "a reason", 60.0, first, ranks, hosts)


def test_a_run_on_its_way() -> None:
    now = report(rank(0, None), rank(1, 0), rank(2, None), rank(3, None, pid=None))
    assert status_lines(KNOWN, now, False, {}, "looked after by process 7 here") == [
        "run 1a2b3c4d (deep): began -; looked after by process 7 here",
        "  4 ranks on 2 hosts: train.py --lr 0.1",
        "",
        "HOST  RANKS  STATE",
        "a     0-1    1 running, 1 exit status 0",
        "b     2-3    1 running, 1 not started",
    ]


def test_a_failure_is_told_before_the_run_has_ended() -> None:
    now = report(rank(0, None), rank(1, -9), rank(2, None), rank(3, None))
    lines = status_lines(KNOWN, now, False, {}, "")
    assert lines[-2:] == ["", "rank 1 failed: signal 9 (SIGKILL, possibly out of memory) (host a)"]


def test_a_kill_of_ours_is_not_taken_for_a_lack_of_memory() -> None:
    ours = replace(rank(0, -9, stopped=True), killed=True)
    assert state_of_rank(ours, has_ended=True) == "stopped (signal 9 (SIGKILL))"


def test_hosts_that_do_not_answer_and_hosts_that_are_lost() -> None:
    now = report(*(rank(number, None) for number in range(4)), lost="no link for 20 s")
    lines = status_lines(KNOWN, now, False, {"a": "connection refused"}, "")
    assert lines[-2:] == ["a     0-1    connection refused", "b     2-3    lost: no link for 20 s"]


def test_a_run_that_has_ended_says_why() -> None:
    end = report(rank(0, 5), rank(1, -15, stopped=True), rank(2, -15, stopped=True), rank(3, 0), status=5)
    lines = status_lines(KNOWN, end, True, {}, "")
    assert lines[0] == "run 1a2b3c4d (deep): ended after 1 min 00 s, exit status 5"
    assert lines[4:6] == [
        "a     0-1    1 exit status 5, 1 stopped (signal 15 (SIGTERM))",
        "b     2-3    1 stopped (signal 15 (SIGTERM)), 1 exit status 0",
    ]
    assert "mnspawn: rank 0 failed: exit status 5 (host a, local rank 0, pid 7, ran 2.0 s)" in lines


def test_a_report_has_every_rank_and_every_host() -> None:
    lines = report_lines(KNOWN, report(rank(0, 0), rank(1, 0), rank(2, 0), rank(3, 0)))
    assert lines[0] == "run 1a2b3c4d (deep): exit status 0 after 1 min 00 s: a reason"
    assert lines[5] == "0     a     7    2.0 s  2.0 s     exit status 0"
    assert lines[-2:] == ["a     nothing left", "b     nothing left"]


def test_a_report_tells_a_kill_at_once_from_one_after_the_grace() -> None:
    at_once = replace(rank(0, -9, stopped=True), killed=True)
    lines = report_lines(KNOWN, report(at_once, replace(at_once, rank=1, outlived_term=True), rank(2, 0), rank(3, 0)))
    assert lines[5].endswith("  stopped (signal 9 (SIGKILL))")
    assert lines[6].endswith("  stopped (signal 9 (SIGKILL)), TERM was not enough")


def test_of_the_ranks_of_a_lost_host_nothing_is_claimed() -> None:
    unseen = [rank(number, None, pid=None) for number in (2, 3)]
    lines = report_lines(KNOWN, report(rank(0, -15, stopped=True), rank(1, 0), *unseen, status=5, lost="no answer"))
    assert lines[7] == "2     b     -    -      -         no news"
    before = [rank(number, None, pid=None) for number in range(4)]
    assert report_lines(KNOWN, report(*before, status=3, lost="no answer"))[7].endswith("not started")


def test_a_report_comes_back_from_json_as_it_was() -> None:
    end = report(rank(0, 5), rank(1, -15, stopped=True), status=5, lost="gone")
    assert RunReport.read(json.loads(json.dumps(end.describe()))) == end


def test_what_turns_out_later_of_a_lost_host_is_added_and_the_cause_stays() -> None:
    unseen = [rank(number, None, pid=None) for number in (2, 3)]
    before = report(rank(0, -15, stopped=True), rank(1, 0), *unseen, status=143, lost="no answer")
    later = report(*(rank(number, -9, stopped=True) for number in range(4)), status=5)
    merged = before.with_news(later)
    assert [one.code for one in merged.ranks] == [-15, 0, -9, -9]
    assert [(host.lost, host.is_confirmed) for host in merged.hosts] == [(None, True), ("no answer", True)]
    assert (merged.exit_status, merged.first_failure) == (143, None)


def test_columns_show_nothing_that_a_terminal_obeys() -> None:
    assert columns([("A", "B"), ("x\x1b[2J", "y")]) == "A         B\nx\\x1b[2J  y\n"
    assert columns([]) == ""


def test_columns_fit_a_terminal_by_cutting_the_widest_cells_that_may_be_cut() -> None:
    rows = [("RUN", "HOSTS", "PROGRAM"), ("1a2b3c4d", "gpu-[001-500]", "train.py --lr 0.1 --steps 100000")]
    assert columns(rows, (1, 2), 50).splitlines()[1] == "1a2b3c4d  gpu-[001-500]  train.py --lr 0.1 --st..."
    assert columns(rows, (1, 2), 34).splitlines()[1] == "1a2b3c4d  gpu-[001...  train.py..."
    assert columns(rows, (1, 2), 5) == columns(rows, (1, 2), 32)  # what remains can still be told apart
    assert columns(rows, (1, 2)).splitlines()[1].endswith("--steps 100000")
    assert columns([("a" * 400, "b" * 400)], (1,)) == f"{'a' * 400}  {'b' * 297}...\n"


LONG = KnownRun("1a2b3c4d", (Host(name="a"),), (1,), program={"target": "train.py", "args": ["x\n\x1b[2J" * 40_000]})


def test_a_command_line_of_a_quarter_of_a_megabyte_is_cut_wherever_it_stands_among_words() -> None:
    row = listing.RunSummary("1a2b3c4d", None, "running", None, 1.0, ("a",), 1, LONG.command_line)
    assert [len(line) for line in ps.table([row], 100).splitlines()][1] == 100
    told = ps.table([row])
    assert len(told.splitlines()[1]) < 400
    assert told.isascii()
    assert "\x1b" not in told
    now = RunReport("1a2b3c4d", 0, "", 1.0, None, (rank(0, None),), (HostOutcome("a", None, True),))
    assert max(len(line) for line in status_lines(LONG, now, False, {}, "")) < 400
    assert max(len(line) for line in report_lines(LONG, now)) < 400
    assert ps.shown(row)["command"] == LONG.command_line


def test_the_width_is_that_of_the_terminal_that_results_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    widths = []
    with open(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        for columns_there in (91, 0):  # a terminal that does not know says 0
            termios.tcsetwinsize(terminal, (24, columns_there))
            widths.append(render.width())
    os.close(ours)
    with open(os.devnull, "w") as file, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", file)
        widths.append(render.width())
    assert widths == [91, None, None]


def test_an_error_of_a_host_is_cut() -> None:
    end = replace(report(rank(0, 1), status=127), reason="rank 0 could not be started: " + "x" * 100_000)
    assert max(len(line) for line in report_lines(None, end)) < 400
    assert len(state_of_rank(replace(rank(0, None), error="no such file: " + "x" * 100_000), has_ended=True)) < 400


def pod(run: str, node_rank: int, *, is_alive: bool, is_here: bool = True, at: float = 1.0) -> Pod:
    return Pod(run, node_rank, (2, 2), None, {"target": "x.py", "args": []}, at, 10.0, None, is_here, is_alive)


def test_pods_of_hosts_make_runs() -> None:
    pods = [
        ("b", pod("one", 1, is_alive=False)),
        ("a", pod("one", 0, is_alive=True)),
        ("a", pod("two", 0, is_alive=False, at=2.0)),
        ("a", pod("seen twice", 0, is_alive=True, is_here=False)),
    ]
    rows = listing.summaries_of(pods)
    assert [(row.run, row.state, row.hosts, row.ranks) for row in rows] == [
        ("two", "ended", ("a",), 4),
        ("one", "running", ("a", "b"), 4),
    ]
    assert ps.table(rows).splitlines()[2].split() == ["one", "-", "running", *began(1.0).split(), "4", "a,b", "x.py"]


@pytest.mark.parametrize(
    ("codes", "stop", "status"),
    [
        ([(0, False), (0, False)], None, 0),
        ([(7, False), (-15, True)], None, 7),
        ([(-9, False), (0, False)], None, 137),
        ([(None, False), (-15, True)], None, 127),
        ([(7, False), (8, False)], None, None),  # which was first is a matter of two clocks
        ([(-15, True), (-15, True)], "asked", 143),
        ([(-15, True), (-15, True)], "orphaned", 5),
        ([(-15, True), (-15, True)], None, None),
    ],
)
def test_hosts_tell_how_a_run_ended(codes: list[tuple[int | None, bool]], stop: str | None, status: int | None) -> None:
    pods = [PodStatus("done", stop, (RankStatus(0, code, is_stopped),)) for code, is_stopped in codes]
    assert listing.status_of(pods) == status
    assert listing.status_of([pods[0], replace(pods[1], state="running")]) is None  # it was switched off
    assert listing.status_of([pods[0], None]) is None


def test_ranks_are_chosen_by_number_and_by_host() -> None:
    assert ranks_of(KNOWN, None, None) is None
    assert ranks_of(KNOWN, (range(4),), None) is None
    assert ranks_of(KNOWN, (range(1, 3), range(3, 9)), None) == (1, 2, 3)
    assert ranks_of(KNOWN, None, "b") == (2, 3)
    assert ranks_of(KNOWN, (range(1, 3),), "a") == (1,)


def test_ranks_that_there_are_none_of() -> None:
    with pytest.raises(UsageError, match=r"^--ranks: expected ranks up to 3, found none of them$"):
        ranks_of(KNOWN, (range(4, 9),), None)
    with pytest.raises(UsageError, match=r"^--only-hosts: expected hosts with some of the wanted ranks"):
        ranks_of(KNOWN, (range(1),), "b")
    with pytest.raises(InventoryError, match=r"--only-hosts"):
        ranks_of(KNOWN, None, "c")


@pytest.mark.parametrize("word", ["USR1", "sigusr1", "SIGUSR1", "10", " usr1 "])
def test_signals_by_name_and_number(word: str) -> None:
    assert signal_of(word).name == "SIGUSR1"


@pytest.mark.parametrize("word", ["", "USR3", "0", "99", "SEGV", "-9"])
def test_signals_that_are_not_passed_on(word: str) -> None:
    with pytest.raises(UsageError, match=r"^SIGNAL: expected one of USR1, USR2, .*, found "):
        signal_of(word)
