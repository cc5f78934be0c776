"""What hosts answer about runs is read once; whatever they answer is refused in words or harmless."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.api import listing
from mnspawn.cli.commands import clean, ps
from mnspawn.cli.wording.states import overview
from mnspawn.core import pods
from mnspawn.core.facts import Nonsense
from mnspawn.core.pods import Cleaned, OrderAnswer, Pod, Pods
from mnspawn.engine.registry import from_pods
from mnspawn.transport.base import SshOptions
from mnspawn_inventory import Host
from tests.unit.core.test_facts import changed, odd

PROGRAM = {"kind": "script", "target": "train.py", "args": ["--lr", "0.1"]}
POD: dict[str, Any] = {
    "run": "1a2b3c4d",
    "node_rank": "0",
    "path": "/h/runs/1a2b3c4d/0",
    "plan": {"world": [2], "name": "deep", "program": PROGRAM, "began": 1.7e9, "grace": 5.0, "boot": "b"},
    "status": {"state": "done", "stop": None, "trainers": [{"rank": 0, "code": 0, "stopped": False}]},
    "is_here": True,
    "is_alive": False,
}
CLEANED: dict[str, Any] = {"run": "r", "node_rank": "0", "path": "/h/r", "ended": [7], "is_removed": True}


def test_an_honest_pod_is_read_with_all_that_is_asked_of_it() -> None:
    (pod,) = Pods.read([POD]).pods
    assert (pod.run, pod.node_rank, pod.world, pod.name, pod.program) == ("1a2b3c4d", 0, (2,), "deep", PROGRAM)
    assert (pod.began, pod.grace, pod.is_here, pod.is_alive) == (1.7e9, 5.0, True, False)
    assert listing.status_of([pod.status]) == 0


def test_what_was_not_written_down_has_a_default() -> None:
    plain = {**POD, "plan": {"world": [1]}, "status": None}
    (pod,) = Pods.read([plain]).pods
    assert (pod.name, pod.program, pod.began, pod.grace, pod.status) == (None, {}, 0.0, 10.0, None)


def test_a_folder_that_makes_no_sense_hides_no_other() -> None:
    read = Pods.read([{**POD, "plan": {"world": "x"}}, POD, {**POD, "run": "../.."}])
    assert len(read.pods) == 1
    assert read.problems == (
        "a run's folder makes no sense: '/h/runs/1a2b3c4d/0': plan.world: expected a list of at most 65536, found 'x'",
        "a run's folder makes no sense: '/h/runs/1a2b3c4d/0': run: expected a run's id, found '../..'",
    )


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("list", {}),
        ("clean", None),
        ("clean", [{}]),
        ("order", []),
        ("order", {"ok": 1}),
        ("order", "ok"),
    ],
)
def test_an_answer_of_another_kind_is_none(mode: str, said: object) -> None:
    with pytest.raises(Nonsense):
        pods.read(mode, said)


def test_what_was_cleaned_is_told_as_the_host_said_it() -> None:
    (read,) = pods.read("clean", [{**CLEANED, "leftovers": []}])  # type: ignore[misc]
    assert isinstance(read, Cleaned)
    assert read.describe() == {**CLEANED, "leftovers": []}
    (dry,) = pods.read("clean", [CLEANED])  # type: ignore[misc]
    assert isinstance(dry, Cleaned)
    assert dry.describe() == CLEANED


def test_orders_are_answered_in_three_ways() -> None:
    assert pods.read("order", {"ok": True, "holder": "away"}) == OrderAnswer(ok=True, holder="away")
    assert pods.read("order", {"ok": False, "problem": "no such run", "is_gone": False}) == OrderAnswer(
        False, "no such run"
    )
    with pytest.raises(Nonsense, match="holder: expected text, found 7"):
        pods.read("order", {"ok": True, "holder": 7})


def test_a_pod_of_no_time_is_none() -> None:
    for began in (math.nan, math.inf, 1e300, -1.0, "now"):
        assert Pods.read([{**POD, "plan": {**POD["plan"], "began": began}}]).pods == ()


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(st.lists(changed(POD), max_size=3), changed(CLEANED), odd)
def test_whatever_a_host_answers_is_refused_in_words_or_harmless(said: Any, cleaned: Any, order: Any) -> None:
    read = Pods.read(said)
    assert all(len(problem) < 400 for problem in read.problems)
    rows = listing.summaries_of([("h1", pod) for pod in read.pods])
    assert all(line.isprintable() for line in ps.table(rows).splitlines())
    json.dumps([ps.shown(row) for row in rows], allow_nan=False)
    for pod in read.pods:
        assert isinstance(pod, Pod)
        known = from_pods([pod], [Host(name="h1")] * len(pod.world), SshOptions(), "asyncssh")
        assert overview(known).isprintable()
        assert len(known.ranks) == len(pod.world)
    for mode, answer in (("clean", [cleaned]), ("order", order)):
        try:
            content = pods.read(mode, answer)
        except Nonsense:
            continue
        if isinstance(content, tuple):
            actions = [{"host": "h1", **one.describe()} for one in content]
            assert all(line.isprintable() for line in clean.table(actions, False).splitlines())
            json.dumps(actions, allow_nan=False)
