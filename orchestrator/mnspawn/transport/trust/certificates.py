"""OpenSSH host certificates as bytes: who signed, for whom, until when (PROTOCOL.certkeys). Checks no signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .keys import cut_string

_HOST = 2
# strings that stand for the public key, after the nonce
_KEY_PARTS = {"ssh-ed25519": 1, "ecdsa-sha2": 2, "ssh-rsa": 2, "rsa-sha2": 2}


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate; `signed` is what `signature` is over."""

    is_for_host: bool
    principals: tuple[str, ...]
    valid_from: int
    valid_until: int
    critical: bytes
    authority: bytes
    signed: bytes
    signature: bytes

    def objection(self, name: str, authorities: Sequence[bytes], revoked: Sequence[bytes], now: float) -> str:
        """Why it does not prove that the host is `name`; "" when (its signature given) it does."""
        if not self.is_for_host:
            return "it is not for a host"
        if self.authority in revoked:
            return "who signed it is revoked"
        if self.authority not in authorities:
            return "it is signed by somebody whom known_hosts does not name as @cert-authority"
        if not self.valid_from <= now < self.valid_until:
            return "it is not valid now"
        if self.principals and not any(fnmatchcase(name, principal.lower()) for principal in self.principals):
            return f"it is for {', '.join(self.principals)}, not for {name}"
        return "it has critical options that are not known" if self.critical else ""


def parse(blob: bytes) -> Certificate:
    """Take a certificate apart.

    Raises:
        ValueError: it is none, or is cut short.
    """
    kind, rest = cut_string(blob)
    parts = next((n for name, n in _KEY_PARTS.items() if kind.decode("ascii", "replace").startswith(name)), None)
    if parts is None or not kind.endswith(b"-cert-v01@openssh.com"):
        raise ValueError(f"not a certificate of a known type: {kind!r}")
    for _ in range(1 + parts):
        _, rest = cut_string(rest)
    use, rest = int.from_bytes(rest[8:12], "big"), rest[12:]
    _, rest = cut_string(rest)  # the key's id
    packed, rest = cut_string(rest)
    valid_from, valid_until = int.from_bytes(rest[:8], "big"), int.from_bytes(rest[8:16], "big")
    critical, rest = cut_string(rest[16:])
    _, rest = cut_string(rest)  # extensions
    _, rest = cut_string(rest)  # reserved
    authority, rest = cut_string(rest)
    signed = blob[: len(blob) - len(rest)]
    signature, _ = cut_string(rest)
    return Certificate(
        use == _HOST, tuple(_strings(packed)), valid_from, valid_until, critical, authority, signed, signature
    )


def _strings(packed: bytes) -> list[str]:
    found = []
    while packed:
        text, packed = cut_string(packed)
        found.append(text.decode("utf-8", "replace"))
    return found
