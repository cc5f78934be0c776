"""Keys for asyncssh: files read once per run, the agent asked once per run, in the order in which ssh offers them."""

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from mnspawn.transport.config.route import Hop
from mnspawn.transport.ssh import internals
from mnspawn.transport.ssh.refusals import Attempt, label, shown
from mnspawn.transport.trust import keys
from mnspawn.transport.trust.keys import KeyFile

from .library import asyncssh

_RSA_CERTIFICATE = b"ssh-rsa-cert-v01@openssh.com"
_OLD = re.compile(r"OpenSSH_(?:[1-6]\.|7\.[0-7])")  # these know certificates by the old name only


@dataclass
class _Agent:
    """An agent's socket, and what it holds: (public key, comment)."""

    client: asyncssh.SSHAgentClient
    held: list[tuple[bytes, str]] = field(default_factory=list)

    def pair(self, public: bytes) -> asyncssh.SSHKeyPair:
        # made anew each time: a pair remembers the signature algorithm that one server wanted
        return asyncssh.SSHAgentKeyPair(self.client, keys.kind_of(public).encode(), public, b"")


class Keyring:
    """What can be offered to servers; one per transport."""

    def __init__(self) -> None:
        self._files: dict[Path, KeyFile] = {}
        self._loaded: dict[Path, asyncssh.SSHKey] = {}
        self._agents: dict[str, _Agent | None] = {}
        self._asking = asyncio.Lock()

    async def offers(self, hop: Hop, attempt: Attempt) -> list[tuple[str, asyncssh.SSHKeyPair]]:
        """(label, key pair) in order; files that can't be used are left to `attempt`."""
        files = [self._inspect(path) for path in hop.identities]
        agent = await self._agent(hop.agent)
        held = dict(agent.held) if agent else {}
        own = [file for file in files if file.public in held]
        ours: list[tuple[str, asyncssh.SSHKeyPair]] = []
        others: list[tuple[str, asyncssh.SSHKeyPair]] = []
        if agent is not None:
            for file in own:
                assert file.public is not None
                for certificate in self._certificates(hop, file):
                    ours.append((f"certificate of {shown(file.path)}", agent.pair(file.public)))
                    ours[-1][1].set_certificate(certificate)
                ours.append((label(file.public, shown(file.path)), agent.pair(file.public)))
            if not hop.identities_only:
                mine = {file.public for file in own}
                others = [
                    (label(public, f"agent's {comment}"), agent.pair(public))
                    for public, comment in agent.held
                    if public not in mine
                ]
        local: list[tuple[str, asyncssh.SSHKeyPair]] = []
        for number, file in enumerate(files):
            if file in own or file.is_encrypted or file.problem:
                continue
            if not file.is_private:
                files[number] = file.without_agent()
                continue
            try:
                key = self._load(file.path)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError, ValueError) as exc:
                files[number] = self._files[file.path] = KeyFile(
                    file.path, file.public, problem=f"can't be used: {exc}"
                )
                continue
            public = file.public or key.public_data
            for pair in asyncssh.load_keypairs([key], certlist=self._certificates(hop, file, public)):
                source = f"certificate of {shown(file.path)}" if pair.has_cert else label(public, shown(file.path))
                local.append((source, pair))
        attempt.files, attempt.in_agent = files, frozenset(held)
        is_named = hop.origins.get("identityfile") == "inventory"
        return [*ours, *local, *others] if is_named else [*ours, *others, *local]

    def _inspect(self, path: Path) -> KeyFile:
        if path not in self._files:
            self._files[path] = keys.inspect(path)
        return self._files[path]

    def _load(self, path: Path) -> asyncssh.SSHKey:
        if path not in self._loaded:
            self._loaded[path] = asyncssh.read_private_key(path)
        return self._loaded[path]

    def _certificates(self, hop: Hop, file: KeyFile, public: bytes | None = None) -> list[asyncssh.SSHCertificate]:
        public = public or file.public
        found = []
        for path in (*hop.certificates, file.path.with_name(file.path.name + "-cert.pub")):
            with contextlib.suppress(OSError, asyncssh.KeyImportError):  # most keys have no certificate
                certificate = asyncssh.read_certificate(path)
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


def name_certificate(pair: asyncssh.SSHKeyPair, conn: asyncssh.SSHClientConnection) -> None:
    """Call an RSA certificate what servers since OpenSSH 7.8 call it: by the hash of the signature to come.

    asyncssh tries the old name, SHA-1's, and has the new one ready for a second try, which our next offer displaces.
    """
    choose = internals.signature_chooser(conn)
    if pair.algorithm != _RSA_CERTIFICATE or _OLD.search(str(conn.get_extra_info("server_version"))) or choose is None:
        return
    if choose(pair) and pair.sig_algorithm != b"ssh-rsa":
        pair.algorithm = pair.sig_algorithm + b"-cert-v01@openssh.com"


def _comment(pair: asyncssh.SSHKeyPair) -> str:
    return (pair.get_comment_bytes() or b"key").decode("utf-8", "replace")
