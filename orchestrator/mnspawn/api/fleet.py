"""Checks hosts, accepts their keys, runs one command on each. Runs of a program are in `mnspawn.api.runs`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mnspawn.core.checkup import CHECKS, Finding
from mnspawn.core.facts import CheckupFacts, Device, HostFacts
from mnspawn.core.remote_command import command_line
from mnspawn.engine.fleet.checkup import Checkup, Examined
from mnspawn.engine.fleet.effective import Effective, effective
from mnspawn.engine.fleet.execute import Execution, OnOutput, Outcome
from mnspawn.engine.fleet.trust import fetch_keys
from mnspawn.engine.link.sites import reach_place
from mnspawn.engine.request import RunRequest
from mnspawn.transport.base import SshOptions
from mnspawn.transport.trust.offers import Offer, accept, changed
from mnspawn_inventory import Host

__all__ = [
    "CHECKS",
    "CheckupFacts",
    "Device",
    "Effective",
    "Examined",
    "Finding",
    "HostFacts",
    "Offer",
    "OnOutput",
    "Outcome",
    "Place",
    "accept",
    "changed",
    "check",
    "command_line",
    "effective",
    "execute",
    "fetch_keys",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Hosts and how they are reached.

    Attributes:
        sandbox: use so many throw-away hosts on this machine instead, unless 0.
        transport: for hosts whose inventory names none.
    """

    hosts: tuple[Host, ...] = ()
    sandbox: int = 0
    transport: str = "asyncssh"
    ssh: SshOptions = field(default_factory=SshOptions)


async def check(
    place: Place,
    *,
    network: str | None = None,
    port: int | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
    ranks: RunRequest | None = None,
) -> list[Examined]:
    """Check every host, all at once.

    Args:
        network: CIDR or interface on which hosts shall reach each other; None for that of a run.
        port: the first of the workers' ports, to try between hosts.
        on_progress: takes the number of hosts checked so far.
        ranks: a run's request, whose prelude, python, workdir and env are checked, too.

    Returns:
        Each host with its facts and findings; why a host can't be checked is a finding, too.
    """
    async with reach_place(place.hosts, place.sandbox, place.transport, place.ssh) as reached:
        timeout = place.ssh.connect_timeout
        checkup = Checkup(reached, timeout, network=network, port=port, on_progress=on_progress, ranks=ranks)
        return await checkup.execute()


async def execute(
    place: Place,
    command: str,
    *,
    timeout: float | None = None,
    is_sequential: bool = False,
    on_output: Callable[[list[str]], OnOutput] | None = None,
    on_end: Callable[[Outcome], Awaitable[None]] | None = None,
) -> tuple[list[Outcome], int | None]:
    """Run one command line on every host, errors included, and the signal that ended it early, if one did.

    Args:
        command: as `command_line` makes it.
        on_output: makes, from the hosts' names, what takes output as it comes; then none is kept.
    """
    async with reach_place(place.hosts, place.sandbox, place.transport, place.ssh) as reached:
        execution = Execution(
            reached,
            command,
            place.ssh.connect_timeout,
            timeout=timeout,
            is_sequential=is_sequential,
            on_output=None if on_output is None else on_output([host.name for host in reached.hosts]),
            on_end=on_end,
        )
        outcomes = await execution.execute()
        return outcomes, execution.signal
