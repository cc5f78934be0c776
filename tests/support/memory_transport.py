"""A transport whose hosts exist in memory only: programs are coroutines, faults are settings."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mnspawn.errors import ChannelRefused, ConnectionClosed, ConnectTimeout, HostError
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.inbox import Inbox

_WINDOW = 2 << 20

Program = Callable[["Stdio", str], Awaitable[int]]


@dataclass
class MemoryHost:
    """What a host does.

    Attributes:
        program: gets its streams and the command line; returns the exit status.
        refusals: raised, one per attempt, before a connection comes about.
        answers: False for a host that takes connections and never speaks.
    """

    program: Program
    refusals: list[HostError] = field(default_factory=list)
    answers: bool = True


class Stream:
    """One direction of bytes with a window."""

    def __init__(self, window: int = _WINDOW) -> None:
        self._room = asyncio.Event()
        self._room.set()
        self._inbox = Inbox(self._room.clear, self._room.set, window)

    async def write(self, chunk: bytes) -> None:
        self._inbox.put(chunk)
        await self._room.wait()

    async def read(self) -> bytes:
        return await self._inbox.get()

    def end(self) -> None:
        self._inbox.end()
        self._room.set()

    def discard(self) -> None:
        self._inbox.discard()
        self._room.set()


class Stdio:
    """A program's three streams."""

    def __init__(self) -> None:
        self.stdin, self.stdout, self.stderr = Stream(), Stream(), Stream()


class MemoryTransport:
    """A Transport to the hosts put into `hosts`, by name."""

    def __init__(self, options: SshOptions | None = None, hosts: dict[str, MemoryHost] | None = None) -> None:
        self._options = options or SshOptions()
        self.hosts = hosts if hosts is not None else {}
        self.connections: list[MemoryConnection] = []
        self.attempts: list[str] = []

    def endpoint(self, target: Target) -> str:
        return f"{target.address or target.ssh_name}:{target.port or 22}"

    async def connect(self, target: Target) -> "MemoryConnection":
        self.attempts.append(target.name)
        host = self.hosts[target.name]
        await asyncio.sleep(0)
        if host.refusals:
            raise host.refusals.pop(0)
        if not host.answers:
            await asyncio.sleep(self._options.connect_timeout)
            raise ConnectTimeout("the host does not answer", host=target.name)
        connection = MemoryConnection(target.name, host)
        self.connections.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()


class MemoryConnection:
    """A Connection; `cut` is the end of the link from outside."""

    def __init__(self, name: str, host: MemoryHost) -> None:
        self._name = name
        self._host = host
        self._processes: list[MemoryProcess] = []
        self.is_closed = False
        self.refuses_sessions = False

    async def run(self, command: str) -> "MemoryProcess":
        if self.is_closed:
            raise ConnectionClosed("the connection was closed", host=self._name)
        if self.refuses_sessions:
            raise ChannelRefused("the server opens no session", host=self._name)
        process = MemoryProcess(self._host.program, command)
        self._processes.append(process)
        return process

    async def close(self) -> None:
        self.cut()
        for process in self._processes:
            await process.close()

    def cut(self) -> None:
        """Lose the link: streams end, no status comes."""
        self.is_closed = True
        for process in self._processes:
            process.lose()


class MemoryProcess:
    """A RemoteProcess that is a task."""

    def __init__(self, program: Program, command: str) -> None:
        self._stdio = Stdio()
        self._status: int | None = None
        self._done = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(program, command), name=f"memory {command[:20]}")

    async def _run(self, program: Program, command: str) -> None:
        try:
            self._status = await program(self._stdio, command)
        finally:
            self._stdio.stdout.end()
            self._stdio.stderr.end()
            self._stdio.stdin.discard()
            self._done.set()

    async def read(self) -> bytes:
        return await self._stdio.stdout.read()

    async def read_diagnostics(self) -> bytes:
        return await self._stdio.stderr.read()

    async def write(self, chunk: bytes) -> None:
        if not self._done.is_set():
            await self._stdio.stdin.write(chunk)

    async def write_eof(self) -> None:
        self._stdio.stdin.end()

    async def wait(self) -> int | None:
        await self._done.wait()
        return self._status

    async def close(self) -> None:
        self.lose()
        self._stdio.stdout.discard()
        self._stdio.stderr.discard()

    def lose(self) -> None:
        """The program sees the end of its input, as an agent does, and what it says reaches nobody."""
        self._stdio.stdin.end()
        self._stdio.stdout.end()
        self._stdio.stderr.end()
        if not self._task.done():
            self._task.cancel()
        self._done.set()
