"""From what ranks sent and how they ended to the exception that the caller gets. Does no I/O but unpickling."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from mnspawn.errors import ExitStatus, HostLost, MnspawnError
from mnspawn.report import RankOutcome, RunReport
from mnspawn.spawning.errors import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    RunTimedOut,
)

from . import loading
from .records import Raised

BANNER = "-" * 46


@dataclass(frozen=True, slots=True)
class Wording:
    """A dialect's texts, which people's programs match."""

    raised: Callable[[int, str], str]
    exited: Callable[[int, str], str]


PADDLE = Wording(
    lambda rank, trace: f"\n\n{BANNER}\nProcess {rank} terminated with the following error:\n{BANNER}\n\n{trace}",
    lambda rank, how: f"Process {rank} terminated with {how}.",
)
TORCH = Wording(
    lambda rank, trace: f"\n\n-- Process {rank} terminated with the following error:\n{trace}",
    lambda rank, how: f"process {rank} terminated with {how}",
)


class RemoteError(Exception):
    """Stands in a chain of causes for an exception that could not be brought here."""


def unknown_or(code: int) -> str:
    """The name of the signal in a negative exit code, as torch says it."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"<Unknown signal {-code}>"


def exited(wording: Wording, rank: RankOutcome, status: int | None) -> ProcessExitedException:
    """For a rank that ended without a result and without a traceback.

    Args:
        status: of SystemExit, None when it did not end by that.
    """
    pid = rank.pid or 0
    if rank.error is not None:
        text = wording.exited(rank.rank, f"an error before it ran: {rank.error}")
        return ProcessExitedException(text, rank.rank, pid, 127).at(rank.host, rank.local_rank)
    code = rank.code if rank.code is not None else (status or 0)
    if code < 0:
        name = unknown_or(code)
        text = wording.exited(rank.rank, f"signal {name}")
        return ProcessExitedException(text, rank.rank, pid, code, name).at(rank.host, rank.local_rank)
    how = f"exit code {code}" + ("" if code else " before it returned a result")
    return ProcessExitedException(wording.exited(rank.rank, how), rank.rank, pid, code).at(rank.host, rank.local_rank)


def raised(wording: Wording, rank: RankOutcome, said: Raised, chain: IO[bytes] | None) -> ProcessRaisedException:
    """For a rank whose function raised.

    Args:
        chain: the pickled exceptions, None where there are none.
    """
    error = ProcessRaisedException(wording.raised(rank.rank, said.traceback), rank.rank, rank.pid or 0)
    error.type_name, error.text, error.traceback = said.type_name, said.text, said.traceback
    error.at(rank.host, rank.local_rank)
    if chain is not None:
        error.__cause__ = _rebuild(chain)
    return error


def _rebuild(chain: IO[bytes]) -> BaseException | None:
    """The exception itself with its causes; None when it can't be read here."""
    try:
        links: list[dict[str, Any]] = loading.load(chain)
    except Exception:  # noqa: BLE001 - unpickling runs the exceptions' own code; the text is there all the same
        return None
    errors: list[BaseException] = []
    for link in links:
        error = _load(link["pickle"])
        if error is None and not errors:
            return None
        errors.append(error or RemoteError(f"{link['type']}: {link['text']}"))
    for link, error, deeper in zip(links, errors, errors[1:], strict=False):
        if link["is_cause"]:
            error.__cause__ = deeper
        else:
            error.__context__ = deeper
    return errors[0]


def _load(content: bytes | None) -> BaseException | None:
    try:
        error = loading.loads(content) if content is not None else None
    except Exception:  # noqa: BLE001 - as above
        return None
    return error if isinstance(error, BaseException) else None


def of_run(report: RunReport) -> MnspawnError | None:
    """The error of a run that failed without a rank to blame."""
    match report.exit_status:
        case ExitStatus.HOST_LOST:
            lost = next((host.host for host in report.hosts if host.lost is not None), None)
            return HostLost(report.reason, host=None if lost and lost in report.reason else lost)
        case ExitStatus.TIMED_OUT:
            return RunTimedOut(report.reason)
        case _:
            return None


def first_of(failures: list[ProcessException], ended_at: dict[int, float | None]) -> ProcessException:
    """The failure that came first in time, on whatever host."""

    def when(failure: ProcessException) -> tuple[float, int]:
        at = ended_at.get(failure.error_index)
        return (float("inf") if at is None else at, failure.error_index)

    return min(failures, key=when)
