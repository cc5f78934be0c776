"""What a run is asked for, every value decided; who listens to it; how long everything may take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mnspawn.core.patience import PROOF_LIMIT
from mnspawn.core.survey import HostView, Share
from mnspawn.events import Event
from mnspawn.plan.launch_plan import Program
from mnspawn.transport.base import RemoteProcess, SshOptions
from mnspawn_agent.protocol.channel import SILENCE_LIMIT
from mnspawn_agent.protocol.exits import KILL_LIMIT
from mnspawn_inventory import Host


@dataclass(frozen=True, slots=True)
class Limits:
    """How long hosts and their agents may take, in seconds. The defaults suit slow networks and busy hosts.

    Attributes:
        silence: without a byte from a host, after which its link counts as lost, and the other way round.
        retry_first, retry_longest: the first and the longest pause between two tries to get a link back.
        hello, prepared, started: without progress, until an agent says so. It may compare a big script with its own
            copy, but says hello first; a fork server says nothing while it imports what the ranks need, which can come
            from a slow file system.
        output: without progress, until the rest of the output has come.
        proof: after the grace, until an agent proves that nothing is left.
        attach: until a host finds its agent again; over a connection that died unseen it never does.
        answer: until an agent that was found answers; it does nothing that takes longer.
        lost: without a link to a host that others still reach, for whoever is in charge of a run that others started.
        last_words: until a host reports that an agent that was killed is gone.
        detach: until agents acknowledge that they are on their own.
        linger: until agents end once they were told to.
        emergency: after the grace, until hosts confirm a stop that a bug of ours has caused.
        look: between two looks at agents that may be stuck.
    """

    silence: float = field(default_factory=lambda: SILENCE_LIMIT)
    retry_first: float = 0.2
    retry_longest: float = 2.0
    hello: float = 60.0
    prepared: float = 300.0
    started: float = 3600.0
    output: float = PROOF_LIMIT
    proof: float = PROOF_LIMIT
    attach: float = 5.0
    answer: float = 3.0
    lost: float = 20.0
    last_words: float = 5.0
    detach: float = 10.0
    linger: float = 3.0
    emergency: float = 2 * KILL_LIMIT + 5.0
    look: float = 1.0


class Listener(Protocol):
    """Gets a run's events. Called in the loop's thread; must not block."""

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet written out."""
        ...

    def bind(self, wake: Callable[[], None]) -> None:
        """Take a function to call (from any thread) when the backlog has fallen."""
        ...

    def on_event(self, event: Event) -> None: ...

    async def aclose(self) -> None:
        """Return when everything is written out, or can't be."""
        ...


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run, every value decided.

    Attributes:
        hosts: in order; a local sandbox is made of `sandbox` hosts instead when that is not 0.
        nproc: workers per host: a number, "auto", "gpu", "cpu", or None (the host's slots, else "auto").
        contracts: names of `mnspawn.plan.contract.REGISTRY`.
        env: (name, value) pairs given to every worker.
        workdir: folder to work in; None means this one where a host has it, else the home.
        prelude: shell lines that run before each worker, where a host has none of its own.
        start_port: first of the workers' endpoint ports; None means 6070 where free, else any.
        network: data network (CIDR) or interface that addresses are taken from.
        files: (name, content) pairs that go along, once per host, into `<run folder>/code`.
        has_results: workers have a third stream (Stream.RESULT), a file that MNSPAWN_RESULT_FILE names.
        python_version: (major, minor) that the workers' interpreters must have; None for any.
        is_forked: one interpreter per host imports what the function needs and becomes all workers.
        stops_on_failure: False lets the other ranks run on when one fails; whoever controls the run decides.
        keeps_folder: the run's folders stay on the hosts for `logs`.
        agent: gives the agent of the one host, which was started before; None: hosts are sent theirs.
        share: how many workers and which devices each host gets, decided from all hosts' facts; None: by `nproc`.
        for_agents: options that only agents use, by name: messages.OPTIONS.
        name: a label for people.
        registry: folder in which the run is remembered (registry.default_root); None: it is not.
        is_detached: leave when every rank runs; the run goes on.
        grace, timeout, orphan_grace: seconds; timeout None means none.
        ends_with_us: for ranks on this machine that nobody else can reach: they end at once when this process ends.
            The link is a pipe between two processes, so that silence says nothing.
        limits: how long hosts may take; the defaults are right but for tests.
        handle_signals: SIGINT, SIGTERM and SIGHUP stop the run (once), kill it (twice), leave it (three times).
    """

    program: Program
    hosts: tuple[Host, ...] = ()
    sandbox: int = 0
    nproc: int | str | None = None
    contracts: tuple[str, ...] = ("torch", "paddle", "jax-address")
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    keep_proxy: bool = False
    python: str | None = None
    workdir: str | None = None
    prelude: str | None = None
    start_port: int | None = None
    master_port: int | None = None
    network: str | None = None
    grace: float = 10.0
    timeout: float | None = None
    orphan_grace: float = 20.0
    transport: str = "asyncssh"
    ssh: SshOptions = field(default_factory=SshOptions)
    ends_with_us: bool = False
    handle_signals: bool = False
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    has_results: bool = False
    python_version: tuple[int, int] | None = None
    is_forked: bool = False
    stops_on_failure: bool = True
    keeps_folder: bool = True
    agent: Callable[[], RemoteProcess] | None = field(default=None, repr=False)
    share: Callable[[Sequence[HostView]], Sequence[Share]] | None = field(default=None, repr=False)
    for_agents: Mapping[str, object] = field(default_factory=dict)
    name: str | None = None
    is_detached: bool = False
    registry: Path | None = None
    run: str | None = None
    limits: Limits = field(default_factory=Limits)
