"""Where a run goes: the hosts of the request, or a sandbox, and how each is dialled."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mnspawn.errors import HostError, UsageError
from mnspawn.system import open_files
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport import create
from mnspawn.transport.base import Connection, SshOptions, Target, Transport
from mnspawn.transport.config.route import Router
from mnspawn_inventory import Host

from .dial import dial, look_up

# Open files of one host, as measured; openssh has pipes, a log and a pidfd for each of two processes.
FILES = {"asyncssh": 1, "paramiko": 3, "openssh": 10, "local": 5}
_RESERVE = 16  # for what libraries open now and then: name servers, an agent's socket, a file


@dataclass(frozen=True, slots=True)
class Reached:
    """The hosts of a run with their transports; one transport object serves all hosts that use it."""

    hosts: tuple[Host, ...]
    targets: tuple[Target, ...]
    transports: tuple[Transport, ...]

    async def connect(self, index: int) -> Connection:
        """One attempt to connect to one host. Raises HostError."""
        return await self.transports[index].connect(self.targets[index])

    def dial(self, connect_timeout: float) -> AsyncIterator[tuple[int, Connection | HostError]]:
        """Dial every host at once; yields each index once, as its host answers."""
        return dial(self.transports, self.targets, connect_timeout=connect_timeout)


@contextlib.asynccontextmanager
async def reach_place(
    hosts: tuple[Host, ...], sandbox: int, transport: str, options: SshOptions
) -> AsyncIterator[Reached]:
    """The hosts, or `sandbox` throw-away ones where that is not 0, which end with the context."""
    if not sandbox:
        async with reach_hosts(hosts, transport, options) as reached:
            yield reached
        return
    from mnspawn.sandbox.sandbox import Sandbox

    async with Sandbox(sandbox, connect_timeout=options.connect_timeout) as place:
        hosts = tuple(Host(name=target.name) for target in place.targets)
        async with reach_hosts(hosts, transport, place.options, place.targets) as reached:
            yield reached


def check_room(transports: Sequence[str]) -> None:
    """Return when this process may open as many files as hosts over these transports need.

    Raises:
        UsageError: it may not.
    """
    count, over = len(transports), ", ".join(sorted(set(transports)))
    hosts = f"{count} host{'' if count == 1 else 's'}"
    open_files.check_room(_RESERVE + sum(FILES.get(name, 0) for name in transports), f"{hosts} over {over}")


@contextlib.asynccontextmanager
async def reach_hosts(
    hosts: tuple[Host, ...], transport: str, options: SshOptions, targets: tuple[Target, ...] | None = None
) -> AsyncIterator[Reached]:
    """The hosts with a transport object each; they are closed when the context ends.

    Args:
        transport: for hosts whose inventory names none.

    Raises:
        UsageError: a setting, an inventory or ssh_config can't be used; nobody is contacted.
    """
    if not hosts:
        raise UsageError("expected at least one host, found none", place="--hosts")
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(open_files.raised())
        check_room([host.transport or transport for host in hosts])
        made: dict[str, Transport] = {}
        for name in {host.transport or transport for host in hosts}:
            made[name] = create(name, options)
            stack.push_async_callback(made[name].close)
        chosen = tuple(made[host.transport or transport] for host in hosts)
        targets = targets or tuple(target_of(host) for host in hosts)
        await look_up(chosen, targets)
        await in_daemon_thread(partial(_check_apart, targets, options))
        yield Reached(hosts, targets, chosen)


def _check_apart(targets: Sequence[Target], options: SshOptions) -> None:
    """Return when no two ways of writing one name, `h` and `me@h`, come out as the same account.

    Raises:
        UsageError: two do.
    """
    counted = Counter(target.ssh_name for target in targets)
    if len(counted) == len(targets):
        return
    router = Router(options)
    found: dict[tuple[str, str, str, int], str] = {}
    try:
        for target in targets:
            if counted[target.ssh_name] > 1:
                with contextlib.suppress(HostError):  # reported when it is dialled
                    hop = router.hop(target)
                    key = (target.ssh_name, hop.user, hop.address, hop.port)
                    if (other := found.setdefault(key, target.name)) != target.name:
                        where = f"{hop.user}@{hop.address} port {hop.port}"
                        raise UsageError(f"hosts {other!r} and {target.name!r} are the same: {where}", place="--hosts")
    finally:
        router.close()


def target_of(host: Host) -> Target:
    """How SSH reaches a host of the inventory."""
    identity = Path(host.identity).expanduser() if host.identity else None
    way = host.jump, host.proxy_command
    return Target(host.name, host.address, host.user, host.port, identity, *way, alias=host.ssh_name)
