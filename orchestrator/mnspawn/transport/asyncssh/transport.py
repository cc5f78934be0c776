"""Hosts over asyncssh: the default transport. Connects, checks the host's key, authenticates; never prompts."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from mnspawn import errors
from mnspawn.quoting import readable
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.config import route
from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import algorithms, internals, refusals, sockets
from mnspawn.transport.ssh.jumps import Jumps
from mnspawn.transport.trust.host_keys import HostKeys, public_line
from mnspawn.transport.trust.key_files import Inputs

from .keyring import Keyring, name_certificate
from .library import asyncssh, encryption, kex, mac, public_key
from .process import Process

T = TypeVar("T")
WINDOW = 2 << 20  # measured: smaller and much larger are both slower


class _Client(asyncssh.SSHClient):
    """Answers asyncssh's questions about one connection, and remembers why it fails."""

    def __init__(self, hop: Hop, host_keys: HostKeys, keyring: Keyring) -> None:
        self._hop = hop
        self._host_keys = host_keys
        self._keyring = keyring
        self._offers: list[tuple[str, asyncssh.SSHKeyPair]] | None = None
        self.conn: asyncssh.SSHClientConnection | None = None
        self.attempt = refusals.Attempt()
        self.refusal: errors.HostError | None = None
        self.has_key = self.is_authenticating = self.is_asking = False

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
        elif self.conn is not None:  # the server has answered once: now it is known what it takes
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
    def has_heard(self) -> bool:
        """Whether the server has said what it is."""
        return self.conn is not None and self.conn.get_extra_info("server_version") is not None

    @property
    def stage(self) -> str:
        """What was waited for when it took too long."""
        if self.conn is None:
            return "the host does not answer"
        if not self.has_heard:
            return sockets.NO_SSH
        if self.is_asking:
            return sockets.NO_AGENT
        return "the server stopped answering while it " + ("let us in" if self.is_authenticating else "said who it is")


class _Connection:
    """A Connection over one asyncssh client connection."""

    def __init__(self, hop: Hop, conn: asyncssh.SSHClientConnection, open_ones: "set[_Connection]") -> None:
        self._hop = hop
        self._conn = conn
        self._open_ones = open_ones
        open_ones.add(self)

    async def run(self, command: str) -> Process:
        with translate(self._hop, None):
            _, process = await self._conn.create_session(
                Process, command, encoding=None, window=WINDOW, env=dict(self._hop.env), request_pty=False
            )
        return cast(Process, process)

    async def close(self) -> None:
        self._open_ones.discard(self)
        await _hang_up(self._conn)


_Way = socket.socket | asyncssh.SSHClientConnection


class AsyncsshTransport:
    """A Transport: one for a whole run."""

    def __init__(self, options: SshOptions) -> None:
        self._router = route.Router(options)
        self._dialler = sockets.Dialler()
        self._host_keys = HostKeys()
        self._inputs = Inputs(self._host_keys)
        self._keyring = Keyring()
        self._jumps = Jumps(self._open, asyncssh.SSHClientConnection.is_closed)
        self._connections: set[_Connection] = set()  # that are open

    def endpoint(self, target: Target) -> str:
        hop = self._router.hop(target)
        self._inputs.check(hop)
        return hop.server

    async def connect(self, target: Target) -> _Connection:
        hop = self._router.hop(target)
        return _Connection(hop, await self._open(hop), self._connections)

    async def host_key(self, target: Target, kind: str) -> bytes | None:
        """The host's key of a type, from the server itself and unchecked; None when it has none.

        Raises:
            HostError: the server can't be reached.
        """
        hop = self._router.hop(target)
        names = list(algorithms.RSA_SIGNATURES) if kind == "ssh-rsa" else [kind]

        async def look(way: _Way, deadline: float) -> bytes | None:
            client = _Collector()
            try:
                await _hang_up(await self._shake(hop, client, way, deadline, names))
            except errors.HostError:  # it never gets past the key; without a key of this type not even there
                if not client.has_heard:
                    raise
            return client.key

        return await self._reach(hop, look)

    def hop(self, target: Target) -> Hop:
        """The effective settings of a host, with their origins."""
        return self._router.hop(target)

    async def close(self) -> None:
        self._router.close()
        for connection in list(self._connections):
            await connection.close()
        for conn in await self._jumps.give_up():
            await _hang_up(conn)
        await self._keyring.close()
        self._dialler.close()

    async def _reach(self, hop: Hop, shake: Callable[[_Way, float], Awaitable[T]]) -> T:
        """What `shake` makes of the way to a host: a socket, or the connection to its jump host."""
        if hop.jump is None:
            return await self._dialler.reach(hop, hop.connect_timeout, shake)
        jump = await self._jumps.get(hop.jump, hop)
        return await shake(jump, asyncio.get_running_loop().time() + hop.connect_timeout)

    async def _open(self, hop: Hop) -> asyncssh.SSHClientConnection:
        async def shake(way: _Way, deadline: float) -> asyncssh.SSHClientConnection:
            return await self._shake(hop, _Client(hop, self._host_keys, self._keyring), way, deadline)

        return await self._reach(hop, shake)

    async def _shake(
        self, hop: Hop, client: _Client, way: _Way, deadline: float, host_key_algorithms: list[str] | None = None
    ) -> asyncssh.SSHClientConnection:
        sock = way if isinstance(way, socket.socket) else None
        through: dict[str, Any] = {"tunnel": way} if sock is None else {"sock": sock, "tunnel": None}
        try:
            async with asyncio.timeout_at(deadline):
                with translate(hop, client):
                    settings = self._settings(hop, host_key_algorithms)
                    settings["client_factory"] = lambda: client
                    return await asyncssh.connect(hop.address, hop.port, **through, **settings)
        except BaseException as exc:  # a cancelled handshake included: the socket is ours until it stands
            if sock is not None:
                sock.close()
            if isinstance(exc, TimeoutError):
                raise sockets.timed_out(client.stage, hop, client.attempt.banner) from None
            raise

    def _settings(self, hop: Hop, host_key_algorithms: list[str] | None) -> dict[str, Any]:
        authorities = _importable(self._host_keys.authorities(hop))
        if host_key_algorithms is None:
            ours = (*algorithms.HOST_CERTIFICATES, *algorithms.HOST_KEYS) if authorities else algorithms.HOST_KEYS
            possible = _names([*public_key.get_certificate_algs(), *public_key.get_public_key_algs()])
            chosen = algorithms.choose("host key", hop.algorithms.get("host keys"), ours, possible, hop.name)
            host_key_algorithms = algorithms.prefer_known(chosen, self._host_keys.known_kinds(hop), bool(authorities))

        def choose(what: str, key: str, ours: tuple[str, ...], possible: Iterable[bytes]) -> list[str]:
            return algorithms.choose(what, hop.algorithms.get(key), ours, _names(possible), hop.name)

        return {
            "config": None,
            "username": hop.user,
            "host_key_alias": hop.known_as,
            # plain keys are ours to check; only what a certificate is made of asyncssh must know to be revoked
            "known_hosts": ([], authorities, _importable(self._host_keys.revoked(hop)) if authorities else []),
            "server_host_key_algs": host_key_algorithms,
            "kex_algs": choose("key exchange", "kex", algorithms.KEX, kex.get_kex_algs()),
            "encryption_algs": choose("cipher", "ciphers", algorithms.CIPHERS, encryption.get_encryption_algs()),
            "mac_algs": choose("MAC", "macs", algorithms.MACS, mac.get_mac_algs()),
            "compression_algs": ["zlib@openssh.com", "none"] if hop.compression else ["none"],
            "x509_trusted_certs": None,
            "client_keys": None,  # the keyring offers them
            "agent_forwarding": False,
            "gss_host": None,
            "connect_timeout": None,
            "encoding": None,
            "utf8_decode_errors": "replace",  # of banners and last words, which come in any encoding
        }


class _Collector(_Client):
    """Takes the host's key and goes."""

    def __init__(self) -> None:
        self.conn = None
        self.attempt = refusals.Attempt()
        self.refusal = None
        self.key: bytes | None = None
        self.has_key = self.is_authenticating = self.is_asking = False

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.key = key.public_data
        return False


async def _hang_up(conn: asyncssh.SSHClientConnection) -> None:
    """Close a connection; the peer is told, but not waited for."""
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


def _refused(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    return refusals.explain(hop, client.attempt if client else refusals.Attempt())


def _untrusted(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    if client is not None and client.refusal is not None:
        return client.refusal
    hint = "known_hosts has a @cert-authority for it: ask who signs host keys there"
    return errors.HostKeyError(f"its host certificate was not accepted: {_reason(exc)}", host=hop.name, hint=hint)


def _no_common(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    hint = "see what the server has with `ssh -vv`, and allow it in ssh_config (KexAlgorithms, Ciphers, ...)"
    return errors.NoCommonAlgorithm(f"no common algorithm ({_reason(exc)})", host=hop.name, hint=hint)


def _closed(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    conn = client.conn if client is not None else None
    if client is None:
        error = errors.ConnectionClosed(f"the connection is gone ({_reason(exc)})", host=hop.name)
    elif conn is not None and conn.get_extra_info("server_version") is None:
        return sockets.hung_up(hop)
    elif not client.has_key and isinstance(exc, asyncssh.ConnectionLost | OSError):  # before we could see for ourselves
        return _no_common(exc, hop, client)
    else:
        where = "while it let us in" if client.is_authenticating else "during the key exchange"
        error = errors.ConnectionClosed(f"{hop.place} hung up {where} ({_reason(exc)})", host=hop.name)
        error.hint = "sshd's log on the host says why"
    error.is_transient = False
    return error


def _told(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    """The server said goodbye with a reason; it may choose any code."""
    if client is not None and "Too many authentication failures" in _reason(exc):
        return refusals.too_many(hop, client.attempt)
    is_ssh = client is None or client.has_heard
    return _closed(exc, hop, client) if is_ssh else _no_ssh(exc, hop, client)


def _no_ssh(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    hint = "is this the port of sshd?"
    return errors.Unreachable(f"{hop.place} does not speak SSH as we do ({_reason(exc)})", host=hop.name, hint=hint)


def _no_channel(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    if client is not None and hop.jump is not None:  # the jump host could not reach it
        hint = f"try it from there: ssh {hop.jump.name} nc -vz {hop.address} {hop.port}"
        kind = errors.ConnectionRefused if "refused" in _reason(exc).lower() else errors.Unreachable
        return kind(f"jump host {hop.jump.name} can't reach {hop.place}: {_reason(exc)}", host=hop.name, hint=hint)
    hint = "MaxSessions of sshd may be 0 or used up, or the account may run no commands"
    return errors.ChannelRefused(f"the server starts no command ({_reason(exc)})", host=hop.name, hint=hint)


def _bad_key(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    return errors.KeyUnusable(f"a key can't be used: {_reason(exc)}", host=hop.name)


def _bad_user(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    return errors.SettingsUnusable(f"the user name {hop.user!r} can't be sent: {_reason(exc)}", host=hop.name)


def _network(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    if client is None or client.conn is not None:
        return _closed(exc, hop, client)
    return sockets.unreachable(cast(OSError, exc), hop)


def _garbled(exc: Exception, hop: Hop, client: _Client | None) -> errors.HostError:
    return sockets.garbled(cast(UnicodeDecodeError, exc), hop)


# the first line that fits holds; tests/ssh walks asyncssh for exceptions that have none
TABLE: tuple[tuple[type[Exception], Any], ...] = (
    (asyncssh.HostKeyNotVerifiable, _untrusted),
    (asyncssh.PermissionDenied, _refused),
    (asyncssh.KeyExchangeFailed, _no_common),
    (asyncssh.ConnectionLost, _closed),
    (asyncssh.ProtocolNotSupported, _no_ssh),
    (asyncssh.ProtocolError, _told),
    (asyncssh.IllegalUserName, _bad_user),
    (asyncssh.MACError, _closed),
    (asyncssh.CompressionError, _closed),
    (asyncssh.ServiceNotAvailable, _closed),
    (asyncssh.DisconnectError, _told),
    (asyncssh.ChannelOpenError, _no_channel),
    (asyncssh.KeyImportError, _bad_key),
    (asyncssh.KeyEncryptionError, _bad_key),
    (OSError, _network),
    (UnicodeDecodeError, _garbled),
)


@contextlib.contextmanager
def translate(hop: Hop, client: _Client | None) -> Iterator[None]:
    """Foreign exceptions become ours, by the table; the cause is kept."""
    try:
        yield
    except TimeoutError:
        raise  # of our own timeout: the caller knows what it was waiting for
    except tuple(foreign for foreign, _ in TABLE) as exc:
        for foreign, ours in TABLE:
            if isinstance(exc, foreign):
                raise ours(exc, hop, client) from exc
        raise


def _reason(exc: Exception) -> str:
    reason = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or str(exc)
    return readable(str(reason)).removesuffix(".")
