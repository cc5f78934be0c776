"""The SSH seam: what the engine needs of a connection to a host. Knows hosts and bytes, not ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Target:
    """How to reach one host. None means: as ssh_config says, else the default.

    Attributes:
        name: what people call the host.
        address: where to connect (default: HostName of ssh_config, else the alias).
        identity: the private key file to use.
        jump: jump hosts, as `ssh -J` takes them; excludes `proxy_command`.
        alias: the name to look up in ssh_config (default: `name`).
    """

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    jump: str | None = None
    proxy_command: str | None = None
    alias: str | None = None

    @property
    def ssh_name(self) -> str:
        """The name to give to ssh."""
        return self.alias if self.alias is not None else self.name


@dataclass(frozen=True, slots=True)
class SshOptions:
    """What holds for every connection of a run.

    Attributes:
        config: ssh_config to use instead of ~/.ssh/config and /etc/ssh/ssh_config.
        connect_timeout: seconds to connect, check the host key and log in, retries included; for each address of a
            host, and for each jump host on the way.
        said: the options of our command line that reach the same hosts, for commands that messages suggest.
        host_key_check: "strict" or "accept-new" (None: as ssh_config says, else strict). Nothing ever prompts.
    """

    config: Path | None = None
    connect_timeout: float = 15.0
    host_key_check: str | None = None
    said: str = ""


class RemoteProcess(Protocol):
    """One command on one host, seen as byte streams and an exit status.

    Its stdout and stderr share one window: a caller must read both, or both stall.
    """

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; b"" at the end of output or when the link is lost."""
        ...

    async def read_diagnostics(self) -> bytes:
        """Return the next bytes of its stderr; b"" at the end."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Queue bytes for its stdin; return when there is room for more. Never raises for a lost link."""
        ...

    async def write_eof(self) -> None:
        """Close its stdin."""
        ...

    async def wait(self) -> int | None:
        """Return its exit status (128+n for signal n); None if the link was lost before a status came."""
        ...

    async def close(self) -> None:
        """Abandon the channel; a read or wait in progress returns."""
        ...


class Connection(Protocol):
    """An authenticated connection to one host."""

    async def run(self, command: str) -> RemoteProcess:
        """Start a command line in the account's login shell, without a terminal.

        Raises:
            HostError: the server opens no session, or the link is lost.
        """
        ...

    async def close(self) -> None:
        """Close the connection; never raises, never waits for a peer that does not answer."""
        ...


class Transport(Protocol):
    """A way to reach hosts; one object serves a whole run and reads keys and known_hosts once."""

    def endpoint(self, target: Target) -> str:
        """Return the server that a connection counts against until it is logged in. May block: call it in a thread.

        Targets with the same answer share that server's limit on such connections (MaxStartups).

        Raises:
            UsageError: a settings file, or a file that it names, can't be used; `place` is file:line.
            HostError: the target's settings can't be used.
        """
        ...

    async def connect(self, target: Target) -> Connection:
        """Connect, check the host's key and log in; each address within `SshOptions.connect_timeout`.

        Makes one attempt: retrying after a transient failure is the caller's work.

        Raises:
            HostError: the most specific class of errors.py, with `host`, message and hint.
        """
        ...

    async def close(self) -> None:
        """Release what connections share (an agent socket, threads, a helper process)."""
        ...
