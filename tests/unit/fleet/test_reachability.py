"""Who tries whom, and whose fault it is."""

from collections import Counter

import pytest

from mnspawn.core.reachability import MAX_PEERS, FailedProbe, Fault, attribute, choose, peers_of

WHY = "no answer within 3 s"


@pytest.mark.parametrize("count", [1, 2, 8, 65])
def test_while_there_are_few_everybody_tries_everybody(count: int) -> None:
    assert [peers_of(own, count) for own in range(count)] == [
        [other for other in range(count) if other != own] for own in range(count)
    ]


@pytest.mark.parametrize("count", [66, 100, 500, 1001])
def test_beyond_everybody_tries_some_and_is_tried_by_as_many(count: int) -> None:
    tried: Counter[int] = Counter()
    for own in range(count):
        peers = peers_of(own, count)
        assert {0, (own + 1) % count, (own - 1) % count} - {own} <= set(peers)
        assert own not in peers
        assert len(peers) <= MAX_PEERS + 1
        tried.update(peers)
    assert min(tried.values()) >= MAX_PEERS - 4
    assert max(count for host, count in tried.items() if host) <= MAX_PEERS


def both_ways(host: int, others: list[int]) -> list[FailedProbe]:
    return [miss for other in others for miss in (FailedProbe(host, other, WHY), FailedProbe(other, host, WHY))]


def test_a_host_that_is_cut_off_is_at_fault_alone() -> None:
    faults = attribute(both_ways(2, [0, 1, 3]))
    assert [fault.host for fault in faults] == [2]
    assert len(faults[0].unreached_by) == len(faults[0].not_reaching) == 3


def test_a_host_that_lets_nobody_in_is_told_from_one_that_gets_nowhere() -> None:
    assert attribute([FailedProbe(0, 2, WHY), FailedProbe(1, 2, WHY)]) == [
        Fault(2, (FailedProbe(0, 2, WHY), FailedProbe(1, 2, WHY)), ())
    ]
    assert attribute([FailedProbe(2, 0, WHY), FailedProbe(2, 1, WHY)]) == [
        Fault(2, (), (FailedProbe(2, 0, WHY), FailedProbe(2, 1, WHY)))
    ]


def test_of_two_hosts_that_do_not_reach_each_other_the_later_one_is_named() -> None:
    assert [fault.host for fault in attribute(both_ways(0, [1]))] == [1]
    assert [fault.host for fault in attribute([FailedProbe(1, 0, WHY)])] == [0]


def test_two_faults_are_two() -> None:
    misses = {*both_ways(1, [0, 2, 3, 4, 5]), *both_ways(4, [0, 1, 2, 3, 5])}
    assert [fault.host for fault in attribute(sorted(misses, key=lambda m: (m.prober, m.target)))] == [1, 4]
    assert attribute([]) == []


def test_the_first_address_that_all_reach_is_taken() -> None:
    answers = {0: {("a", 1): WHY}, 1: {}}
    assert choose(["a", "b"], (1, 2), answers) == ("b", {})
    assert choose(["b", "a"], (1, 2), answers) == ("b", {})


def test_a_port_that_is_not_reached_is_named() -> None:
    answers = {0: {("a", 2): WHY}, 1: {("a", 1): "no route", ("a", 2): "no route"}}
    assert choose(["a"], (1, 2), answers) == ("a", {0: f"{WHY} at port 2", 1: "no route"})
