"""From what ranks sent and how they ended to the exception that the caller gets. No I/O but unpickling."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from mnspawn.errors import ExitStatus, HostLost, MnspawnError
from mnspawn.report import RankOutcome, RunReport
from mnspawn.spawning.errors import ProcessExitedException, ProcessRaisedException, RunTimedOut

from . import loading
from .records import Raised

BANNER = "-" * 46


@dataclass(frozen=True, slots=True)
class Dialect:
    """In what Paddle's spawn and torch's differ.

    Attributes:
        raised, exited: texts of errors, which people's programs match.
        returns_results: ranks send what the function returned.
        shares_tensors: ranks on this machine share the caller's tensors, whatever memory these are in.
        chooses_devices: each rank gets devices of its own.
        grace: seconds between SIGTERM and SIGKILL, unless settings give another time.
    """

    raised: Callable[[int, str], str]
    exited: Callable[[int, str], str]
    returns_results: bool
    shares_tensors: bool
    chooses_devices: bool
    grace: float | None


PADDLE = Dialect(
    lambda rank, trace: f"\n\n{BANNER}\nProcess {rank} terminated with the following error:\n{BANNER}\n\n{trace}",
    lambda rank, how: f"Process {rank} terminated with {how}.",
    returns_results=True,
    shares_tensors=False,
    chooses_devices=True,
    grace=None,
)
TORCH = Dialect(
    lambda rank, trace: f"\n\n-- Process {rank} terminated with the following error:\n{trace}",
    lambda rank, how: f"process {rank} terminated with {how}",
    returns_results=False,
    shares_tensors=True,
    chooses_devices=False,
    grace=30.0,
)


class RemoteError(Exception):
    """Takes the place of an exception that can't be read here in a chain of causes."""


def exited(dialect: Dialect, rank: RankOutcome, status: int | None) -> ProcessExitedException:
    """The error of a rank that ended without a result and without a traceback.

    Args:
        status: of SystemExit; None if the rank ended in another way.
    """
    code, name = rank.code if rank.code is not None else (status or 0), None
    if rank.error is not None:
        code, how = 127, f"an error before it ran: {rank.error}"
    elif code < 0:
        name = _signal_name(-code)
        how = f"signal {name}"
    else:
        how = f"exit code {code}" + ("" if code else " before it returned a result")
    error = ProcessExitedException(dialect.exited(rank.rank, how), rank.rank, rank.pid or 0, code, name)
    return error.at(rank.host, rank.local_rank)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"<Unknown signal {number}>"  # as torch says it


def raised(dialect: Dialect, rank: RankOutcome, record: Raised, chain: IO[bytes] | None) -> ProcessRaisedException:
    """The error of a rank whose function raised.

    Args:
        chain: the pickled exceptions; None if there are none.
    """
    error = ProcessRaisedException(dialect.raised(rank.rank, record.traceback), rank.rank, rank.pid or 0)
    error.type_name, error.text, error.traceback = record.type_name, record.text, record.traceback
    error.at(rank.host, rank.local_rank)
    if chain is not None:
        error.__cause__ = _rebuild(chain)
    return error


def _rebuild(chain: IO[bytes]) -> BaseException | None:
    """The exception itself with its causes; None if it can't be read here."""
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


def first_of(ranks: Sequence[RankOutcome]) -> RankOutcome:
    """The rank that ended first in time, on whatever host."""
    return min(ranks, key=lambda one: (float("inf") if one.ended_at is None else one.ended_at, one.rank))
