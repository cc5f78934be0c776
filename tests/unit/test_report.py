"""The values of a report as other programs meet them: by position, in pickles and as JSON."""

import pickle
from dataclasses import asdict, fields

from mnspawn.report import RankEnd, RankOutcome, RunReport

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
