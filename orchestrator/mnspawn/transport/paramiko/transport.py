"""Hosts over paramiko, for servers that asyncssh fails with. Connects in threads of its own; never prompts.

Limits: one more thread per connection and per command; docs/ssh.md has the rest.
"""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import paramiko
from paramiko.pkey import PKey, PublicBlob
from paramiko.ssh_exception import IncompatiblePeer

from mnspawn import errors
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import algorithms, handshake, internals, refusals, sockets
from mnspawn.transport.ssh.handshake import Handshake, reason_of, translated
from mnspawn.transport.ssh.library_transport import LibraryTransport
from mnspawn.transport.trust import certificates, keys
from mnspawn.transport.trust.host_keys import HostKeys

from .keyring import Agent, offers
from .process import Process, SignallingTransport

WINDOW = 2 << 20
_PACKET = 1 << 15
_THREADS = 32  # handshakes at once
T = TypeVar("T")

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its errors arrive as exceptions too


class _Connection:
    """A Connection over one paramiko transport."""

    def __init__(self, hop: Hop, client: SignallingTransport, shared: "_Shared") -> None:
        self._hop = hop
        self._client = client
        self._shared = shared
        shared.connections.add(self)
        self._processes: list[Process] = []

    async def run(self, command: str) -> Process:
        channel = await asyncio.get_running_loop().run_in_executor(self._shared.pool, self._start, command)
        process = Process(channel)
        self._processes = [one for one in self._processes if not one.is_over] + [process]
        return process

    def _start(self, command: str) -> paramiko.Channel:
        with translated(TABLE, self._hop, None):
            channel = self._client.open_session(window_size=WINDOW, max_packet_size=_PACKET)
            for name, text in self._hop.env:
                with contextlib.suppress(paramiko.SSHException):  # AcceptEnv does not have it: as ssh
                    channel.set_environment_variable(name, text)
            channel.exec_command(command)
        return channel

    async def close(self) -> None:
        self._client.close()
        for process in self._processes:
            await process.close()
            process.join()
        self._shared.connections.discard(self)
        self._shared.closing = [one for one in self._shared.closing if one.is_alive()] + [self._client]


class _Shared:
    """What the connections of a transport share.

    Attributes:
        connections: that are open.
        closing: whose threads may not have ended yet.
    """

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="paramiko connect")
        self.connections: set[_Connection] = set()
        self.closing: list[SignallingTransport] = []


class ParamikoTransport(LibraryTransport[SignallingTransport]):
    """A Transport: one for a whole run."""

    def __init__(self, options: SshOptions) -> None:
        super().__init__(options, lambda client: not client.is_active())
        self._shared = _Shared()

    async def connect(self, target: Target) -> _Connection:
        hop = self._router.hop(target)
        return _Connection(hop, await self._open(hop), self._shared)

    async def close(self) -> None:
        self._router.close()
        for connection in list(self._shared.connections):
            await connection.close()
        jumps = await self._jumps.give_up()
        for jump in jumps:
            jump.close()
        for client in [*jumps, *self._shared.closing]:
            client.join(1.0)  # its thread looks at its socket ten times a second
        self._dialler.close()
        self._shared.pool.shutdown(wait=True, cancel_futures=True)

    async def _shake(self, hop: Hop, way: socket.socket | SignallingTransport, deadline: float) -> SignallingTransport:
        left = deadline - asyncio.get_running_loop().time()
        attempt = _Handshake(hop, self._host_keys, time.monotonic() + left)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._in_thread(partial(attempt.run, way), attempt.abort)
        except TimeoutError:
            raise sockets.timed_out(attempt.stage, hop, attempt.banner) from None

    async def _in_thread(self, work: Callable[[], T], abort: Callable[[], None]) -> T:
        """Run `work` in a thread; when cancelled, abort it and wait for its end."""
        future = asyncio.get_running_loop().run_in_executor(self._shared.pool, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            abort()
            with contextlib.suppress(errors.HostError):  # that it was aborted
                await future
            raise


class _Handshake(Handshake):
    """One connection being made, in a thread; `abort` is called from another."""

    def __init__(self, hop: Hop, host_keys: HostKeys, deadline: float) -> None:
        super().__init__()
        self._hop = hop
        self._host_keys = host_keys
        self._deadline = deadline
        self._sock: Any = None
        self._client: SignallingTransport | None = None
        self._agent: Agent | None = None
        self._agent_socket: socket.socket | None = None
        self.is_aborted = threading.Event()

    @property
    def banner(self) -> bytes:
        """The banner that the server shows before login."""
        return (self._client and self._client.get_banner()) or b""

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    @property
    def has_heard(self) -> bool:
        return self._client is not None and bool(self._client.remote_version)

    def abort(self) -> None:
        """Make the thread fail at once."""
        self.is_aborted.set()
        if self._client is not None:
            self._client.close()
        for sock in (self._sock, self._agent_socket):
            if isinstance(sock, socket.socket):
                with contextlib.suppress(OSError):  # not connected any more
                    sock.shutdown(socket.SHUT_RDWR)

    def run(self, way: socket.socket | SignallingTransport) -> SignallingTransport:
        """Connect over a socket, or over the connection to a jump host."""
        left = max(0.1, self._deadline - time.monotonic())
        with translated(TABLE, self._hop, self):
            sock: Any = way
            if not isinstance(way, socket.socket):
                there, here = (self._hop.address, self._hop.port), ("127.0.0.1", 0)
                sock = way.open_channel("direct-tcpip", there, here, window_size=WINDOW, timeout=left)
                left = max(0.1, self._deadline - time.monotonic())
            self._sock = sock
            try:
                client = self._client = SignallingTransport(sock)
                client.banner_timeout = client.handshake_timeout = client.auth_timeout = left
                client.daemon = True
                self._offer_algorithms(client)
                client.start_client(timeout=left)
                self.has_key = True
                self._check_key(client)
                self.is_authenticating = True
                self._authenticate(client)
            except BaseException:
                if self._client is not None:
                    self._client.packetizer.complete_handshake()  # ends its timer, which would hold up our exit
                    self._client.close()
                    if self._client.is_alive():
                        self._client.join(1.0)
                sock.close()
                raise
            finally:
                if self._agent is not None:
                    self._agent.close()
            client.auth_timeout = 30.0
            return client

    def _offer_algorithms(self, client: SignallingTransport) -> None:
        hop, options = self._hop, client.get_security_options()
        possible = internals.possible(client, "host key", options.key_types)
        options.key_types = tuple(algorithms.for_host_key(hop, self._host_keys, possible))
        for what, option in (("key exchange", "kex"), ("cipher", "ciphers"), ("MAC", "digests")):
            possible = internals.possible(client, what, getattr(options, option))
            setattr(options, option, tuple(algorithms.for_hop(hop, what, possible)))
        client.use_compression(hop.compression)

    def _check_key(self, client: SignallingTransport) -> None:
        key = client.get_remote_server_key()
        blob: PublicBlob | None = getattr(key, "public_blob", None)
        if blob is None or not blob.key_type.endswith(algorithms.CERTIFICATE):
            self._host_keys.check(self._hop, key.asbytes())
            return
        try:
            found = certificates.parse(blob.key_blob)
            authority = PKey.from_type_string(keys.kind_of(found.authority), found.authority)
            is_signed = authority.verify_ssh_sig(found.signed, paramiko.Message(found.signature))
        except (ValueError, paramiko.SSHException) as exc:
            raise errors.HostKeyError(f"its host certificate can't be read: {exc}", host=self._hop.name) from exc
        name = (self._hop.known_as or self._hop.address).lower()
        revoked = self._host_keys.revoked(self._hop)
        objection = found.objection(name, self._host_keys.authorities(self._hop), revoked, time.time())
        if not is_signed or objection or key.asbytes() in revoked:
            reason = objection or ("its key is revoked" if is_signed else "its signature is wrong")
            raise errors.HostKeyError(f"its host certificate was not accepted: {reason}", host=self._hop.name)

    def _on_agent_socket(self, sock: socket.socket) -> None:
        self._agent_socket = sock

    def _authenticate(self, client: SignallingTransport) -> None:
        self.is_asking = True
        self._agent = Agent.open(self._hop.agent, self._hop.name, self._on_agent_socket)
        self.is_asking = self.is_aborted.is_set()
        for name, key in offers(self._hop, self._agent, self.attempt):
            if self.is_aborted.is_set() or not client.is_active():
                break
            self.attempt.offered.append(name)
            try:
                client.auth_publickey(self._hop.user, key)
            except paramiko.BadAuthenticationType as exc:
                self.attempt.methods.update(exc.allowed_types)
                break
            except paramiko.AuthenticationException:
                self.attempt.methods.add("publickey")
                continue
            if client.is_authenticated():
                return
        if not client.is_active() and self.attempt.offered:
            self.attempt.banner = self.banner
            raise refusals.too_many(self._hop, self.attempt)
        if not self.attempt.methods:
            with contextlib.suppress(paramiko.AuthenticationException):
                try:
                    client.auth_none(self._hop.user)
                    return  # let in without any proof: the server's business
                except paramiko.BadAuthenticationType as exc:
                    self.attempt.methods.update(exc.allowed_types)
        self.attempt.banner = self.banner
        raise refusals.explain(self._hop, self.attempt)


# -- errors


def _ended(exc: Exception, hop: Hop, attempt: Handshake | None) -> errors.HostError:
    """paramiko raises one exception for most failures; only its text distinguishes them."""
    if attempt is not None and any(words in reason_of(exc) for words in _NO_SSH):
        return handshake.no_ssh(exc, hop, attempt)
    return handshake.closed(exc, hop, attempt)


_NO_SSH = ("Indecipherable protocol version", "Incompatible version")
# the first line that fits holds; tests/ssh walks paramiko for exceptions that have none
TABLE: handshake.Table = (
    (IncompatiblePeer, handshake.no_common),
    (paramiko.ChannelException, handshake.no_channel),
    (paramiko.PasswordRequiredException, handshake.bad_key),
    (paramiko.AuthenticationException, handshake.refused),
    (paramiko.SSHException, _ended),
    (EOFError, handshake.cut_off),
    (OSError, handshake.closed),
    (UnicodeDecodeError, handshake.garbled),
)
