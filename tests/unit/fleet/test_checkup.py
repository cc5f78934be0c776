"""What a host says of itself becomes findings, each with what to do."""

from collections.abc import Container
from typing import Any

import pytest

from mnspawn import errors
from mnspawn.core.checkup import CHECKS, CLOCK_LIMIT, Clock, Finding, clock_of, examine, refusal
from mnspawn.core.survey import HostView
from tests.unit import host_facts


def findings(clock: Clock | None = None, devices: tuple[int, ...] | None = None, **facts: Any) -> list[Finding]:
    view = HostView("h1", "h1", None, None, None, devices, host_facts.facts(**_only(host_facts.FACTS, facts)))
    return examine(view, host_facts.checked(**_only(host_facts.CHECKED, facts)), clock)


def _only(names: Container[str], facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in names}


def test_a_good_host_has_none() -> None:
    assert findings(Clock(0.9, 0.1)) == []


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        ("disk", {"runs": {**host_facts.CHECKED["runs"], "free": 1 << 20}}),
        ("disk", {"runs": {**host_facts.CHECKED["runs"], "free_files": 3}}),
        ("folder", {"runs": {"place": "", "preferred": "/h/s", "problem": "/h/s: read-only"}}),
        ("limits", {"limits": {**host_facts.CHECKED["limits"], "nofile": [256, 4096]}}),
        ("limits", {"rdma": ["mlx5_0"]}),
        ("logind", {"logind": {"kills": True, "place": "/etc/systemd/logind.conf:3", "user": "u"}}),
        ("name", {"own_name": {"name": "h1", "addresses": [], "problem": "unknown"}}),
        ("devices", {"device_problem": "NVML: driver/library version mismatch"}),
        ("devices", {"devices": (0,)}),
    ],
)
def test_each_fault_is_one_finding(check: str, facts: dict[str, Any]) -> None:
    (found,) = findings(**facts)
    assert (found.host, found.check, found.is_note) == ("h1", check, False)
    assert found.hint
    assert check in CHECKS


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        ("name", {"own_name": {"name": "h1", "addresses": ["127.0.1.1", "::1"], "problem": ""}}),
        ("folder", {"runs": {**host_facts.CHECKED["runs"], "place": "/var/tmp/m", "problem": "Read-only file system"}}),
        ("folder", {"cache": {**host_facts.CHECKED["cache"], "place": ""}}),
        ("folder", {"cache": {**host_facts.CHECKED["cache"], "place": "/var/tmp/m"}}),
    ],
)
def test_what_runs_get_around_is_a_note(check: str, facts: dict[str, Any]) -> None:
    (found,) = findings(**facts)
    assert (found.check, found.is_note) == (check, True)


def test_no_limit_is_no_finding() -> None:
    assert findings(limits={"nofile": [-1, -1], "memlock": [-1, -1]}, rdma=["mlx5_0"]) == []


def test_loopback_is_a_good_name_where_all_hosts_are_one_machine() -> None:
    own_name = {"name": "h1", "addresses": ["127.0.0.1"], "problem": ""}
    view = HostView("h1", "h1", None, None, None, None, host_facts.facts())
    assert examine(view, host_facts.checked(own_name=own_name), None, is_shared=True) == []


@pytest.mark.parametrize(
    ("clock", "is_wrong"),
    [(Clock(1.5, 0.1), True), (Clock(-1.5, 0.1), True), (Clock(1.05, 0.1), False), (Clock(60.0, 70.0), False)],
)
def test_a_clock_is_wrong_when_it_is_so_whatever_the_network_did(clock: Clock, is_wrong: bool) -> None:
    assert CLOCK_LIMIT == 1.0
    assert bool(findings(clock)) is is_wrong


def test_the_quickest_answer_tells_the_clock() -> None:
    samples = [(10.0, 10.4, 15.0), (11.0, 11.02, 16.01), (12.0, 12.3, 17.9)]
    clock = clock_of(samples)
    assert clock.offset == pytest.approx(5.0)
    assert clock.uncertainty == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (errors.ConnectionRefused, "reach"),
        (errors.NameUnknown, "reach"),
        (errors.HostKeyChanged, "login"),
        (errors.PassphraseNeeded, "login"),
        (errors.PythonTooOld, "python"),
        (errors.ShellRefused, "agent"),
        (errors.NoCommonAlgorithm, "reach"),
    ],
)
def test_a_host_that_can_not_be_asked_has_one_finding(kind: type[errors.HostError], check: str) -> None:
    found = refusal("h1", kind("no", host="h1"))
    assert (found.check, found.message) == (check, "no")
    assert found.hint


@pytest.mark.parametrize(
    ("kind", "check", "problem"),
    [
        ("folder", "folder", "run folder can't be made: [Errno 122] Disk quota exceeded"),
        ("processes", "limits", "ranks could not be started: fork: Resource temporarily unavailable"),
        ("ports", "network", "no free port from 20000 to 32767"),
    ],
)
def test_what_a_rehearsal_failed_for_is_a_finding_in_its_words(kind: str, check: str, problem: str) -> None:
    (found,) = findings(rehearsal={kind: problem})
    assert (found.check, found.message, found.is_note) == (check, problem, False)
