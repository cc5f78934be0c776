"""What transports over a library share: a host's settings, its keys, its addresses and the jump hosts on the way."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.config.route import Hop, Router
from mnspawn.transport.trust.host_keys import HostKeys
from mnspawn.transport.trust.key_files import Inputs

from .jumps import Jumps
from .sockets import Dialler

C = TypeVar("C")  # the library's connection
T = TypeVar("T")


class LibraryTransport(Generic[C]):
    """The half of a Transport that does not depend on the library.

    Args:
        is_gone: whether a connection of the library has ended.
    """

    def __init__(self, options: SshOptions, is_gone: Callable[[C], bool]) -> None:
        self._router = Router(options)
        self._dialler = Dialler()
        self._host_keys = HostKeys()
        self._inputs = Inputs(self._host_keys)
        self._jumps = Jumps(self._open, is_gone)

    def hop(self, target: Target) -> Hop:
        """Return the effective settings of a host, with their origins."""
        return self._router.hop(target)

    def endpoint(self, target: Target) -> str:
        hop = self._router.hop(target)
        self._inputs.check(hop)
        return hop.server

    async def _shake(self, hop: Hop, way: socket.socket | C, deadline: float) -> C:
        """Log in over a connected socket, or over the connection to the jump host, until the loop's `deadline`."""
        raise NotImplementedError

    async def _open(self, hop: Hop) -> C:
        return await self._reach(hop, partial(self._shake, hop))

    async def _reach(self, hop: Hop, shake: Callable[[socket.socket | C, float], Awaitable[T]]) -> T:
        """Return what `shake` makes of the way to a host: a socket, or the connection to its jump host."""
        if hop.jump is None:
            return await self._dialler.reach(hop, hop.connect_timeout, shake)
        jump = await self._jumps.get(hop.jump, hop)
        return await shake(jump, asyncio.get_running_loop().time() + hop.connect_timeout)
