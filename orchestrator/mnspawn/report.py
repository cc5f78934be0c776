"""What became of a run: every rank, every host, the first failure, the exit status. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from mnspawn_agent.protocol.exits import as_shell_status, signal_name

PHASES = ("connected", "ready", "prepared", "started", "ended")  # ready: its agent is up


class _Ended:
    """What follows from how a rank ended. Its fields are those of the classes that inherit from it."""

    __slots__ = ()
    code: int | None
    stopped: bool
    killed: bool
    error: str | None

    @property
    def has_failed(self) -> bool:
        """It ended badly by itself."""
        return not self.stopped and (self.error is not None or self.code not in (0, None))

    @property
    def exit_status(self) -> int:
        """The run's exit status when this rank is to blame; 127, as in shells, when it could not be started."""
        return 127 if self.code is None else as_shell_status(self.code)

    @property
    def cause(self) -> str:
        """In words: exit status 7; signal 9 (SIGKILL, possibly out of memory); could not be started: ..."""
        return cause_of(self.code, self.error, is_ours=self.killed)


@dataclass(frozen=True, slots=True)
class RankEnd(_Ended):
    """How a rank ended, as its agent's message says; the fields are explained in `RankOutcome`."""

    pid: int | None = None
    code: int | None = None
    seconds: float | None = None
    stopped: bool = False
    killed: bool = False
    tail: tuple[str, ...] = ()
    error: str | None = None
    is_disk_full: bool = False
    outlived_term: bool = False
    raised: str | None = None

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> "RankEnd":
        """From an agent's EXITED, which was checked before."""
        return cls(**known_fields(cls, message) | {"tail": tuple(message["tail"])})


@dataclass(frozen=True, slots=True)
class RankOutcome(_Ended):
    """One rank of a run, and how it ended.

    The order of the fields is public: they may be given by position, and pickles of reports depend on it. A new one
    comes last.

    Attributes:
        pid: None when it never started.
        code: as Popen.returncode, None where no news came (host lost, never started).
        seconds: it ran, None when it never started.
        stopped: our own stop ended it, so it is never blamed.
        killed: our KILL was sent before its end.
        ended_at: seconds since START on the controller's clock, by way of the link's clock offset.
        tail: its last lines on stderr.
        error: why it could not be started.
        is_disk_full: the disk that takes its output was full when it ended.
        outlived_term: TERM and the whole grace were not enough.
        raised: the exception that torch's `record` has noted; of torchrun, that of the worker that failed first.
    """

    rank: int
    local_rank: int
    host: str
    pid: int | None = None
    code: int | None = None
    seconds: float | None = None
    stopped: bool = False
    killed: bool = False
    ended_at: float | None = None
    tail: tuple[str, ...] = ()
    error: str | None = None
    is_disk_full: bool = False
    outlived_term: bool = False
    raised: str | None = None

    @classmethod
    def of(cls, end: RankEnd, *, rank: int, local_rank: int, host: str, ended_at: float | None) -> "RankOutcome":
        known = {f.name: getattr(end, f.name) for f in fields(RankEnd)}
        return cls(rank=rank, local_rank=local_rank, host=host, ended_at=ended_at, **known)


def cause_of(code: int | None, error: str | None = None, *, is_ours: bool = False) -> str:
    """Return what ended a process, in words.

    Args:
        code: as Popen.returncode; None for no news.
        error: why it could not be started.
        is_ours: KILL came from us, which needs no explanation.
    """
    if error is not None:
        return f"could not be started: {error}"
    if code is None:
        return "no news of its end"
    if code >= 0:
        return f"exit status {code}"
    name = signal_name(code) or ""
    if name == f"SIG{-code}":  # a real-time signal between the named ones
        return f"signal {-code}"
    return f"signal {-code} ({name}{', possibly out of memory' if name == 'SIGKILL' and not is_ours else ''})"


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """One host's end. `lost` says why it counts as lost; `leftovers` are pids that would not die, for `reasons`;
    `is_confirmed` is False where nobody could say that nothing is left; `phases` has seconds since the run began at
    which the host reached each of PHASES, as far as whoever reports has seen it."""

    host: str
    lost: str | None
    is_confirmed: bool
    leftovers: tuple[int, ...] = ()
    swept: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """The whole end of a run. `reason` is one line; `first_failure` the rank to blame, if a rank is to blame;
    `has_left`: the user did not wait for the end; `hint`: what to do about the first failure, where that is known."""

    run: str
    exit_status: int
    reason: str
    seconds: float
    first_failure: RankOutcome | None
    ranks: tuple[RankOutcome, ...]
    hosts: tuple[HostOutcome, ...]
    has_left: bool = False
    hint: str | None = None

    def describe(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)

    def with_news(self, later: "RunReport") -> "RunReport":
        """With what could be asked later of hosts that were lost. Why the run ended stays as it was."""
        ranks = tuple(
            new if old.code is None and old.error is None else old
            for old, new in zip(self.ranks, later.ranks, strict=True)
        )
        hosts = tuple(
            old if old.is_confirmed else replace(new, lost=old.lost, phases={**new.phases, **old.phases})
            for old, new in zip(self.hosts, later.hosts, strict=True)
        )
        return replace(self, ranks=ranks, hosts=hosts)

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> "RunReport":
        """What `describe` gave, perhaps by way of JSON and by a newer version, whose other fields are ignored.

        Raises:
            TypeError, KeyError: it is no report.
        """
        first = described["first_failure"]
        found = known_fields(cls, described) | {
            "first_failure": _read_rank(first) if first is not None else None,
            "ranks": tuple(_read_rank(rank) for rank in described["ranks"]),
            "hosts": tuple(_read_host(host) for host in described["hosts"]),
        }
        return cls(**found)


def known_fields(kind: type, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a described dataclass that this version knows; raises TypeError: it is no mapping."""
    known = {f.name for f in fields(kind)}
    return {name: value for name, value in {**described}.items() if name in known}


def _read_rank(described: Mapping[str, Any]) -> RankOutcome:
    return RankOutcome(**known_fields(RankOutcome, described) | {"tail": tuple(described["tail"])})


def _read_host(described: Mapping[str, Any]) -> HostOutcome:
    known = known_fields(HostOutcome, described)
    return HostOutcome(**known | {name: tuple(known.get(name) or ()) for name in ("leftovers", "reasons")})
