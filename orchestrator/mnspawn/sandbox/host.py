"""One host of a sandbox: an SSH listener that runs commands as real processes in a home of its own. No terminals."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from mnspawn.transport.asyncssh.library import asyncssh
from mnspawn.transport.pipes import PipedProcess
from mnspawn_agent import ours

WINDOW = 2 << 20
# seconds that a command may outlive its output; after EOF from both ends ssh closes the channel and gets no status
_EOF_AFTER = 2.0
_LOW_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class SandboxHost:
    """A name, a home, a host key and a listener."""

    def __init__(self, name: str, root: Path, user: str) -> None:
        self.name = name
        self.pids: set[int] = set()  # commands that run: those that their PipedProcess reaps
        self._user = user
        self._root = root / name
        self._home = self._root / "home"
        for folder in ("home/.config", "home/.cache", "home/.local/state", "home/.local/share", "run", "tmp"):
            ours.make_missing(str(self._root / folder))
        self._key = asyncssh.generate_private_key("ssh-ed25519", comment=name)

    @property
    def public_key(self) -> str:
        return self._key.export_public_key().decode().strip()

    async def listen(
        self, listeners: contextlib.AsyncExitStack, address: str, trusted: asyncssh.SSHAuthorizedKeys
    ) -> tuple[str, int]:
        """Listen on a free port of `address`, or of 127.0.0.1 where loopback has no more than that."""
        try:
            listener = await self._listen(address, trusted)
        except OSError:
            if address == "127.0.0.1":
                raise
            address = "127.0.0.1"
            listener = await self._listen(address, trusted)
        listeners.callback(listener.close)
        return address, listener.get_port()

    async def _listen(self, address: str, trusted: asyncssh.SSHAuthorizedKeys) -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            address,
            0,
            config=None,
            backlog=128,
            server_factory=lambda: _Server(self),
            server_host_keys=[self._key],
            authorized_client_keys=trusted,
            password_auth=False,
            kbdint_auth=False,
            gss_host=None,
            allow_pty=False,
            agent_forwarding=False,
            allow_scp=False,
            line_editor=False,
            encoding=None,
            window=WINDOW,
        )

    def environment(self, conn: asyncssh.SSHServerConnection) -> dict[str, str]:
        """What sshd gives to a command, with the controller's Python first on PATH and every folder inside."""
        peer, own = conn.get_extra_info("peername"), conn.get_extra_info("sockname")
        return {
            "USER": self._user,
            "LOGNAME": self._user,
            "HOME": str(self._home),
            "SHELL": "/bin/sh",
            "PATH": f"{os.path.dirname(sys.executable)}:{_LOW_PATH}",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(self._root / "tmp"),
            "XDG_RUNTIME_DIR": str(self._root / "run"),
            "XDG_CONFIG_HOME": str(self._home / ".config"),
            "XDG_CACHE_HOME": str(self._home / ".cache"),
            "XDG_STATE_HOME": str(self._home / ".local/state"),
            "XDG_DATA_HOME": str(self._home / ".local/share"),
            "SSH_CLIENT": f"{peer[0]} {peer[1]} {own[1]}",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}",
            "MNSPAWN_SANDBOX_HOST": self.name,
        }

    @property
    def home(self) -> Path:
        return self._home


class _Server(asyncssh.SSHServer):
    """One connection; nothing but sessions is served."""

    def __init__(self, host: SandboxHost) -> None:
        self._host = host
        self._conn: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        assert self._conn is not None
        return _Session(self._host, self._conn)


class _Session(asyncssh.SSHServerSession[bytes]):
    """One command: its channel on one side, its process on the other, each holding the other back."""

    def __init__(self, host: SandboxHost, conn: asyncssh.SSHServerConnection) -> None:
        self._host = host
        self._conn = conn
        self._chan: asyncssh.SSHServerChannel[bytes] | None = None
        self._process: PipedProcess | None = None
        self._command = ""
        self._code: int | None = None
        self._eof: asyncio.TimerHandle | None = None

    # -- the channel's side
    def connection_made(self, chan: "asyncssh.SSHServerChannel[bytes]") -> None:
        self._chan = chan

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return True

    def session_started(self) -> None:
        assert self._chan is not None
        environment = self._host.environment(self._conn)
        try:
            self._process = PipedProcess(self, ["/bin/sh", "-c", self._command], cwd=self._host.home, env=environment)
            self._host.pids.add(self._process.pid)
        except OSError as exc:  # no process can be made: report it as a shell would
            self._chan.write_stderr(f"{self._host.name}: {exc.strerror}\n".encode())
            self._chan.exit(126)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._process is not None:
            self._process.write(data)

    def eof_received(self) -> bool:
        if self._process is not None:
            self._process.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """As sshd: the process is not killed, its pipes are closed."""
        self._chan = None
        if self._eof is not None:
            self._eof.cancel()
        if self._process is not None:
            self._process.close()

    def pause_writing(self) -> None:
        if self._process is not None:
            self._process.pause_reading()

    def resume_writing(self) -> None:
        if self._process is not None:
            self._process.resume_reading()

    # -- the process's side
    def output(self, number: int, chunk: bytes) -> None:
        if self._chan is not None and chunk:
            self._chan.write(chunk, asyncssh.EXTENDED_DATA_STDERR if number == 2 else None)
        elif self._process is not None and not self._process.open_outputs and self._code is None:
            self._eof = asyncio.get_running_loop().call_later(_EOF_AFTER, self._end_output)
        self._finish()

    def _end_output(self) -> None:
        if self._chan is not None:
            self._chan.write_eof()

    def hold_input(self, held: bool) -> None:
        if self._chan is not None:
            self._chan.pause_reading() if held else self._chan.resume_reading()

    def ended(self, code: int) -> None:
        if self._process is not None:
            self._host.pids.discard(self._process.pid)
        self._code = code
        if self._eof is not None:
            self._eof.cancel()
        self._finish()

    def _finish(self) -> None:
        """Send the status once the process is reaped and nothing holds its output open."""
        if self._chan is None or self._process is None or self._code is None or self._process.open_outputs:
            return
        if self._code < 0:
            self._chan.exit_with_signal(signal.Signals(-self._code).name.removeprefix("SIG"))
        else:
            self._chan.exit(self._code)
