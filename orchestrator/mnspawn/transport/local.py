"""Hosts that are all this machine, without SSH: a command is a child of the controller. For tests, mostly."""

import os
import pwd
import signal
from pathlib import Path

from mnspawn.errors import ChannelRefused, ConnectionClosed
from mnspawn.system import open_files

from .base import SshOptions, Target
from .child import ChildProcess, end


class LocalTransport:
    """A Transport; every target is this machine, whatever its address says."""

    def __init__(self, options: SshOptions) -> None:
        self._connections: list[_LocalConnection] = []

    def endpoint(self, target: Target) -> str:
        return target.name  # no server, hence no limit

    async def connect(self, target: Target) -> "_LocalConnection":
        connection = _LocalConnection(target.name)
        self._connections.append(connection)
        return connection

    async def close(self) -> None:
        """Send HUP to what still runs, as a closing terminal does, then KILL."""
        for connection in self._connections:
            await connection.close()
            await connection.end()


class _LocalConnection:
    def __init__(self, host: str) -> None:
        self._host = host
        self._processes: list[ChildProcess] = []
        self._is_closed = False

    async def run(self, command: str) -> ChildProcess:
        if self._is_closed:
            raise ConnectionClosed("the connection was closed", host=self._host)
        account = pwd.getpwuid(os.getuid())
        home = os.environ.get("HOME") or account.pw_dir
        try:
            process = ChildProcess([account.pw_shell or "/bin/sh", "-c", command], cwd=Path(home))
        except OSError as exc:
            open_files.check(exc, is_fork=True)
            raise ChannelRefused(f"no process can be started: {exc.strerror}", host=self._host) from exc
        self._processes.append(process)
        return process

    async def close(self) -> None:
        """As sshd: pipes are closed, nothing is killed."""
        self._is_closed = True
        for process in self._processes:
            await process.close()

    async def end(self) -> None:
        for process in self._processes:
            await end(process, signal.SIGHUP)
