"""A place that each transport reaches, so that one suite can be held against all of them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mnspawn import transport
from mnspawn.transport import Connection, SshOptions, Target, Transport
from tests.support import PATIENCE, LocalSshd
from tests.support.memory_transport import MemoryConnection, MemoryHost, MemoryTransport, Stdio


@dataclass
class Place:
    """A transport, a host behind it, and the end of the link from outside."""

    name: str
    transport: Transport
    target: Target
    cut: Callable[[], None]

    async def connect(self) -> Connection:
        return await self.transport.connect(self.target)


def ssh_place(name: str, server: LocalSshd) -> AbstractAsyncContextManager[Place]:
    options = SshOptions(config=server.ssh_config, connect_timeout=PATIENCE)
    return _open(Place(name, transport.create(name, options), Target("local"), lambda: kill_sessions(server)))


def local_place() -> AbstractAsyncContextManager[Place]:
    return _open(Place("local", transport.create("local", SshOptions()), Target("here"), lambda: None))


def memory_place() -> AbstractAsyncContextManager[Place]:
    memory = MemoryTransport(hosts={"m1": MemoryHost(shell)})

    def cut() -> None:
        for connection in memory.connections:
            assert isinstance(connection, MemoryConnection)
            connection.cut()

    return _open(Place("memory", memory, Target("m1"), cut))


@asynccontextmanager
async def _open(place: Place) -> AsyncIterator[Place]:
    try:
        yield place
    finally:
        await place.transport.close()


def kill_sessions(server: LocalSshd) -> None:
    """Kill the server's processes that serve connections: the link breaks as by a power cut of the host."""
    assert server._server is not None
    for pid in _descendants(server._server.pid):
        if "sshd" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(below for child in children for below in _descendants(child))]


async def shell(stdio: Stdio, command: str) -> int:
    """What the suite's commands do, for hosts in memory."""
    first, _, rest = command.partition("; ")
    if first == "cat":
        while chunk := await stdio.stdin.read():
            await stdio.stdout.write(chunk)
    elif first.startswith("head -c"):
        left = int(first.split()[2])
        while left:
            size = min(left, 1 << 16)
            await stdio.stdout.write(bytes(size))
            left -= size
    elif first.startswith("echo"):
        text = first.removeprefix("echo ").removesuffix(" >&2")
        await (stdio.stderr if first.endswith(">&2") else stdio.stdout).write(text.encode() + b"\n")
    elif first.startswith("exec sleep"):
        await asyncio.Event().wait()
    elif first.startswith("exit"):
        return int(first.split()[1])
    elif first == "kill -KILL $$":
        return 128 + signal.SIGKILL
    return await shell(stdio, rest) if rest else 0
