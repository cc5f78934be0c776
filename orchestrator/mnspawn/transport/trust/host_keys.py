"""Checks a server's key against known_hosts, and records a new one if the settings say so."""

import base64
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from mnspawn.errors import HostKeyChanged, HostKeyUnknown, SettingsUnusable, TransportUnavailable, UsageError
from mnspawn.transport.config.route import ACCEPT_NEW, Hop

from . import keys
from .known_hosts import Entry, KnownHosts, name_of

log = logging.getLogger(__name__)


class HostKeys:
    """One per transport; parses each known_hosts file once. Thread-safe."""

    def __init__(self) -> None:
        self._known = KnownHosts()
        self._revoked: dict[Path, frozenset[bytes]] = {}
        self._lock = threading.Lock()

    def entries(self, hop: Hop) -> list[Entry]:
        """Return the lines for a host, by its alias or by address and port."""
        return self._entries(hop, name_of(hop.address, hop.port, hop.known_as))

    def _entries(self, hop: Hop, name: str) -> list[Entry]:
        with self._lock:
            return self._known.entries(hop.known_hosts, name)

    def _without_port(self, hop: Hop) -> list[Entry]:
        """Return the lines for a host's address alone: ssh accepts a key from there for any port."""
        return [] if hop.port == 22 or hop.known_as else self._entries(hop, name_of(hop.address, 22))

    def problem(self, hop: Hop) -> UsageError | None:
        """Return a broken line of known_hosts, which may have been meant for a host that was not found."""
        with self._lock:
            return self._known.problem(hop.known_hosts)

    def check_files(self, hop: Hop) -> None:
        """Check that the files allow the host to be used, whatever key it shows.

        Raises:
            UsageError: it will not be found, and a broken line may have been meant for it; or RevokedHostKeys can't
                be read.
        """
        self._revoked_keys(hop)
        if hop.host_key_check == ACCEPT_NEW or self.entries(hop) or self._without_port(hop):
            return
        if problem := self.problem(hop):
            raise problem

    def known_kinds(self, hop: Hop) -> list[str]:
        """The types of the host's known keys; empty when a certificate or any key will do."""
        return [keys.kind_of(entry.key) for entry in self.entries(hop) if not entry.marker]

    def authorities(self, hop: Hop) -> list[bytes]:
        """Keys whose signature on a host certificate counts for this host."""
        authorities = _marked(self.entries(hop), "cert-authority")
        return authorities or _marked(self._without_port(hop), "cert-authority")

    def revoked(self, hop: Hop) -> list[bytes]:
        return [*_marked(self.entries(hop), "revoked"), *self._revoked_keys(hop)]

    def _revoked_keys(self, hop: Hop) -> frozenset[bytes]:
        path = hop.revoked_keys
        if path is None:
            return frozenset()
        with self._lock:
            if path not in self._revoked:
                self._revoked[path] = _read_revoked(path, hop)
            return self._revoked[path]

    def check(self, hop: Hop, key: bytes) -> None:
        """Check that the key is the host's; record it if it is new and new keys are accepted.

        Raises:
            HostKeyChanged: known_hosts says that it has another one, or that this one is revoked.
            HostKeyUnknown: known_hosts says nothing, and new keys are not accepted.
            SettingsUnusable: known_hosts says nothing, but has a broken line.
        """
        kind, found = keys.kind_of(key), keys.fingerprint(key)
        if key in self._revoked_keys(hop):
            raise HostKeyChanged(
                f"its {kind} key {found} is revoked in {hop.revoked_keys}", host=hop.name, hint="do not connect to it"
            )
        entries = self.entries(hop)
        plain = [entry for entry in entries if not entry.marker]
        for entry in entries:
            if entry.marker == "revoked" and entry.key == key:
                raise HostKeyChanged(
                    f"its {kind} key {found} is revoked at {entry.place}", host=hop.name, hint="do not connect to it"
                )
        if any(entry.key == key for entry in plain):
            return
        if before := [keys.entry_shown(one.place, one.key) for one in plain if keys.kind_of(one.key) == kind]:
            raise HostKeyChanged(
                f"its {kind} key has changed: {', '.join(before)}, the host shows {found}",
                host=hop.name,
                hint="somebody may be in between; if it was set up anew: "
                f"mnspawn hosts trust --replace {hop.pasted.ours}",
            )
        if not plain and any(entry.key == key and not entry.marker for entry in self._without_port(hop)):
            return
        if hop.host_key_check != ACCEPT_NEW:
            if problem := self.problem(hop):
                raise SettingsUnusable(str(problem), host=hop.name, hint=problem.hint)
            trusting = f"mnspawn hosts trust {hop.pasted.ours} (or --host-key-check accept-new)"
            hint = f"compare the fingerprint, then: {trusting}"
            if "knownhostscommand" in hop.origins:
                hint = f"--transport openssh asks KnownHostsCommand; else {hint}"
            raise HostKeyUnknown(f"its {kind} key {found} is not in known_hosts", host=hop.name, hint=hint)
        self._record(hop, key)

    def _record(self, hop: Hop, key: bytes) -> None:
        name = name_of(hop.address, hop.port, hop.known_as)
        path = hop.known_hosts[0] if hop.known_hosts else Path("/dev/null")
        with self._lock:
            try:
                hash_names = hop.hash_known_hosts or self._known.is_hashed(path)
                self._known.record(path, name, key, hash_names=hash_names)
            except UsageError as exc:  # as ssh: the host is used, and asked about again next time
                log.warning("%s: its key could not be recorded: %s", hop.name, exc)
                return
        log.info("%s: its key %s is now in %s", hop.name, keys.fingerprint(key), path)


def _marked(entries: Sequence[Entry], marker: str) -> list[bytes]:
    return [entry.key for entry in entries if entry.marker == marker]


def _read_revoked(path: Path, hop: Hop) -> frozenset[bytes]:
    """The keys of a RevokedHostKeys file. As for ssh, nobody is trusted when it can't be read."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"can't read the keys that are revoked: {exc.strerror}", place=str(path)) from exc
    if content.startswith(b"SSHKRL"):
        reason = f"{path} is a binary list of revoked keys, which only ssh itself reads"
        raise TransportUnavailable(reason, host=hop.name, hint="--transport openssh")
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(b"#"):
            if (key := keys.parse_public(line)) is None:
                raise UsageError("expected a public key", place=f"{path}:{number}")
            found.append(key)
    return frozenset(found)


def public_line(key: bytes) -> bytes:
    """As in a .pub file, for libraries that import it."""
    return f"{keys.kind_of(key)} {base64.b64encode(key).decode()}".encode()
