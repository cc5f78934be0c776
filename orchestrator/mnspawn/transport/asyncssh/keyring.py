"""Keys for asyncssh: reads each file once per run, asks each agent once per run."""

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import internals
from mnspawn.transport.ssh.key_order import candidates
from mnspawn.transport.ssh.refusals import Attempt, label
from mnspawn.transport.trust import keys

from .library import asyncssh

_RSA_CERTIFICATE = b"ssh-rsa-cert-v01@openssh.com"
_UNLOADABLE = (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError, ValueError)
_OLD = re.compile(r"OpenSSH_(?:[1-6]\.|7\.[0-7])")  # these know certificates by the old name only


@dataclass
class _Agent:
    """A connection to an ssh-agent, and the keys that it holds as (public key, comment)."""

    client: asyncssh.SSHAgentClient
    held: list[tuple[bytes, str]] = field(default_factory=list)

    def pair(self, public: bytes) -> asyncssh.SSHKeyPair:
        # made anew each time: a pair remembers the signature algorithm that one server wanted
        return asyncssh.SSHAgentKeyPair(self.client, keys.kind_of(public).encode(), public, b"")


class Keyring:
    """What can be offered to servers; one per transport."""

    def __init__(self) -> None:
        self._inspect = cache(keys.inspect)
        self._load = cache(_load)
        self._agents: dict[str, _Agent | None] = {}
        self._asking = asyncio.Lock()

    async def offers(self, hop: Hop, attempt: Attempt) -> list[tuple[str, asyncssh.SSHKeyPair]]:
        """Return (label, key pair) in order; files that can't be used are left to `attempt`."""
        agent = await self._agent(hop.agent)
        held = dict(agent.held) if agent else {}
        found: list[tuple[str, asyncssh.SSHKeyPair]] = []
        for one in candidates(hop, attempt, self._inspect, held, self._load, _UNLOADABLE):
            certificates = self._certificates(hop, one.path, one.public) if one.path is not None else []
            if one.key is not None:
                pairs = list(asyncssh.load_keypairs([one.key], certlist=certificates))
            else:
                assert agent is not None
                pairs = [agent.pair(one.public) for _ in (*certificates, None)]
                for pair, certificate in zip(pairs, certificates, strict=False):
                    pair.set_certificate(certificate)
            for pair in pairs:
                found.append((f"certificate of {one.source}" if pair.has_cert else label(one.public, one.source), pair))
        return found

    def _certificates(self, hop: Hop, path: Path, public: bytes) -> list[asyncssh.SSHCertificate]:
        found = []
        for place in (*hop.certificates, path.with_name(path.name + "-cert.pub")):
            with contextlib.suppress(OSError, asyncssh.KeyImportError):  # most keys have no certificate
                certificate = asyncssh.read_certificate(place)
                if certificate.key.public_data == public and not certificate.is_x509:
                    found.append(certificate)
        return found[:1]

    async def _agent(self, path: str | None) -> _Agent | None:
        if path is None:
            return None
        async with self._asking:
            if path not in self._agents:
                agent = _Agent(asyncssh.SSHAgentClient(path))
                try:
                    listed = await agent.client.get_keys()
                except (OSError, ValueError):  # no agent there: as ssh, go on without
                    self._agents[path] = None
                except asyncio.CancelledError:  # it did not answer in time
                    agent.client.close()
                    raise
                else:
                    agent.held = [(pair.public_data, _comment(pair)) for pair in listed]
                    self._agents[path] = agent
            return self._agents[path]

    async def close(self) -> None:
        for agent in self._agents.values():
            if agent is not None:
                agent.client.close()
                await agent.client.wait_closed()
        self._agents.clear()


def _load(path: Path) -> tuple[asyncssh.SSHKey, bytes]:
    key = asyncssh.read_private_key(path)
    return key, key.public_data


def name_certificate(pair: asyncssh.SSHKeyPair, conn: asyncssh.SSHClientConnection) -> None:
    """Name an RSA certificate as servers since OpenSSH 7.8 do: by the hash of the signature that will follow.

    asyncssh tries the old name (SHA-1) first and keeps the new one for a second try, which our next offer displaces.
    """
    choose = internals.signature_chooser(conn)
    if pair.algorithm != _RSA_CERTIFICATE or _OLD.search(str(conn.get_extra_info("server_version"))) or choose is None:
        return
    if choose(pair) and pair.sig_algorithm != b"ssh-rsa":
        pair.algorithm = pair.sig_algorithm + b"-cert-v01@openssh.com"


def _comment(pair: asyncssh.SSHKeyPair) -> str:
    return (pair.get_comment_bytes() or b"key").decode("utf-8", "replace")
