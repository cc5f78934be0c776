"""What the machine of a run notes of its hosts and ranks, for the report. Pure."""

from dataclasses import dataclass, field

from mnspawn.report import HostOutcome, RankEnd, RankOutcome


@dataclass(slots=True)
class HostEntry:
    name: str
    ranks: tuple[int, ...] = ()
    running: set[int] = field(default_factory=set)  # ranks of which no end is known
    is_away: bool = False  # its link is lost and may come back
    is_done: bool = False  # its agent proved that nothing is left
    lost: str | None = None
    is_confirmed: bool = False
    leftovers: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    swept: int = 0
    phases: dict[str, float] = field(default_factory=dict)  # when they were reached

    def outcome(self, began: float, has_started: bool) -> HostOutcome:
        """Return the host's outcome for the report; the run began at `began`."""
        is_confirmed = self.is_confirmed or not self.ranks or not has_started
        phases = {name: round(at - began, 3) for name, at in self.phases.items()}
        return HostOutcome(self.name, self.lost, is_confirmed, self.leftovers, self.swept, phases, self.reasons)


@dataclass(slots=True)
class RankEntry:
    rank: int
    local_rank: int
    host: int
    end: RankEnd = field(default_factory=RankEnd)
    ended_at: float | None = None

    def outcome(self, host: str, began: float) -> RankOutcome:
        """Return the rank's outcome for the report; the ranks were started at `began`."""
        ended = None if self.ended_at is None else self.ended_at - began
        return RankOutcome.of(self.end, rank=self.rank, local_rank=self.local_rank, host=host, ended_at=ended)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the run ends badly, when it is no rank's fault."""

    at: float
    exit_status: int
    reason: str
