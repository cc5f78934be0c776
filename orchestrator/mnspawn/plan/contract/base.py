"""What a contract is, and what it may know of a run when it decides on variables. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mnspawn.plan.layout import Layout, Pod, Worker

# Linux limits one "NAME=value" to 128 KiB, and one argv string too (MAX_ARG_STRLEN, execve(2)). Lists that grow with
# the cluster move to a file well before; the number is that of Paddle's own launcher (PADDLE_ENV_LIMIT_LEN).
LONGEST_LIST = 48_000


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run as contracts see it. The joined texts are made once, not once per pod.

    Attributes:
        run_dirs: the run directory on each host, in the order of the pods.
        endpoints: "address:port,..." of every rank, in rank order.
        hosts: "name,..." of every host, in the order of the pods.
        given: on each host, the variables that the user has given (-x, inventory), in the order of the pods.
        words: the program and its arguments.
        is_one_each: there are several hosts, each with one rank.
        attempt: 0 for the first start; counts restarts.
    """

    run: str
    layout: Layout
    run_dirs: tuple[str, ...]
    world_size: int
    endpoints: str
    hosts: str
    given: tuple[Mapping[str, str], ...] = field(repr=False)
    words: tuple[str, ...] = field(repr=False)
    is_one_each: bool
    attempt: int = 0
    max_restarts: int = 0

    def path(self, pod: Pod, name: str) -> str:
        """Return the path of a file in the pod's run directory."""
        return f"{self.run_dirs[pod.node_rank].rstrip('/')}/{name}"


def facts_of(
    run: str,
    layout: Layout,
    run_dirs: tuple[str, ...],
    given: tuple[Mapping[str, str], ...],
    words: tuple[str, ...],
    *,
    attempt: int = 0,
    max_restarts: int = 0,
) -> RunFacts:
    """Return the facts of a run whose layout is known."""
    return RunFacts(
        run=run,
        layout=layout,
        run_dirs=run_dirs,
        world_size=layout.world_size,
        endpoints=",".join(layout.endpoints),
        hosts=",".join(pod.host for pod in layout.pods),
        given=given,
        words=words,
        is_one_each=len(layout.pods) > 1 and all(len(pod.workers) == 1 for pod in layout.pods),
        attempt=attempt,
        max_restarts=max_restarts,
    )


@dataclass(frozen=True, slots=True)
class Share:
    """What all workers of one pod have in common.

    Attributes:
        env: variables that say who is who: they win over everything else.
        defaults: variables that a user may know better: they lose against the host's own environment, the
            inventory's variables and the given ones.
        files: (name, content) of files that belong into the run directory.
    """

    env: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()


def _nothing_shared(facts: RunFacts, pod: Pod) -> Share:
    return Share()


def _nothing_own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Contract:
    """What one framework expects to find in its workers' environment.

    Attributes:
        shared: what is the same for all workers of a pod.
        own: what differs from rank to rank.
        watched: variables whose value in a host's own environment wins over this contract's default. The agent
            reports those that mnspawn_agent/posix/host/facts.py lists.
        scrubbed: variables that an outer launcher may have left in a host's environment. They are removed on every
            host, whatever contracts are chosen; "*" ends a prefix.
    """

    name: str
    shared: Callable[[RunFacts, Pod], Share] = _nothing_shared
    own: Callable[[RunFacts, Pod, Worker], dict[str, str]] = _nothing_own
    watched: tuple[str, ...] = ()
    scrubbed: tuple[str, ...] = ()
