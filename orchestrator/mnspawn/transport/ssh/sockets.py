"""Connected sockets to an SSH server: name lookup, TCP, ProxyCommand. Reports which of them failed; speaks no SSH."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from mnspawn import errors
from mnspawn.quoting import quoted
from mnspawn.system import open_files
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport.config.match_exec import end, signal_group
from mnspawn.transport.config.route import Hop

from . import addresses
from .addresses import Address

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PROXY_END = 0.5  # seconds that proxy commands have to end by themselves
_LOOKUPS = 32  # names looked up at once: a slow DNS server must not make hosts wait for each other
_READ_MOST = 131072  # asyncio asks for twice as much; asyncssh copies what it has read ahead twice for every packet
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
NO_AGENT = "ssh-agent does not answer"
SLOW = "is it up, and does a firewall drop packets? --connect-timeout gives it longer"
NO_SSH = "something takes connections there but does not speak SSH"
_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}


class QuickSocket(socket.socket):
    """Acknowledges at once what it receives.

    sshd leaves Nagle's algorithm on for sessions without a terminal, and so waits for our delayed acknowledgement:
    40 ms for each answer that it writes in two parts. The kernel forgets the option, hence at every read.
    """

    def recv(self, size: int, flags: int = 0) -> bytes:
        chunk = super().recv(min(size, _READ_MOST), flags)
        if _QUICKACK is not None and self.family != socket.AF_UNIX:
            self.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        return chunk


class Dialler:
    """Opens sockets; owns the proxy commands that it starts."""

    def __init__(self) -> None:
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._proxies: list[subprocess.Popen[bytes]] = []

    async def reach(self, hop: Hop, timeout: float, shake: Callable[[socket.socket, float], Awaitable[T]]) -> T:
        """Return what `shake` makes of a socket to the first address of a host that works.

        Args:
            timeout: seconds for each address, `shake` included; while one does not answer the next is tried as well.
            shake: receives a connected socket, which it then owns, and a deadline by the loop's clock.

        Raises:
            HostError: no address could be used; or an error of `shake` that no other address would avoid.
        """
        now = asyncio.get_running_loop().time
        if hop.proxy_command is not None:
            return await shake(self._open_proxy(hop), now() + timeout)
        untried = await self._look_up(hop, timeout)
        failures: list[tuple[str, errors.HostError]] = []
        while (found := await self._first(hop, untried, timeout, failures)) is not None:
            sock, address, deadline = found
            try:
                return await shake(sock, deadline)
            except errors.HostError as exc:
                if not addresses.may_be_elsewhere(exc) or (not untried and not failures):
                    raise
                failures.append((address.shown, exc))
                if untried:
                    _log.info("%s: %s can't be used, trying the next address: %s", hop.name, address.shown, exc.message)
        error = addresses.unusable(failures, hop.address, hop.port)
        raise error from failures[-1][1]

    async def _first(
        self, hop: Hop, untried: list[Address], timeout: float, failures: list[tuple[str, errors.HostError]]
    ) -> tuple[socket.socket, Address, float] | None:
        """Return the first connection as (socket, its address, its deadline); None if no address answers.

        Moves addresses that failed from `untried` to `failures`, and removes the one that answered.
        """
        loop = asyncio.get_running_loop()
        queue = list(untried)
        running: dict[asyncio.Task[socket.socket], tuple[Address, float]] = {}
        try:
            while queue or running:
                if queue and len(running) < addresses.AT_ONCE:
                    address = queue.pop(0)
                    task = loop.create_task(_connect(hop, address, timeout), name=f"connect {hop.name}")
                    running[task] = address, loop.time() + timeout
                pause = addresses.NEXT_AFTER if queue and len(running) < addresses.AT_ONCE else None
                done, _ = await asyncio.wait(running, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    exc = task.exception()
                    if exc is not None and not isinstance(exc, OSError):
                        raise exc
                    address, deadline = running.pop(task)
                    untried.remove(address)
                    if exc is None:
                        return task.result(), address, deadline
                    failures.append((address.shown, unreachable(exc, hop)))
            return None
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
            for task in running:
                if not task.cancelled() and task.exception() is None:
                    task.result().close()

    async def _look_up(self, hop: Hop, timeout: float) -> list[Address]:
        with contextlib.suppress(socket.gaierror):  # it is no number, but a name
            return addresses.resolved(hop, socket.AI_NUMERICHOST)
        try:
            async with asyncio.timeout(timeout), self._lookups:
                return await in_daemon_thread(partial(addresses.resolved, hop))
        except TimeoutError:
            reason = f"its name {hop.address!r} could not be looked up within {timeout:g} s"
            raise errors.ConnectTimeout(reason, host=hop.name, hint="does the name server answer?") from None
        except (socket.gaierror, UnicodeError) as exc:
            raise name_unknown(exc, hop) from exc

    def _open_proxy(self, hop: Hop) -> socket.socket:
        """Return our end of a socket pair whose other end is the command's stdin and stdout."""
        assert hop.proxy_command is not None
        ours, theirs = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            with theirs:
                proxy = subprocess.Popen(
                    open_files.as_given([shell, "-c", "exec " + hop.proxy_command]),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,  # it is often ssh, which may print warnings and still succeed
                    start_new_session=True,  # no terminal to ask anything on
                )
        except OSError as exc:
            ours.close()
            open_files.check(exc, is_fork=True)
            raise errors.Unreachable(f"ProxyCommand can't be run: {exc.strerror}", host=hop.name) from exc
        self._proxies.append(proxy)
        ours.setblocking(False)
        return ours

    def close(self) -> None:
        """End the proxy commands; callers own the sockets."""
        for proxy in self._proxies:
            signal_group(proxy, signal.SIGHUP)  # as ssh; an ssh among them removes its sockets
        deadline = time.monotonic() + _PROXY_END
        for proxy in self._proxies:
            with contextlib.suppress(subprocess.TimeoutExpired):
                proxy.wait(max(0.0, deadline - time.monotonic()))
            end(proxy)
        self._proxies.clear()


async def _connect(hop: Hop, address: Address, timeout: float) -> socket.socket:
    """A connected socket. Raises OSError."""
    sock = QuickSocket(address.family, address.kind, address.protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hop.bind_address:
            sock.bind((hop.bind_address, 0))
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().sock_connect(sock, address.place)
    except BaseException:
        sock.close()
        raise
    return sock


def name_unknown(exc: Exception, hop: Hop) -> errors.HostError:
    """Return the error for a failed look-up. Only EAI_AGAIN is worth another try.

    Raises:
        UsageError: it is this machine that has no more files.
    """
    open_files.check_free()
    whose = "" if hop.address == hop.name.lower() else f" for {hop.address!r}"  # the host is named anyway
    if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN:
        reason, hint = f"the name server does not answer{whose}", "is DNS reachable from here?"
        return errors.LookupFailed(reason, host=hop.name, hint=hint)
    return errors.NameUnknown(
        f"no address is known{whose}",
        host=hop.name,
        hint="a typing error, or a Host block with HostName missing in ~/.ssh/config?",
    )


def unreachable(exc: OSError, hop: Hop) -> errors.HostError:
    """Return the error for a failed connect.

    Raises:
        UsageError: it is this machine that has no more files.
    """
    open_files.check(exc)
    if isinstance(exc, ConnectionRefusedError):
        hint = "is sshd running there, and is this its port?"
        return errors.ConnectionRefused(f"connection refused at {hop.place}", host=hop.name, hint=hint)
    if isinstance(exc, TimeoutError):
        return timed_out("the host does not answer", hop)
    if exc.errno in _NO_ROUTE:
        hint = "is the network up, and is this the right address?"
        return errors.NoRoute(f"no route to {hop.place} ({os.strerror(exc.errno)})", host=hop.name, hint=hint)
    if isinstance(exc, ConnectionError):
        return errors.ConnectionClosed(f"{hop.place} closed the connection at once", host=hop.name)
    return errors.Unreachable(f"can't connect to {hop.place}: {exc.strerror or exc}", host=hop.name)


def hung_up(hop: Hop) -> errors.HostError:
    """Return the error for a server, or proxy, that closed without a word: worth another try."""
    if hop.proxy_command is not None:
        hint = f"see what it says: {hop.proxy_command}"
        return errors.ConnectionClosed(f"its ProxyCommand ended before {hop.place} answered", host=hop.name, hint=hint)
    hint = "too many connections at once (MaxStartups), or a firewall? it was tried again"
    return errors.ConnectionClosed(f"{hop.place} hung up before it said anything", host=hop.name, hint=hint)


def timed_out(what: str, hop: Hop, said: bytes | str = "") -> errors.HostError:
    """Return the error for a connect timeout; `what` says what was waited for, `said` is the server's banner."""
    hint = SLOW
    if what == NO_AGENT:
        hint = f"its socket is {hop.agent}; IdentityAgent none in ssh_config goes without"
    elif hop.proxy_command is not None and what == NO_SSH:
        what, hint = "nothing comes out of its ProxyCommand", f"see what it says: {hop.proxy_command}"
    reason = f"{what} ({hop.place}, {hop.connect_timeout:g} s){quoted(said)}"
    return errors.ConnectTimeout(reason, host=hop.name, hint=hint)
