"""A newer mnspawn meets a run of version 0.1.0: its agent, which still runs, and what it has left in its folder."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from mnspawn.core.agent_events import AgentGone, CaughtUp, Done, Drained, Exited, Remark, Started
from mnspawn.core.pods import Pods, PodStatus, RankStatus
from tests.agent.live import RUN, Account, Live, is_alive
from tests.support import wait_until
from tests.support.older_agent import AGENT, ENTRY, OlderAgent

SHOWN = {
    "streams": [1, 2], "ranks": None, "offsets": [], "tail": None, "since": None, "has_times": True,
    "is_following": True,
}  # fmt: skip


@pytest.fixture
def older(account: Account) -> Iterator[OlderAgent]:
    """A detached run of which rank 0 is up."""
    environ = {**account.environment(), "PYTHONPATH": str(AGENT), "PYTHONDONTWRITEBYTECODE": "1"}
    words, pipe = [str(account.python), "-c", ENTRY], subprocess.PIPE
    process = subprocess.Popen(words, env=environ, stdin=pipe, stdout=pipe, bufsize=0)
    agent = OlderAgent(process, RUN, "here")
    agent.leave()
    wait_until(lambda: (account.pod / "rank-0.out").read_bytes() == b"up\n")
    yield agent
    with Live(account, ("reap", RUN, "0")) as reaper:
        assert reaper.read_line() == b"left "
    agent.wait()


def asked(account: Account, *words: str) -> Any:
    """What the agent of this version answers."""
    with Live(account, words) as agent:
        answer = json.loads(agent.read_line())
        assert agent.wait() == 0
    return answer


def test_a_run_of_an_older_agent_is_listed(account: Account, older: OlderAgent) -> None:
    [pod] = [pod for pod in asked(account, "list") if pod["run"] == RUN]
    assert (pod["path"], pod["is_here"], pod["is_alive"]) == (str(account.pod), True, True)
    read = Pods.read([pod])
    assert read.problems == ()
    [here] = read.pods
    assert (here.name, here.world, here.hosts, here.program["target"]) == ("old", (1,), ("here",), "/bin/sh")
    assert here.status == PodStatus("running", None, (RankStatus(0, None, stopped=False),))


def test_an_older_agent_passes_a_signal_on_and_stops_its_run(account: Account, older: OlderAgent) -> None:
    assert asked(account, "order", RUN, "0", "signal", "SIGUSR1") == {"ok": True}
    wait_until(lambda: b"signalled" in (account.pod / "rank-0.out").read_bytes())
    assert asked(account, "order", RUN, "0", "detach") == {"ok": True, "holder": "detached"}
    assert asked(account, "order", RUN, "0", "sing") == {"ok": False, "problem": "unknown command"}
    assert asked(account, "order", RUN, "0", "stop", "60", "ann") == {"ok": True}
    assert older.wait() == 0
    assert not is_alive(older.worker)
    [pod] = [pod for pod in asked(account, "list") if pod["run"] == RUN]
    assert (pod["is_alive"], pod["status"]["state"], pod["status"]["stop"]) == (False, "done", "asked")
    assert asked(account, "order", RUN, "0", "stop", "60", "ann") == {
        "ok": False, "problem": "it has ended its part of the run", "is_gone": True,
    }  # fmt: skip


def test_a_run_of_an_older_agent_is_followed_to_its_end(account: Account, older: OlderAgent) -> None:
    with Live(account, ("watch", RUN, "0")) as watcher:
        assert watcher.read_line() == b"here"
        watcher.send("watch", **SHOWN)
        watcher.until_said(b"up\n")
        assert watcher.until_a(Started).pid == older.worker
        asked(account, "order", RUN, "0", "stop", "60", "ann")
        assert watcher.until_drained(0) == {0: 9}
        assert watcher.until_a(Drained).exited.end.stopped
        assert watcher.text() == b"up\ntold\n"
        assert watcher.until_a(Done) == Done((), 0)
        watcher.until_a(CaughtUp)
        assert [event for event in watcher.events if isinstance(event, Remark | AgentGone)] == []
        watcher.finish()


def test_an_older_agent_that_no_longer_answers_is_ended_with_its_run(account: Account, older: OlderAgent) -> None:
    with Live(account, ("reap", RUN, "0")) as reaper:
        assert reaper.read_line() == b"left "
        assert reaper.wait() == 0
    assert older.wait() != 0
    assert not is_alive(older.worker)
    with Live(account, ("watch", RUN, "0")) as watcher:
        assert watcher.read_line() == b"here"
        watcher.send("watch", **SHOWN)
        assert watcher.until_a(AgentGone).reason == "its agent died"
        watcher.finish()
    [action] = [action for action in asked(account, "clean", "0", "do") if action["run"] == RUN]
    assert (action["ended"], action["is_removed"]) == ([], True)
    assert not account.pod.exists()


def test_pids_without_reasons_in_an_older_journal_are_leftovers_all_the_same(account: Account) -> None:
    """0.1.0 wrote down who outlived KILL, and not why."""
    done = {"type": "done", "leftovers": [4711], "swept": 1, "sizes": [], "at": 3.0}
    exited = {
        "type": "exited", "rank": 0, "pid": 7, "code": 5, "at": 2.0, "seconds": 1.0, "stopped": False, "killed": False,
        "outlived_term": False, "is_disk_full": False, "sizes": [], "tail": ["no luck"],
    }  # fmt: skip
    account.pod.mkdir(parents=True, mode=0o700)
    (account.pod / "plan.json").write_text(json.dumps({"run": RUN, "node_rank": 0, "ranks": [0]}))
    lines = [{"type": "started", "rank": 0, "pid": 7, "at": 1.0}, exited, done]
    (account.pod / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Live(account, ("watch", RUN, "0")) as watcher:
        assert watcher.read_line() == b"here"
        watcher.send("watch", **SHOWN)
        told = watcher.until_a(Done)
        assert (told.leftovers, told.reasons) == ((4711,), ("outlived KILL",))
        assert watcher.until_a(Exited).end.tail == ("no luck",)
        watcher.until_a(CaughtUp)
        assert [event for event in watcher.events if isinstance(event, Remark | AgentGone)] == []
        watcher.finish()
