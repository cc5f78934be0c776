"""Fetches the keys of many hosts and compares them with known_hosts. Asks nobody, prints nothing."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from mnspawn.engine.link.dial import PER_SERVER, WINDOW
from mnspawn.engine.link.sites import check_room, target_of
from mnspawn.errors import HostError
from mnspawn.system import open_files
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport.base import SshOptions
from mnspawn.transport.trust import offers
from mnspawn.transport.trust.offers import Offer
from mnspawn_inventory import Host


async def fetch_keys(hosts: Sequence[Host], ssh: SshOptions) -> list[Offer | HostError]:
    """Return the keys that each host offers, in order, or why it offers none. Hosts behind one server take turns."""
    with open_files.raised():
        check_room(["asyncssh"] * min(len(hosts), WINDOW))
        return await _fetch_all(hosts, ssh)


async def _fetch_all(hosts: Sequence[Host], ssh: SshOptions) -> list[Offer | HostError]:
    from mnspawn.transport.asyncssh.transport import AsyncsshTransport

    transport = AsyncsshTransport(ssh)  # keys are keys: whichever transport is used later
    found: dict[int, Offer | HostError] = {}
    window = asyncio.Semaphore(WINDOW)
    servers: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PER_SERVER))

    async def one(index: int) -> None:
        try:
            async with window:
                # not its endpoint: known_hosts and key files may be broken
                hop = await in_daemon_thread(partial(transport.hop, target_of(hosts[index])))
                async with servers[hop.server]:
                    shown = await transport.host_keys(target_of(hosts[index]))
                found[index] = offers.compare(hop, shown)
        except HostError as exc:
            found[index] = exc

    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(hosts)):
                group.create_task(one(index), name=f"keys of {hosts[index].name}")
    finally:
        await transport.close()
    return [found[index] for index in range(len(hosts))]
