"""The values of a report as other programs meet them: by position, in pickles and as JSON."""

import pickle
from dataclasses import asdict, fields

import pytest

from mnspawn.report import HostOutcome, RankEnd, RankOutcome, RunReport

# of 0.1.0, whose pickles hold the values in this order
FIRST_FIELDS = (
    "rank", "local_rank", "host", "pid", "code", "seconds", "stopped", "killed", "ended_at", "tail", "error",
    "is_disk_full", "outlived_term", "raised",
)  # fmt: skip


def test_the_fields_of_a_rank_keep_their_order() -> None:
    assert tuple(field.name for field in fields(RankOutcome))[: len(FIRST_FIELDS)] == FIRST_FIELDS
    rank = RankOutcome(3, 1, "b", 4242, -9, 0.5, False, True, 2.0, ("last words",))
    assert (rank.rank, rank.host, rank.cause) == (3, "b", "signal 9 (SIGKILL)")
    report = RunReport("r", 137, "rank 3 failed", 0.5, rank, (rank,), ())
    assert pickle.loads(pickle.dumps(report)) == report
    assert list(asdict(rank))[:3] == ["rank", "local_rank", "host"]


def test_every_fact_of_an_end_reaches_the_report() -> None:
    end = RankEnd(7, -15, 1.5, True, True, ("x",), "no", True, True, "ValueError")
    assert all(getattr(end, field.name) for field in fields(RankEnd))
    rank = RankOutcome.of(end, rank=1, local_rank=0, host="a", ended_at=3.0)
    assert {field.name: getattr(rank, field.name) for field in fields(RankEnd)} == asdict(end)


FAILED = RankOutcome(1, 0, "b", 42, 1, 2.0, False, False, 2.5, ("bye",))
REPORT = RunReport("1a2b3c4d", 1, "rank 1 failed", 3.0, FAILED, (FAILED,), (HostOutcome("b", None, True, (7,)),))


def test_a_rank_is_matched_by_position() -> None:
    match FAILED:
        case RankOutcome(rank, local_rank, host, pid, code):
            assert (rank, local_rank, host, pid, code) == (1, 0, "b", 42, 1)


def test_a_report_is_read_as_it_was_described_and_what_a_newer_version_adds_is_ignored() -> None:
    described = REPORT.describe()
    assert RunReport.read(described) == REPORT
    for part in (described, described["first_failure"], described["ranks"][0], described["hosts"][0]):
        part["colour"] = "blue"
    assert RunReport.read(described) == REPORT


@pytest.mark.parametrize("field", ["first_failure", "ranks", "hosts"])
def test_what_is_no_report_is_an_error(field: str) -> None:
    with pytest.raises(TypeError):
        RunReport.read({**REPORT.describe(), field: ["b"]})
