"""Hosts over asyncssh: the default transport. Connects, checks the host's key, authenticates; never prompts."""

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Sequence
from typing import Any, cast

from mnspawn import errors
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import algorithms, handshake, internals, refusals, sockets
from mnspawn.transport.ssh.handshake import Handshake, reason_of, translated
from mnspawn.transport.ssh.library_transport import LibraryTransport
from mnspawn.transport.trust.host_keys import HostKeys, public_line

from .keyring import Keyring, name_certificate
from .library import asyncssh, encryption, kex, mac, public_key
from .process import Process

_DEFAULT_HOST_KEYS = (("ssh-ed25519",), ("ecdsa-sha2-nistp256",), algorithms.RSA_SIGNATURES)
WINDOW = 2 << 20  # measured: smaller and much larger are both slower


class _Client(Handshake, asyncssh.SSHClient):
    """Answers asyncssh's callbacks for one connection, and records why it fails."""

    def __init__(self, hop: Hop, host_keys: HostKeys, keyring: Keyring) -> None:
        super().__init__()
        self._hop = hop
        self._host_keys = host_keys
        self._keyring = keyring
        self._offers: list[tuple[str, asyncssh.SSHKeyPair]] | None = None
        self.conn: asyncssh.SSHClientConnection | None = None
        self.refusal: errors.HostError | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.conn = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.has_key = True
        try:
            self._host_keys.check(self._hop, key.public_data)
        except errors.HostError as exc:
            self.refusal = exc
        return self.refusal is None

    def begin_auth(self, username: str) -> None:
        self.has_key = self.is_authenticating = True
        internals.begin_with_keys(self.conn)

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.attempt.banner = msg

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        if self._offers is None:
            self.is_asking = True
            self._offers = await self._keyring.offers(self._hop, self.attempt)
            self.is_asking = False
        elif self.conn is not None:  # the server has answered once, and so named its methods
            self.attempt.methods.update(self.conn.get_server_auth_methods())
        if not self._offers:
            return None
        name, pair = self._offers.pop(0)
        self.attempt.offered.append(name)
        if self.conn is not None:
            name_certificate(pair, self.conn)
        if not isinstance(pair, asyncssh.SSHAgentKeyPair):  # an agent may ask its user for each signature
            internals.sign_at_once(self.conn, pair)
        return pair

    def password_auth_requested(self) -> None:
        self.attempt.methods.add("password")

    def kbdint_auth_requested(self) -> None:
        self.attempt.methods.add("keyboard-interactive")

    @property
    def is_connected(self) -> bool:
        return self.conn is not None

    @property
    def has_heard(self) -> bool:
        return self.conn is not None and self.conn.get_extra_info("server_version") is not None


class _Connection:
    """A Connection over one asyncssh client connection."""

    def __init__(self, hop: Hop, conn: asyncssh.SSHClientConnection, open_ones: "set[_Connection]") -> None:
        self._hop = hop
        self._conn = conn
        self._open_ones = open_ones
        open_ones.add(self)

    async def run(self, command: str) -> Process:
        with translated(TABLE, self._hop, None):
            _, process = await self._conn.create_session(
                Process, command, encoding=None, window=WINDOW, env=dict(self._hop.env), request_pty=False
            )
        return cast(Process, process)

    async def close(self) -> None:
        self._open_ones.discard(self)
        await _hang_up(self._conn)


_Way = socket.socket | asyncssh.SSHClientConnection


class AsyncsshTransport(LibraryTransport[asyncssh.SSHClientConnection]):
    """A Transport: one for a whole run."""

    def __init__(self, options: SshOptions) -> None:
        super().__init__(options, asyncssh.SSHClientConnection.is_closed)
        self._keyring = Keyring()
        self._connections: set[_Connection] = set()  # that are open

    async def connect(self, target: Target) -> _Connection:
        hop = self._router.hop(target)
        return _Connection(hop, await self._open(hop), self._connections)

    async def host_keys(self, target: Target) -> list[bytes]:
        """Return the keys that a host offers, one of each type that sshd has by default, unchecked.

        Raises:
            HostError: the server, or its jump host, can't be reached.
        """
        hop = self._router.hop(target)
        found = [await self._host_key(hop, names) for names in _DEFAULT_HOST_KEYS]
        return [key for key in found if key is not None]

    async def _host_key(self, hop: Hop, names: Sequence[str]) -> bytes | None:
        """The key that a host offers for the first of these algorithms that it has."""

        async def look(way: _Way, deadline: float) -> bytes | None:
            client = _Collector(hop, self._host_keys, self._keyring)
            try:
                await _hang_up(await self._connect(hop, client, way, deadline, list(names)))
            except (
                errors.HostError
            ):  # expected: the key is never accepted; without one of this type the key exchange fails
                if not client.has_heard:
                    raise
            return client.key

        return await self._reach(hop, look)

    async def close(self) -> None:
        self._router.close()
        for connection in list(self._connections):
            await connection.close()
        for conn in await self._jumps.give_up():
            await _hang_up(conn)
        await self._keyring.close()
        self._dialler.close()

    async def _shake(self, hop: Hop, way: _Way, deadline: float) -> asyncssh.SSHClientConnection:
        return await self._connect(hop, _Client(hop, self._host_keys, self._keyring), way, deadline)

    async def _connect(
        self, hop: Hop, client: _Client, way: _Way, deadline: float, host_key_algorithms: list[str] | None = None
    ) -> asyncssh.SSHClientConnection:
        sock = way if isinstance(way, socket.socket) else None
        through: dict[str, Any] = {"tunnel": way} if sock is None else {"sock": sock, "tunnel": None}
        try:
            async with asyncio.timeout_at(deadline):
                with translated(TABLE, hop, client):
                    settings = self._settings(hop, host_key_algorithms)
                    settings["client_factory"] = lambda: client
                    return await asyncssh.connect(hop.address, hop.port, **through, **settings)
        except BaseException as exc:  # also when cancelled: the socket is ours until the connection is established
            if sock is not None:
                sock.close()
            if isinstance(exc, TimeoutError):
                raise sockets.timed_out(client.stage, hop, client.attempt.banner) from None
            raise

    def _settings(self, hop: Hop, host_key_algorithms: list[str] | None) -> dict[str, Any]:
        authorities = _importable(self._host_keys.authorities(hop))
        if host_key_algorithms is None:
            possible = _names([*public_key.get_certificate_algs(), *public_key.get_public_key_algs()])
            host_key_algorithms = algorithms.for_host_key(hop, self._host_keys, possible)
        return {
            "config": None,
            "username": hop.user,
            "host_key_alias": hop.known_as,
            # we check plain keys; asyncssh must know revoked ones only to check certificates
            "known_hosts": ([], authorities, _importable(self._host_keys.revoked(hop)) if authorities else []),
            "server_host_key_algs": host_key_algorithms,
            "kex_algs": algorithms.for_hop(hop, "key exchange", _names(kex.get_kex_algs())),
            "encryption_algs": algorithms.for_hop(hop, "cipher", _names(encryption.get_encryption_algs())),
            "mac_algs": algorithms.for_hop(hop, "MAC", _names(mac.get_mac_algs())),
            "compression_algs": ["zlib@openssh.com", "none"] if hop.compression else ["none"],
            "x509_trusted_certs": None,
            "client_keys": None,  # the keyring offers them
            "agent_forwarding": False,
            "gss_host": None,
            "connect_timeout": None,
            "encoding": None,
            "utf8_decode_errors": "replace",  # banners and disconnect messages come in any encoding
        }


class _Collector(_Client):
    """Records the host's key and hangs up."""

    key: bytes | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.key = key.public_data
        return False


async def _hang_up(conn: asyncssh.SSHClientConnection) -> None:
    """Close a connection; notify the peer without waiting for it."""
    conn.close()
    await conn.wait_closed()
    await asyncio.sleep(0)  # in which asyncio closes the socket


def _names(names: Iterable[bytes]) -> list[str]:
    return [name.decode("ascii") for name in names]


def _importable(blobs: list[bytes]) -> list[asyncssh.SSHKey]:
    found = []
    for blob in blobs:
        with contextlib.suppress(asyncssh.KeyImportError):  # of a type that only newer software knows
            found.append(asyncssh.import_public_key(public_line(blob)))
    return found


# -- errors


def _untrusted(exc: Exception, hop: Hop, client: Handshake | None) -> errors.HostError:
    if isinstance(client, _Client) and client.refusal is not None:
        return client.refusal
    hint = "known_hosts has a @cert-authority for it: ask who signs host keys there"
    return errors.HostKeyError(f"its host certificate was not accepted: {reason_of(exc)}", host=hop.name, hint=hint)


def _said_goodbye(exc: Exception, hop: Hop, client: Handshake | None) -> errors.HostError:
    """The server disconnected with a reason; it may choose any code."""
    if client is not None and "Too many authentication failures" in reason_of(exc):
        return refusals.too_many(hop, client.attempt)
    is_ssh = client is None or client.has_heard
    return handshake.closed(exc, hop, client) if is_ssh else handshake.no_ssh(exc, hop, client)


def _bad_user(exc: Exception, hop: Hop, client: Handshake | None) -> errors.HostError:
    return errors.SettingsUnusable(f"the user name {hop.user!r} can't be sent: {reason_of(exc)}", host=hop.name)


def _network(exc: OSError, hop: Hop, client: Handshake | None) -> errors.HostError:
    if client is None or client.is_connected:
        return handshake.cut_off(exc, hop, client)
    return sockets.unreachable(exc, hop)


# the first line that fits holds; tests/ssh walks asyncssh for exceptions that have none
TABLE: handshake.Table = (
    (asyncssh.HostKeyNotVerifiable, _untrusted),
    (asyncssh.PermissionDenied, handshake.refused),
    (asyncssh.KeyExchangeFailed, handshake.no_common),
    (asyncssh.ConnectionLost, handshake.cut_off),
    (asyncssh.ProtocolNotSupported, handshake.no_ssh),
    (asyncssh.ProtocolError, _said_goodbye),
    (asyncssh.IllegalUserName, _bad_user),
    (asyncssh.MACError, handshake.closed),
    (asyncssh.CompressionError, handshake.closed),
    (asyncssh.ServiceNotAvailable, handshake.closed),
    (asyncssh.DisconnectError, _said_goodbye),
    (asyncssh.ChannelOpenError, handshake.no_channel),
    (asyncssh.KeyImportError, handshake.bad_key),
    (asyncssh.KeyEncryptionError, handshake.bad_key),
    (OSError, _network),
    (UnicodeDecodeError, handshake.garbled),
)
