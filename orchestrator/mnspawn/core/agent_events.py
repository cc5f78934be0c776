"""What an agent says, checked and on our clock: the events of a session. Pure."""

from dataclasses import dataclass, field

from mnspawn.report import RankEnd

from .facts import HostFacts


@dataclass(frozen=True, slots=True)
class Hello:
    facts: HostFacts
    is_cached: bool


@dataclass(frozen=True, slots=True)
class Need:
    blobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    ports: tuple[int, ...]
    extra_ports: tuple[int, ...]
    run_dir: str
    workdir: str
    python: str
    files: tuple[str, ...]
    reach: dict[str, str]  # address -> problem, "" when it answered
    at: float = field(default=0.0, compare=False)  # on our clock


@dataclass(frozen=True, slots=True)
class Refused:
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    rank: int
    pid: int
    at: float  # on our clock


@dataclass(frozen=True, slots=True)
class NotStarted:
    rank: int
    at: float
    error: str


@dataclass(frozen=True, slots=True)
class Output:
    rank: int
    stream: int
    offset: int
    chunk: bytes = field(repr=False)
    time: float  # seconds since the epoch on the host


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that will never come."""

    rank: int
    stream: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Exited:
    rank: int
    at: float  # on our clock
    end: RankEnd


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything that a rank wrote before it ended has been passed on."""

    exited: Exited


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing of the pod is left on the host but `leftovers`, each alive for one of `reasons`."""

    leftovers: tuple[int, ...]
    swept: int
    at: float = field(default=0.0, compare=False)  # on our clock
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Complete:
    """Done, and every byte of every stream has been passed on."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody on the host asked to stop the run; `is_orphaned`: the agent itself did, without a link for too long."""

    reason: str
    grace: float
    is_orphaned: bool = False


@dataclass(frozen=True, slots=True)
class LetGo:
    """Somebody asks us to detach from the run, which continues."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A watcher has sent everything that there is (for now, or for good)."""


@dataclass(frozen=True, slots=True)
class AgentGone:
    """A watcher found that the pod's agent died."""

    reason: str
    leftovers: tuple[int, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileOpened:
    """From `offset` on, the output of `number` is the content of a file from its byte `at` on."""

    number: int
    path: str
    inode: int
    at: int
    offset: int


@dataclass(frozen=True, slots=True)
class Remark:
    text: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    kind: str  # eof, silence, garbage; nonsense: no link to this agent is worth having any more
    detail: str
    last_heard: float


SessionEvent = (
    Hello | Need | Prepared | Refused | Started | NotStarted | Output | Gap | Exited | Drained | Done | Complete
    | StopAsked | LetGo | CaughtUp | AgentGone | FileOpened | Remark | LinkLost
)  # fmt: skip
