"""Keys for paramiko, in the order in which ssh offers them: from the agent, from files, with their certificates."""

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
from mnspawn.transport.ssh.refusals import Attempt, label, shown
from mnspawn.transport.trust import keys


def offers(hop: Hop, agent: "Agent | None", attempt: Attempt) -> Iterator[tuple[str, PKey]]:
    """Keys in the order in which ssh offers them."""
    files = [keys.inspect(path) for path in hop.identities]
    held = {key.asbytes(): key for key in agent.get_keys()} if agent else {}
    attempt.files, attempt.in_agent = files, frozenset(held)
    for file in files:
        if file.public in held:
            yield from _with_certificates(hop, file.path, held[file.public], file.public)
    others = [key for blob, key in held.items() if blob not in {file.public for file in files}]
    strangers = [] if hop.identities_only else [(label(k.asbytes(), f"agent's {k.comment}"), k) for k in others]
    is_named = hop.origins.get("identityfile") == "inventory"
    if not is_named:
        yield from strangers
    for number, file in enumerate(files):
        if file.public in held or file.is_encrypted or file.problem:
            continue
        if not file.is_private:
            files[number] = file.without_agent()
            continue
        try:
            key = PKey.from_path(file.path)
        except (paramiko.SSHException, OSError, ValueError, TypeError) as exc:
            files[number] = keys.KeyFile(file.path, file.public, problem=f"can't be used: {exc}")
            continue
        yield from _with_certificates(hop, file.path, key, file.public or key.asbytes())
    if is_named:
        yield from strangers


class Agent(AgentSSH):
    """A connection to the agent at a path; paramiko's own only knows SSH_AUTH_SOCK."""

    @classmethod
    def open(cls, path: str | None, host: str, on_socket: Callable[[socket.socket], None]) -> "Agent | None":
        """Ask an agent what it holds, as long as that takes; None where there is none.

        Args:
            host: for whom, in errors.
            on_socket: gets the socket before, to shut it down when nobody waits any more.

        Raises:
            TransportUnavailable: paramiko no longer lets us say which agent.
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
            if keys.certified(key.blob) is not None:  # an RSA one would pass for the plain key in it
                key.inner_key = None
        return held


def _with_certificates(hop: Hop, path: Path, key: PKey, public: bytes) -> Iterator[tuple[str, PKey]]:
    for certificate in (*hop.certificates, path.with_name(path.name + "-cert.pub")):
        blob = keys.public_of(certificate)
        if blob is not None and keys.certified(blob) == public:
            key.public_blob = PublicBlob(keys.kind_of(blob), blob)
            yield f"certificate of {shown(path)}", key
            key.public_blob = None
    yield label(public, shown(path)), key
