"""Keys that a host offers, compared with known_hosts, and written there once accepted. Asks no host and no user."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mnspawn.errors import HostKeyChanged, UsageError
from mnspawn.transport.config.pasting import Pasted
from mnspawn.transport.config.route import Hop

from . import keys, known_hosts


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """One key that known_hosts does not have.

    Attributes:
        kind: its type, ssh-ed25519 or the like.
        fingerprint: as `ssh-keygen -l` prints it.
        before: what known_hosts has in its place: `FILE:LINE has FINGERPRINT`; "" for nothing.
    """

    kind: str
    fingerprint: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """The keys that a host offers, compared with known_hosts.

    Attributes:
        name: what known_hosts calls the host.
        new: keys of types that known_hosts has none of.
        changed: keys in whose place known_hosts has others: the host was set up anew, or it is another one.
        known: how many of its keys are there already.
        path: the file to write to.
        elsewhere: places (FILE:LINE) of other keys that stand in other files.
        keys: the new and the changed ones, as they go over the wire.
        pasted: how commands that messages suggest name the host.
    """

    host: str
    name: str
    new: tuple[OfferedKey, ...]
    changed: tuple[OfferedKey, ...]
    known: int
    path: Path
    elsewhere: tuple[str, ...]
    keys: tuple[bytes, ...]
    hash_names: bool
    pasted: Pasted


def compare(hop: Hop, found: Sequence[bytes]) -> Offer:
    """Compare the keys that a host has shown with the known_hosts files that its settings name."""
    name = known_hosts.name_of(hop.address, hop.port, hop.known_as)
    lines = [entry for path in hop.known_hosts for entry in known_hosts.read(path) if entry.speaks_of(name)]
    plain = [entry for entry in lines if not entry.marker]
    known = {entry.key for entry in plain}
    path = hop.known_hosts[0] if hop.known_hosts else Path("~/.ssh/known_hosts").expanduser()
    new: list[OfferedKey] = []
    changed: list[OfferedKey] = []
    elsewhere: list[str] = []
    unknown = tuple(key for key in found if key not in known)
    for key in found:
        kind = keys.kind_of(key)
        others = [entry for entry in plain if keys.kind_of(entry.key) == kind and entry.key not in found]
        elsewhere += [entry.place for entry in others if entry.path != path]
        if key in known:
            continue
        before = ", ".join(keys.entry_shown(entry.place, entry.key) for entry in others)
        (changed if before else new).append(OfferedKey(kind, keys.fingerprint(key), before))
    return Offer(
        host=hop.name,
        name=name,
        new=tuple(new),
        changed=tuple(changed),
        known=len(found) - len(unknown),
        path=path,
        elsewhere=tuple(elsewhere),
        keys=unknown,
        hash_names=hop.hash_known_hosts or known_hosts.is_hashed(path),
        pasted=hop.pasted,
    )


def accept(offer: Offer, *, replace: bool) -> None:
    """Write a host's keys down; hashed where the file is or ssh_config wants it.

    Raises:
        HostKeyChanged: known_hosts has others, and they are not to be replaced.
        UsageError: the file can't be written, or another file has the other keys.
    """
    if offer.changed and not replace:
        raise changed(offer)
    if offer.elsewhere:
        raise UsageError(
            f"the old key is in a file that is not written to: {', '.join(offer.elsewhere)}",
            place=str(offer.path),
            hint="remove that line",
        )
    if offer.keys:
        known_hosts.write(offer.path, offer.name, offer.keys, hash_names=offer.hash_names, replace=replace)


def changed(offer: Offer) -> HostKeyChanged:
    """Return the error for a host that offers other keys than known_hosts has."""
    first, *more = (f"{key.before}, the host shows {key.fingerprint}" for key in offer.changed)
    message = f"its {offer.changed[0].kind} key has changed: {first}"
    if more:
        lines = (f"{key.kind}: {line}" for key, line in zip(offer.changed, [first, *more], strict=True))
        message = "\n".join(["its host keys have changed", *lines])
    hint = f"somebody may be in between; if it was set up anew: mnspawn hosts trust --replace {offer.pasted.ours}"
    return HostKeyChanged(message, host=offer.host, hint=hint)
