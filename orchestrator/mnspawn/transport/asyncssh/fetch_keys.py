"""Fetching host keys and writing them down: what `mnspawn hosts trust` stands on. Asks nobody, prints nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn.transport.base import Target
from mnspawn.transport.config.route import Hop
from mnspawn.transport.trust import keys, known_hosts
from mnspawn.transport.trust.known_hosts import Entry

from .transport import AsyncsshTransport

# one of each that sshd makes by default
KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


@dataclass(frozen=True, slots=True)
class Offer:
    """The keys that a host shows, and what known_hosts has of it so far.

    Attributes:
        name: what known_hosts calls the host.
        path: the file that the keys would be written to.
        new: keys that are not known yet.
        known: those that are.
        stale: lines that have another key of the same type: the host was set up anew, or it is another one.
    """

    host: str
    name: str
    path: Path
    new: tuple[bytes, ...]
    known: tuple[bytes, ...]
    stale: tuple[Entry, ...]
    hash_names: bool

    def fingerprints(self) -> list[tuple[str, str]]:
        """(type, fingerprint) of the new keys, as `ssh-keygen -l` prints them."""
        return [(keys.kind_of(key), keys.fingerprint(key)) for key in self.new]


async def fetch(transport: AsyncsshTransport, target: Target, kinds: Sequence[str] = KINDS) -> Offer:
    """Ask a host for its keys, one connection per type; its jumps are checked as ever.

    Raises:
        HostError: it can't be reached, or shows no key of these types.
    """
    found = [key for kind in kinds if (key := await transport.host_key(target, kind)) is not None]
    return compare(transport.hop(target), found)


def compare(hop: Hop, found: Sequence[bytes]) -> Offer:
    """Hold fetched keys against the files that the host's settings name."""
    name = known_hosts.names_of(hop.address, hop.port, hop.known_as)[0]
    entries = [entry for path in hop.known_hosts for entry in known_hosts.read(path) if entry.speaks_of(name)]
    plain = [entry for entry in entries if not entry.marker]
    known = {entry.key for entry in plain}
    kinds = {keys.kind_of(key) for key in found}
    path = hop.known_hosts[0] if hop.known_hosts else Path("~/.ssh/known_hosts").expanduser()
    return Offer(
        host=hop.name,
        name=name,
        path=path,
        new=tuple(key for key in found if key not in known),
        known=tuple(key for key in found if key in known),
        stale=tuple(entry for entry in plain if entry.key not in found and keys.kind_of(entry.key) in kinds),
        hash_names=hop.hash_known_hosts or known_hosts.is_hashed(path),
    )


def accept(offer: Offer, *, replace: bool = False) -> None:
    """Write the new keys down; hashed where the file is or ssh_config wants it.

    Raises:
        UsageError: a known key would be replaced and `replace` is not given, or the file can't be written.
    """
    if offer.stale and not replace:
        places = ", ".join(entry.place for entry in offer.stale)
        raise UsageError(
            f"{offer.host} shows another key than {places}",
            place=str(offer.path),
            hint="find out why; if the host was set up anew: --replace",
        )
    foreign = [entry.place for entry in offer.stale if entry.path != offer.path]
    if foreign:
        raise UsageError(
            f"the old key is in a file that is not written to: {', '.join(foreign)}",
            place=str(offer.path),
            hint="remove that line",
        )
    if offer.new:
        known_hosts.write(offer.path, offer.name, offer.new, hash_names=offer.hash_names, replace=replace)
