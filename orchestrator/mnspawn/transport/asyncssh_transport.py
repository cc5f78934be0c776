"""Hosts over asyncssh: the default transport. Connects, checks the host's key, authenticates; never prompts."""

import asyncio
import contextlib
import ctypes.util
import getpass
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mnspawn import errors
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.inbox import Inbox


def _no_library(name: str) -> None:
    return None


# asyncssh looks for liboqs while it is imported, which runs ldconfig, gcc and ld; cryptography has ML-KEM itself
_find_library = ctypes.util.find_library
ctypes.util.find_library = _no_library
try:
    import asyncssh
finally:
    ctypes.util.find_library = _find_library

WINDOW = 2 << 20  # measured: smaller and much larger are both slower
_STDERR = asyncssh.EXTENDED_DATA_STDERR


class _Process(asyncssh.SSHClientSession[bytes]):
    """A RemoteProcess over one session channel."""

    def __init__(self) -> None:
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._stdout = Inbox(self._pause, self._resume)
        self._stderr = Inbox(self._pause, self._resume)
        self._full = 0  # inboxes over their bound
        self._status: int | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    # -- what asyncssh calls
    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        self._chan = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        (self._stderr if datatype == _STDERR else self._stdout).put(data)

    def eof_received(self) -> bool:
        self._stdout.end()
        self._stderr.end()
        return True  # our own side stays open

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._status = status_of_signal(signal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._chan = None
        self._stdout.end()
        self._stderr.end()
        self._writable.set()
        self._closed.set()

    # -- what the engine calls
    async def read(self) -> bytes:
        return await self._stdout.get()

    async def read_diagnostics(self) -> bytes:
        return await self._stderr.get()

    async def write(self, chunk: bytes) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):  # the command is gone: wait() tells
                self._chan.write(chunk)
        await self._writable.wait()

    async def write_eof(self) -> None:
        if self._chan is not None:
            with contextlib.suppress(BrokenPipeError):
                self._chan.write_eof()

    async def wait(self) -> int | None:
        await self._closed.wait()
        return self._status

    async def close(self) -> None:
        chan = self._chan
        if chan is not None:
            chan.close()  # a dead peer never confirms this, so what waits here is woken at once
            self.connection_lost(None)
        self._stdout.discard()
        self._stderr.discard()

    def _pause(self) -> None:
        self._full += 1
        if self._chan is not None:
            self._chan.pause_reading()

    def _resume(self) -> None:
        self._full -= 1
        if self._full == 0 and self._chan is not None:
            self._chan.resume_reading()


def status_of_signal(name: str) -> int:
    """128+n for the signal that SSH calls `name` (without SIG); 255 for one that this system does not know."""
    number = getattr(signal, f"SIG{name.partition('@')[0]}", None)
    return 128 + int(number) if isinstance(number, signal.Signals) else 255


class _Connection:
    """A Connection over one asyncssh client connection."""

    def __init__(self, host: str, conn: asyncssh.SSHClientConnection) -> None:
        self._host = host
        self._conn = conn

    async def run(self, command: str) -> _Process:
        with translate(self._host):
            _, process = await self._conn.create_session(
                _Process, command, encoding=None, window=WINDOW, env=None, send_env=None, request_pty=False
            )
        return cast(_Process, process)

    async def close(self) -> None:
        self._conn.close()


class AsyncsshTransport:
    """A Transport: one for a whole run."""

    def __init__(self, options: SshOptions) -> None:
        self._options = options

    def endpoint(self, target: Target) -> str:
        return f"{target.address or target.name}:{target.port}"

    async def connect(self, target: Target) -> _Connection:
        settings: dict[str, Any] = {}
        if target.user is not None:
            settings["username"] = target.user
        if target.port is not None:
            settings["port"] = target.port
        if target.identity is not None:
            settings["client_keys"] = [str(target.identity)]
        if target.jump is not None:
            settings["tunnel"] = target.jump
        timeout = self._options.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                with translate(target.name):
                    conn = await asyncssh.connect(
                        target.address or target.name,
                        config=_config_files(self._options),
                        preferred_auth="publickey",
                        gss_host=None,
                        encoding=None,
                        connect_timeout=None,
                        login_timeout=timeout,
                        **settings,
                    )
        except TimeoutError:
            raise errors.ConnectTimeout(
                f"no connection within {timeout:g} s", host=target.name, hint="is the host up, and does sshd answer?"
            ) from None
        return _Connection(target.name, conn)

    async def close(self) -> None:
        """Nothing is shared between connections."""


def _config_files(options: SshOptions) -> list[str]:
    if options.config is not None:
        return [str(options.config)]
    candidates = [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
    return [str(path) for path in candidates if os.access(path, os.R_OK)]


_KINDS: list[tuple[type[BaseException], type[errors.HostError], str | None]] = [
    (asyncssh.HostKeyNotVerifiable, errors.HostKeyUnknown, "compare its fingerprint and add it: mnspawn hosts trust"),
    (asyncssh.PermissionDenied, errors.AuthRefused, "add the key to the host's authorized_keys, or to ssh-agent"),
    (asyncssh.KeyExchangeFailed, errors.NoCommonAlgorithm, None),
    (asyncssh.ChannelOpenError, errors.ChannelRefused, None),
    (asyncssh.ConnectionLost, errors.ConnectionClosed, None),
    (asyncssh.DisconnectError, errors.ConnectionClosed, None),
    (asyncssh.KeyImportError, errors.KeyUnusable, None),
    (ConnectionRefusedError, errors.ConnectionRefused, "is sshd running there?"),
    (ConnectionResetError, errors.ConnectionClosed, None),
    (OSError, errors.NoRoute, None),
]


@contextlib.contextmanager
def translate(host: str) -> Iterator[None]:
    """Foreign exceptions become ours, by the table above; the cause is kept."""
    try:
        yield
    except TimeoutError:
        raise
    except (asyncssh.Error, asyncssh.KeyImportError, OSError) as exc:
        for foreign, ours, hint in _KINDS:
            if isinstance(exc, foreign):
                raise ours(str(exc), host=host, hint=hint) from exc
        raise


def local_user() -> str:
    return getpass.getuser()
