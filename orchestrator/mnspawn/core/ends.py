"""How a rank ended, in words and as the exit status of its run. No I/O and no clock."""

from mnspawn.report import RankOutcome
from mnspawn_agent.protocol.exits import as_shell_status, signal_name


def status_of(outcome: RankOutcome) -> int:
    """The run's, when this rank is to blame."""
    if outcome.code is None:
        return 127  # could not be started, as a shell says it
    return as_shell_status(outcome.code)


def describe_end(outcome: RankOutcome) -> str:
    """exit status 7; signal 9 (SIGKILL, possibly out of memory); could not be started: ..."""
    if outcome.error is not None:
        return f"could not be started: {outcome.error}"
    if outcome.code is None:
        return "no news of its end"
    name = signal_name(outcome.code)
    if name is None:
        return f"exit status {outcome.code}"
    possibly = ", possibly out of memory" if name == "SIGKILL" and not outcome.killed else ""
    return f"signal {-outcome.code} ({name}{possibly})"
