"""A connected socket to an SSH server: name lookup, TCP, ProxyCommand. Says which of them failed; speaks no SSH."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from mnspawn import errors
from mnspawn.transport.match_exec import end, signal_group
from mnspawn.transport.route import Hop
from mnspawn.transport.threads import in_daemon_thread

_PROXY_END = 0.5  # seconds that proxy commands have to end by themselves
_LOOKUPS = 32  # names looked up at once: a slow DNS server must not make hosts wait for each other
_READ_MOST = 131072  # asyncio asks for twice as much; asyncssh copies what it has read ahead twice for every packet
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
NO_AGENT = "ssh-agent does not answer"
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
    """Opens sockets; owns the proxy commands that run."""

    def __init__(self) -> None:
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._proxies: list[subprocess.Popen[bytes]] = []

    async def open(self, hop: Hop) -> socket.socket:
        """A socket to the hop's server.

        Raises:
            HostError: NameUnknown, NoRoute, ConnectionRefused, ConnectTimeout or another Unreachable.
        """
        if hop.proxy_command is not None:
            return self._open_proxy(hop)
        failure: OSError | None = None
        for family, kind, protocol, _, address in await self._look_up(hop):
            sock = QuickSocket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if hop.bind_address:
                    sock.bind((hop.bind_address, 0))
                await asyncio.get_running_loop().sock_connect(sock, address)
                return sock
            except OSError as exc:
                sock.close()
                failure = exc
            except BaseException:
                sock.close()
                raise
        assert failure is not None
        raise unreachable(failure, hop) from failure

    async def _look_up(self, hop: Hop) -> list[tuple[int, int, int, str, Any]]:
        ask = partial(socket.getaddrinfo, hop.address, hop.port, hop.family, socket.SOCK_STREAM)
        with contextlib.suppress(socket.gaierror):  # it is no number, but a name
            return list(ask(flags=socket.AI_NUMERICHOST))
        try:
            async with self._lookups:
                return list(await in_daemon_thread(ask))
        except (socket.gaierror, UnicodeError) as exc:
            raise name_unknown(exc, hop) from exc

    def _open_proxy(self, hop: Hop) -> socket.socket:
        """Our end of a socket whose other end is the command's stdin and stdout."""
        assert hop.proxy_command is not None
        ours, theirs = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            with theirs:
                proxy = subprocess.Popen(
                    [shell, "-c", "exec " + hop.proxy_command],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,  # it is often ssh, which may speak on its way to success
                    start_new_session=True,  # no terminal to ask anything on
                )
        except OSError as exc:
            ours.close()
            raise errors.Unreachable(f"ProxyCommand can't be run: {exc.strerror}", host=hop.name) from exc
        self._proxies.append(proxy)
        ours.setblocking(False)
        return ours

    def close(self) -> None:
        """End what was started; the sockets belong to those who asked for them."""
        for proxy in self._proxies:
            signal_group(proxy, signal.SIGHUP)  # as ssh; an ssh among them removes its sockets
        deadline = time.monotonic() + _PROXY_END
        for proxy in self._proxies:
            with contextlib.suppress(subprocess.TimeoutExpired):
                proxy.wait(max(0.0, deadline - time.monotonic()))
            end(proxy)
        self._proxies.clear()


def name_unknown(exc: Exception, hop: Hop) -> errors.HostError:
    """What a failed look-up means. Only EAI_AGAIN is worth another try."""
    whose = "" if hop.address == hop.name.lower() else f" for {hop.address!r}"  # the host is named anyway
    if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN:
        reason, hint = f"the name server does not answer{whose}", "is DNS reachable from here?"
        return errors.LookupFailed(reason, host=hop.name, hint=hint)
    return errors.NameUnknown(
        f"no address is known{whose}",
        host=hop.name,
        hint=f"a typing error, or a Host block with HostName missing in {_config_name()}?",
    )


def unreachable(exc: OSError, hop: Hop) -> errors.HostError:
    """What a failed connect means."""
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
    """The server, or what leads to it, ended the connection without a word: worth another try."""
    if hop.proxy_command is not None:
        hint = f"see what it says: {hop.proxy_command}"
        return errors.ConnectionClosed(f"its ProxyCommand ended before {hop.place} answered", host=hop.name, hint=hint)
    hint = "too many connections at once (MaxStartups), or a firewall? it was tried again"
    return errors.ConnectionClosed(f"{hop.place} hung up before it said anything", host=hop.name, hint=hint)


def timed_out(what: str, hop: Hop) -> errors.HostError:
    """Nothing came within the connect timeout; `what` says what was waited for."""
    hint = "is it up, and does a firewall drop packets? --connect-timeout gives it longer"
    if what == NO_AGENT:
        hint = f"its socket is {hop.agent}; IdentityAgent none in ssh_config goes without"
    elif hop.proxy_command is not None and what == NO_SSH:
        what, hint = "nothing comes out of its ProxyCommand", f"see what it says: {hop.proxy_command}"
    return errors.ConnectTimeout(f"{what} ({hop.place}, {hop.connect_timeout:g} s)", host=hop.name, hint=hint)


def _config_name() -> str:
    return str(Path("~/.ssh/config"))
