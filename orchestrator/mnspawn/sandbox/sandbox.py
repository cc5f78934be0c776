"""Throw-away hosts on this machine behind a built-in SSH server on loopback. Linux; elsewhere with one address.

The server is a child process, so that encrypting and relaying output at hundreds of MB/s does not slow the controller
down, and so that it can clean up after a controller that was killed. It ends when its stdin does, kills what its hosts
still run, and removes their folder. If it is killed itself, the next sandbox on this machine removes the folder.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mnspawn.errors import HostError, UsageError
from mnspawn.system import open_files, temporary
from mnspawn.transport.base import SshOptions, Target

if TYPE_CHECKING:
    from .host import SandboxHost

PREFIX = "mnspawn-sandbox-"
MAX_HOSTS = 250  # one loopback address each
_START = 20.0  # seconds: a loaded machine takes a few for the import alone
_STOP = 10.0
_FILES = 7  # that the server has open for each host, as measured: sockets, pipes, a command that starts
_RESERVE = 16
_PR_SET_CHILD_SUBREAPER = 36


class Sandbox:
    """`count` hosts, named sandbox-1 and so on, for as long as the context lasts.

    Attributes:
        targets: how to reach the hosts.
        options: for `transport.create`, to reach them.

    Raises:
        UsageError: the number of hosts is out of range, no folder can be made, or too few open files are allowed.
        HostError: the server did not come up.
    """

    def __init__(self, count: int, *, connect_timeout: float = 15.0) -> None:
        if not 1 <= count <= MAX_HOSTS:
            raise UsageError(f"expected 1 to {MAX_HOSTS} sandbox hosts, found {count}", place="--sandbox")
        self._count = count
        self._connect_timeout = connect_timeout
        self._server: asyncio.subprocess.Process | None = None
        self._root = Path()
        self.targets: tuple[Target, ...] = ()
        self.options = SshOptions()

    async def __aenter__(self) -> Self:
        temporary.sweep(PREFIX)
        self._root = temporary.new(PREFIX)
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        with open_files.raised():  # as the server does
            open_files.check_room(_FILES * self._count + _RESERVE, f"{self._count} sandbox hosts")
        settings = {"root": str(self._root), "count": self._count, "path": sys.path}
        program = "import json, sys; s = json.loads(sys.stdin.readline()); sys.path[:] = s['path']; "
        program += "from mnspawn.sandbox.sandbox import serve; serve(s)"
        with (self._root / "server.log").open(
            "w+b"
        ) as log:  # read through this: a server that fails removes its folder
            self._server = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the controller's to handle
            )
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.write(json.dumps(settings).encode() + b"\n")
            try:
                async with asyncio.timeout(_START):
                    ready = await self._server.stdout.readline()
            except TimeoutError:
                ready = b""
            if not ready:
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()
                reason = said[-1] if said else "no reason given"
                raise HostError(f"the sandbox did not start: {reason}", host="sandbox")
        self.targets = tuple(Target(name) for name in json.loads(ready))
        self.options = SshOptions(config=self._root / "ssh_config", connect_timeout=self._connect_timeout)

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            assert server.stdin is not None
            server.stdin.close()
            try:
                async with asyncio.timeout(_STOP):
                    await server.wait()
            except TimeoutError:
                server.kill()
                await server.wait()
        shutil.rmtree(self._root, ignore_errors=True)  # gone already, unless the server was killed


# -- what runs in the server's process


def serve(settings: dict[str, Any]) -> None:
    """Serve hosts until stdin ends, then leave nothing behind."""
    root = Path(settings["root"])
    lock = temporary.own(root)
    if sys.platform == "linux":  # orphans of the hosts' programs become our children, so that we can end them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        with open_files.raised():
            asyncio.run(_serve(root, settings["count"]))
    finally:
        kill_descendants()
        shutil.rmtree(root, ignore_errors=True)
        os.close(lock)


async def _serve(root: Path, count: int) -> None:
    from mnspawn.transport.asyncssh.library import asyncssh

    from .host import SandboxHost

    client_key = asyncssh.generate_private_key("ssh-ed25519")
    (root / "id_ed25519").touch(mode=0o600)
    client_key.write_private_key(root / "id_ed25519")
    trusted = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
    user = pwd.getpwuid(os.getuid()).pw_name
    names: list[str] = []
    config: list[str] = []
    known: list[str] = []
    hosts: list[SandboxHost] = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, lambda: _reap_orphans(hosts))
    async with contextlib.AsyncExitStack() as listeners:
        for number in range(1, count + 1):
            host = SandboxHost(f"sandbox-{number}", root, user)
            address, port = await host.listen(listeners, f"127.0.0.{number}", trusted)
            hosts.append(host)
            names.append(host.name)
            config.append(f"Host {host.name}\n  HostName {address}\n  Port {port}\n")
            known.append(f"[{address}]:{port} {host.public_key}\n")
        options = {
            "User": user,
            "IdentityFile": f'"{root}/id_ed25519"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f'"{root}/known_hosts"',
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        config.append("Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items()))
        (root / "known_hosts").write_text("".join(known))
        (root / "ssh_config").write_text("".join(config))
        os.write(1, json.dumps(names).encode() + b"\n")
        await _wait_for_eof()


async def _wait_for_eof() -> None:
    """Wait until the controller closes our stdin, or dies, or a signal comes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    waits = [asyncio.ensure_future(reader.read()), asyncio.ensure_future(stopped.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _reap_orphans(hosts: "Sequence[SandboxHost]") -> None:
    """Reap orphans of the hosts' programs: they became our children, and a zombie looks alive."""
    commands = {pid for host in hosts for pid in host.pids}
    for pid in _children(os.getpid()):
        if pid not in commands:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_descendants(deadline: float = 5.0) -> None:
    """KILL all descendants of this process until none is left, daemons included."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        for pid in _children(os.getpid()):
            for victim in (pid, *_descendants(pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the process ended meanwhile
            found += map(int, task.read_text().split())
    return found
