"""Fetches the keys of many hosts, and writes accepted ones to known_hosts. Asks nobody, prints nothing."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mnspawn.engine.link.dial import PER_SERVER, WINDOW
from mnspawn.engine.link.sites import check_room, target_of
from mnspawn.errors import HostError, HostKeyChanged
from mnspawn.system import open_files
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport.base import SshOptions
from mnspawn.transport.config.pasting import Pasted
from mnspawn_inventory import Host

if TYPE_CHECKING:
    from mnspawn.transport.asyncssh.fetch_keys import Offer
    from mnspawn.transport.asyncssh.transport import AsyncsshTransport


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key: its type and fingerprint; `before` is what known_hosts has in its place: `FILE:LINE has FINGERPRINT`."""

    kind: str
    fingerprint: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What a host shows, held against known_hosts.

    Attributes:
        new: keys of types that known_hosts has none of.
        changed: keys in whose place known_hosts has others.
        known: how many of its keys are there already.
        path: the file that is written to.
        offer: for `accept`.
        pasted: how commands for people name the host.
    """

    host: str
    new: tuple[KnownKey, ...]
    changed: tuple[KnownKey, ...]
    known: int
    path: str
    offer: "Offer"
    pasted: Pasted


async def fetch_keys(hosts: Sequence[Host], ssh: SshOptions) -> list[Known | HostError]:
    """Return what every host shows, in order, or why it shows nothing. Hosts behind one server take turns."""
    with open_files.raised():
        check_room(["asyncssh"] * min(len(hosts), WINDOW))
        return await _fetch_all(hosts, ssh)


async def _fetch_all(hosts: Sequence[Host], ssh: SshOptions) -> list[Known | HostError]:
    from mnspawn.transport.asyncssh.transport import AsyncsshTransport

    transport = AsyncsshTransport(ssh)  # keys are keys: whichever transport is used later
    found: dict[int, Known | HostError] = {}
    window = asyncio.Semaphore(WINDOW)
    servers: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PER_SERVER))

    async def one(index: int) -> None:
        try:
            async with window:
                # not its endpoint: known_hosts and key files may be broken
                hop = await in_daemon_thread(partial(transport.hop, target_of(hosts[index])))
                async with servers[hop.server]:
                    found[index] = await _fetch(transport, hosts[index])
        except HostError as exc:
            found[index] = exc

    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(hosts)):
                group.create_task(one(index), name=f"keys of {hosts[index].name}")
    finally:
        await transport.close()
    return [found[index] for index in range(len(hosts))]


async def _fetch(transport: "AsyncsshTransport", host: Host) -> Known:
    from mnspawn.transport.asyncssh import fetch_keys as trust
    from mnspawn.transport.trust import keys

    offer = await trust.fetch(transport, target_of(host))
    new, changed = [], []
    for kind, fingerprint in offer.fingerprints():
        if before := [keys.entry_shown(one.place, one.key) for one in offer.stale if keys.kind_of(one.key) == kind]:
            changed.append(KnownKey(kind, fingerprint, ", ".join(before)))
        else:
            new.append(KnownKey(kind, fingerprint))
    pasted = transport.hop(target_of(host)).pasted
    return Known(host.name, tuple(new), tuple(changed), len(offer.known), str(offer.path), offer, pasted)


def accept(shown: Known, *, replace: bool) -> None:
    """Write a host's keys down.

    Raises:
        HostKeyChanged: known_hosts has others, and they are not to be replaced.
        UsageError: the file can't be written.
    """
    from mnspawn.transport.asyncssh import fetch_keys as trust

    if shown.changed and not replace:
        raise changed(shown)
    trust.accept(shown.offer, replace=replace)


def changed(shown: Known) -> HostKeyChanged:
    """The error for a host that shows other keys than known_hosts has."""
    first, *more = (f"{key.before}, the host shows {key.fingerprint}" for key in shown.changed)
    message = f"its {shown.changed[0].kind} key has changed: {first}"
    if more:
        lines = (f"{key.kind}: {line}" for key, line in zip(shown.changed, [first, *more], strict=True))
        message = "\n".join(["its host keys have changed", *lines])
    hint = f"somebody may be in between; if it was set up anew: mnspawn hosts trust --replace {shown.pasted.ours}"
    return HostKeyChanged(message, host=shown.host, hint=hint)
