"""A rank that failed on a full disk is told apart from one that failed by itself."""

from mnspawn.cli.wording.run import summary
from mnspawn.report import HostOutcome, RankOutcome, RunReport


def report(is_disk_full: bool) -> RunReport:
    rank = RankOutcome(1, 0, "b", 42, 1, 2.0, ended_at=2.0, is_disk_full=is_disk_full)
    return RunReport("r1", 1, "rank 1 on b: exit status 1", 2.0, rank, (rank,), (HostOutcome("b", None, True),))


def test_a_full_disk_is_named_beside_the_failure() -> None:
    assert "  the disk of b that takes its output was full: what it wrote last can be lost" in summary(report(True))


def test_no_word_of_the_disk_where_it_had_room() -> None:
    assert not any("disk" in line for line in summary(report(False)))
