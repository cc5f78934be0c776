"""The SSH seam: what the engine needs of a connection to a host. Knows hosts and bytes, not ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Target:
    """How one host is reached. None means: as ssh_config says, else the default.

    `name` is what people call the host; `alias` is what ssh_config is asked for (default: the name); `address` is where
    it is dialled (default: HostName of ssh_config, else the alias). Of `jump` and `proxy_command` one at most is given.
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
        """The name that ssh would be given."""
        return self.alias if self.alias is not None else self.name


@dataclass(frozen=True, slots=True)
class SshOptions:
    """What holds for every connection of a run.

    Attributes:
        config: ssh_config to use instead of ~/.ssh/config and /etc/ssh/ssh_config.
        connect_timeout: seconds for reaching, proving and being let in, retries included; for each address of a host,
            and for each jump host on the way.
        said: options of the command line that a command which is pasted needs to reach the same hosts.
        host_key_check: "strict" or "accept-new" (None: as ssh_config says, else strict). Nothing ever prompts.
    """

    config: Path | None = None
    connect_timeout: float = 15.0
    host_key_check: str | None = None
    said: str = ""


class RemoteProcess(Protocol):
    """One command on one host, seen as byte streams and an exit status.

    Its stdout and stderr share one window: who reads one must read the other too, or both come to a stand.
    """

    async def read(self) -> bytes:
        """The next bytes of its stdout; b"" at the end of output or when the link is lost."""
        ...

    async def read_diagnostics(self) -> bytes:
        """The next bytes of its stderr; b"" at the end."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Queue bytes for its stdin; returns when the peer's window allows more. Never raises for a lost link."""
        ...

    async def write_eof(self) -> None:
        """Close its stdin."""
        ...

    async def wait(self) -> int | None:
        """Its exit status (128+n for signal n); None: the link died before a status came."""
        ...

    async def close(self) -> None:
        """Give the channel up; a read or wait in progress returns."""
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
        """Which server will hold the connection while it is not let in yet. May take a while: call it in a thread.

        Targets with the same answer share that server's patience with such connections (MaxStartups).

        Raises:
            UsageError: files that the target's settings are in, or name, can't be used; `place` is file:line.
            HostError: the target's settings can't be used.
        """
        ...

    async def connect(self, target: Target) -> Connection:
        """Connect, check the host's key, authenticate; each address within `SshOptions.connect_timeout`.

        Makes one attempt: retrying what is transient is the dialler's work.

        Raises:
            HostError: the most specific class of errors.py, with `host`, message and hint.
        """
        ...

    async def close(self) -> None:
        """Give back what connections share (an agent socket, threads, a helper process)."""
        ...
