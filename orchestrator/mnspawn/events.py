"""What listeners see of a run, as it happens. Pure.

Order is part of the contract: per rank Started before Output before Exited; per stream bytes in order, each byte once.
`time` is wall-clock seconds since the epoch, a label for people, never an operand.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Stream(Enum):
    """A worker's output streams, by their number on the wire."""

    STDOUT = 1
    STDERR = 2
    RESULT = 3


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    time: float


@dataclass(frozen=True, slots=True)
class HostConnected(Event):
    """The agent of a host said hello. `facts` is what the host says of itself."""

    host: str
    facts: dict[str, Any]
    cached: bool  # the agent's archive was there already


@dataclass(frozen=True, slots=True)
class HostFailed(Event):
    """A host could not be used (before the start)."""

    host: str
    message: str


@dataclass(frozen=True, slots=True)
class RunStarting(Event):
    """Every host prepared; workers start now. `plan` is LaunchPlan.describe()."""

    run: str
    world_size: int
    plan: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    host: str
    rank: int
    local_rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerOutput(Event):
    """Bytes of one stream; `offset` counts from the worker's first byte."""

    host: str
    rank: int
    stream: Stream
    offset: int
    chunk: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkerExited(Event):
    """`code` as Popen.returncode: negative for a signal. `stopped`: our own stop caused it, never blamed.
    `raised`: the exception that torch's `record` has noted."""

    host: str
    rank: int
    local_rank: int
    pid: int
    code: int
    seconds: float  # it ran
    stopped: bool
    killed: bool  # our KILL was sent before its end
    raised: str | None = None


@dataclass(frozen=True, slots=True)
class OutputLost(Event):
    """Bytes that can't be had any more: counted and shown, never silent."""

    host: str
    rank: int
    stream: Stream
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class RunStopping(Event):
    """A stop begins. `reason` is one line; `kill` when there is no grace."""

    reason: str
    kill: bool


@dataclass(frozen=True, slots=True)
class HostLinkLost(Event):
    """The link to a host broke; it is redialled until `orphan_grace` is over."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostLinkBack(Event):
    host: str
    seconds: float  # without a link


@dataclass(frozen=True, slots=True)
class HostLost(Event):
    """A host counts as failed: no link came back in time, or its agent died."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostStopped(Event):
    """Nothing of the run is left on the host; or `leftovers` lists pids that would not die, for `reasons`."""

    host: str
    leftovers: tuple[int, ...]
    swept: int  # processes outside the workers' groups that had to be ended
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """One line for people that is neither output nor an error."""

    host: str | None
    text: str


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The last event. `report` is RunReport.describe()."""

    run: str
    exit_status: int
    report: dict[str, Any]
