"""Facts of a host are checked once; whatever a host says, nobody behind that check trips over it."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.api.fleet import Examined
from mnspawn.cli.wording.hosts import document, finding_lines, table
from mnspawn.core import checkup, survey
from mnspawn.core.facts import CheckupFacts, HostFacts, Nonsense
from tests.unit.host_facts import CHECKED, FACTS, checked, facts

odd = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([-1, 0, 1 << 63, 1 << 64, 10**400, math.nan, math.inf, -math.inf, 1e300, -0.5]),
        st.floats(),
        st.text(st.characters()),
        st.sampled_from(["", "..", "/", "a\0b", "\ud800", "\x1b[2J", "gpu", "10.0.0.1", "x" * 70_000]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)


AILING = {"device_kind": "gpu", "devices": [{"uuid": "GPU-1"}], "lost_devices": [[0, "lost"]]}


def changed(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An honest host's words with some fields, or fields of fields, that may be anything."""
    inner = [(name, key) for name, value in good.items() if isinstance(value, dict) for key in value]
    outer = st.dictionaries(st.sampled_from(sorted(good)), odd, max_size=3)
    if not inner:
        return outer.map(lambda fields: {**good, **fields})
    deep = st.lists(st.tuples(st.sampled_from(inner), odd), max_size=2)

    def mix(fields: dict[str, Any], deeper: list[tuple[tuple[str, str], Any]]) -> dict[str, Any]:
        said = {name: dict(value) if isinstance(value, dict) else value for name, value in good.items()}
        for (name, key), value in deeper:
            said[name][key] = value
        return {**said, **fields}

    return st.builds(mix, outer, deep)


def test_what_an_honest_host_says_is_told_as_it_said_it() -> None:
    assert {**facts().describe(), "root": "", "root_problem": ""} == {**FACTS, "root": "", "root_problem": ""}
    gpu = {"name": "H200", "uuid": "GPU-1", "memory": 1 << 37}
    assert facts(devices=[gpu], env={"OMP_NUM_THREADS": "4"}).describe()["devices"] == [gpu]
    assert checked().describe() == CHECKED
    nowhere = {"place": "", "preferred": "/h/s", "problem": "read-only"}
    assert checked(runs=nowhere, memory={}).describe() == {**CHECKED, "runs": nowhere, "memory": {}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpus": "many"}, "cpus: expected a whole number from 1, found 'many'"),
        ({"cpus": 0}, "cpus: expected a whole number from 1, found 0"),
        ({"cpus": True}, "cpus: expected a whole number from 1, found True"),
        ({"python_version": [3, 11]}, "python_version: expected 3 items, found [3, 11]"),
        ({"python_version": "3.11"}, "python_version: expected a list of at most 3, found '3.11'"),
        ({"interfaces": [["lo"]]}, "interfaces.item: expected 2 items, found ['lo']"),
        ({"interfaces": [["lo", "here"]]}, "interfaces: expected an IP address, found 'here'"),
        ({"home": "/a\0b"}, "home: expected text, found '/a\\x00b'"),
        ({"home": "\ud800"}, "home: expected text, found '\\ud800'"),
        ({"device_kind": "a/b"}, "device_kind: expected a word such as gpu, found 'a/b'"),
        ({"devices": [{"memory": -1}]}, "devices.item.memory: expected a whole number from 0, found -1"),
        ({"lost_devices": [[0]]}, "lost_devices.item: expected 2 items, found [0]"),
        ({"lost_devices": [[3, "lost"]]}, "lost_devices: expected each once, below 1, found [3]"),
        ({"lost_devices": [[0, "a"], [0, "b"]]}, "lost_devices: expected each once, below 2, found [0, 0]"),
        ({"is_device_doubtful": 1}, "is_device_doubtful: expected true or false, found 1"),
        ({"time": math.nan}, "time: expected a number, found nan"),
        ({"monotonic": 1e300}, "monotonic: expected a number, found 1e+300"),
        ({"env": {"A": 7}}, "env.A: expected text, found 7"),
        ({"env": {"A=B": "1"}}, "env: expected names of variables, found ['A=B']"),
    ],
)
def test_a_fact_that_can_not_be_is_told_with_its_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Nonsense) as caught:
        facts(**changes)
    assert str(caught.value) == words


def test_a_fact_that_is_missing_is_told_with_its_name() -> None:
    with pytest.raises(Nonsense, match="cpus: expected a whole number from 1, found none"):
        HostFacts.read({name: value for name, value in FACTS.items() if name != "cpus"})
    with pytest.raises(Nonsense, match="it: expected an object, found 7"):
        HostFacts.read(7)


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(changed({**FACTS, **AILING}), changed(CHECKED))
def test_whatever_a_host_says_of_itself_is_refused_in_words_or_harmless(said: Any, more_said: Any) -> None:
    try:
        known = HostFacts.read(said)
        more = CheckupFacts.read(more_said)
    except Nonsense:
        return
    json.dumps({**known.describe(), **more.describe()}, allow_nan=False)
    view = survey.HostView("h1", "h1", None, None, None, None, known)
    survey.candidate_addresses([view])
    survey.share_of(view, None)
    found = checkup.examine(view, more, checkup.Clock(0.0, 0.1))
    one = Examined("h1", known, more, checkup.Clock(0.0, 0.1), "10.0.0.1", "eth0", tuple(found))
    for line in [*table([one]), *finding_lines([one])]:
        assert line.isprintable()
    json.dumps(document([one]), allow_nan=False)
