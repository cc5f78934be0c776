"""Keys for paramiko: from an agent and from files, with their certificates."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PKey, PublicBlob

from mnspawn.errors import TransportUnavailable
from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import internals
from mnspawn.transport.ssh.key_order import candidates
from mnspawn.transport.ssh.refusals import Attempt, label
from mnspawn.transport.trust import keys


def offers(hop: Hop, agent: "Agent | None", attempt: Attempt) -> Iterator[tuple[str, PKey]]:
    """Yield (label, key) in order; files that can't be used are left to `attempt`."""
    in_agent = {key.asbytes(): key for key in agent.get_keys()} if agent else {}
    held = {public: key.comment for public, key in in_agent.items()}
    for one in candidates(hop, attempt, keys.inspect, held, _load, _UNLOADABLE):
        key = one.key if one.key is not None else in_agent[one.public]
        paths = (*hop.certificates, one.path.with_name(one.path.name + "-cert.pub")) if one.path is not None else ()
        for path in paths:
            blob = keys.public_of(path)
            if blob is not None and keys.certified(blob) == one.public:
                key.public_blob = PublicBlob(keys.kind_of(blob), blob)
                yield f"certificate of {one.source}", key
                key.public_blob = None
        yield label(one.public, one.source), key


_UNLOADABLE = (paramiko.SSHException, OSError, ValueError, TypeError)


def _load(path: Path) -> tuple[PKey, bytes]:
    key = PKey.from_path(path)
    return key, key.asbytes()


class Agent(AgentSSH):
    """A connection to the agent at a path; paramiko's own uses SSH_AUTH_SOCK only."""

    @classmethod
    def open(cls, path: str | None, host: str, on_socket: Callable[[socket.socket], None]) -> "Agent | None":
        """Ask an agent what it holds, however long that takes; None if no agent answers there.

        Args:
            host: the host to name in errors.
            on_socket: receives the socket beforehand, so that the caller can shut it down.

        Raises:
            TransportUnavailable: this version of paramiko can't ask an agent of our choice.
        """
        if path is None:
            return None
        agent = cls()
        opener = internals.agent_opener(agent)
        if opener is None:
            reason = f"this version of paramiko ({paramiko.__version__}) can't ask the agent at {path}"
            hint = "--transport asyncssh can; IdentityAgent none in ssh_config goes without"
            raise TransportUnavailable(reason, host=host, hint=hint)
        connect, agent.close = opener
        sock = socket.socket(socket.AF_UNIX)
        on_socket(sock)
        try:
            sock.connect(path)
            connect(sock)
        except (OSError, paramiko.SSHException):  # no agent there: as ssh, go on without
            sock.close()
            return None
        return agent

    close: Callable[[], None]

    def get_keys(self) -> Sequence[AgentKey]:  # type: ignore[override]
        held = super().get_keys()
        key: Any
        for key in held:
            if keys.certified(key.blob) is not None:  # paramiko would take an RSA certificate for its plain key
                key.inner_key = None
        return held
