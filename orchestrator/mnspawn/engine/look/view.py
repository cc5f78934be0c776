"""What a look at a run that others started is asked for, and what it has seen."""

from dataclasses import dataclass, field

from mnspawn import events as seen
from mnspawn.engine.request import Limits
from mnspawn.errors import ExitStatus, HostError
from mnspawn.report import RunReport


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What of a run is looked at.

    Attributes:
        streams: of every worker; none for those who only want to know how it stands.
        ranks: whose output; None for all.
        is_following: stay until the run ends; else leave when all that is there has been shown.
        tail: begin with the last lines of each stream.
        since: begin with what was written then or later, seconds since the epoch.
        has_times: output carries the time at which the host saw it, also when it is old.
        is_in_charge: a failure of one host or rank stops the others.
        stop: begin by stopping the run with this grace (0.0 kills). A host that nobody reaches within the time for
            connecting counts as lost.
        limits: how long hosts may take.
        handle_signals: in charge, SIGINT and its like stop the run; else they end the looking.
    """

    streams: tuple[seen.Stream, ...] = (seen.Stream.STDOUT, seen.Stream.STDERR)
    ranks: tuple[int, ...] | None = None
    is_following: bool = True
    tail: int | None = None
    since: float | None = None
    has_times: bool = False
    is_in_charge: bool = False
    stop: float | None = None
    handle_signals: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class ViewResult:
    """What was seen.

    Attributes:
        has_ended: the run is over; else the report says how it stands.
        has_left: the user went away before the end.
        errors: hosts that could not be looked at, by name.
    """

    report: RunReport
    has_ended: bool
    has_left: bool
    errors: dict[str, HostError]


def exit_status_of(result: ViewResult) -> int:
    """Return the exit status of a command that followed the run to its end."""
    if result.has_ended:
        return result.report.exit_status
    return ExitStatus.HOST_UNUSABLE if result.errors and not result.has_left else ExitStatus.OK
