"""Which algorithms are offered, and in what order: ours where ssh_config is silent, never weaker than OpenSSH's."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from mnspawn.errors import NoCommonAlgorithm
from mnspawn.transport.config.route import Hop
from mnspawn.transport.trust.host_keys import HostKeys

# post-quantum and cheap first (2 ms over curve25519), then what every sshd speaks; nothing with SHA-1
KEX = (
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "sntrup761x25519-sha512@openssh.com",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group18-sha512",
    "diffie-hellman-group-exchange-sha256",
    "diffie-hellman-group14-sha256",
)
# AES-GCM is twice as fast as ChaCha20 where the CPU has AES
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "umac-128-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
    "umac-128@openssh.com",
)
HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
CERTIFICATE = "-cert-v01@openssh.com"
HOST_CERTIFICATES = tuple(name.removesuffix("@openssh.com") + CERTIFICATE for name in HOST_KEYS)
_SAME = {
    "curve25519-sha256": "curve25519-sha256@libssh.org",
    "sntrup761x25519-sha512": "sntrup761x25519-sha512@openssh.com",
}
_OTHER_NAME = _SAME | {second: first for first, second in _SAME.items()}
RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
_OF_SETTING = {"key exchange": ("kex", KEX), "cipher": ("ciphers", CIPHERS), "MAC": ("macs", MACS)}


def for_hop(hop: Hop, what: str, possible: Sequence[str]) -> list[str]:
    """The names to offer to a host for `what`: key exchange, cipher or MAC. `possible` and errors as for `choose`."""
    setting, ours = _OF_SETTING[what]
    return choose(what, hop.algorithms.get(setting), ours, possible, hop.name)


def for_host_key(hop: Hop, host_keys: HostKeys, possible: Sequence[str]) -> list[str]:
    """The names to offer for the host's key, those of known keys first. `possible` and errors as for `choose`."""
    has_authority = bool(host_keys.authorities(hop))
    ours = (*HOST_CERTIFICATES, *HOST_KEYS) if has_authority else HOST_KEYS
    chosen = choose("host key", hop.algorithms.get("host keys"), ours, possible, hop.name)
    return prefer_known(chosen, host_keys.known_kinds(hop), has_authority)


def choose(what: str, notation: str | None, ours: Sequence[str], possible: Sequence[str], host: str) -> list[str]:
    """The names to offer.

    Args:
        notation: as in ssh_config: a list with * and ?, or one that begins with + (append), - (remove), ^ (prefer).
        ours: the default, best first.
        possible: what the library can do.

    Raises:
        NoCommonAlgorithm: nothing is left.
    """
    offered = [name for name in ours if name in possible]
    if notation:
        sign = notation[0] if notation[0] in "+-^" else ""
        patterns = notation.removeprefix(sign).split(",")
        named = [name for pattern in patterns for name in possible if _is_meant(name, pattern)]
        named = list(dict.fromkeys(named))
        if sign == "-":
            offered = [name for name in offered if name not in named]
        elif sign == "+":
            offered += [name for name in named if name not in offered]
        elif sign == "^":
            offered = named + [name for name in offered if name not in named]
        else:
            offered = named
    if not offered:
        raise NoCommonAlgorithm(
            f"none of the {what} algorithms of ssh_config ({notation}) can be used here",
            host=host,
            hint="--transport openssh has all that ssh has",
        )
    return offered


def _is_meant(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(_OTHER_NAME.get(name, name), pattern)


def prefer_known(offered: Sequence[str], known_kinds: Sequence[str], has_authority: bool) -> list[str]:
    """Host key algorithms with those first whose key we know: any other would look like an unknown host."""
    first: list[str] = []
    for kind in known_kinds:
        first += RSA_SIGNATURES if kind == "ssh-rsa" else (kind,)
    return sorted(offered, key=lambda name: name not in first and not (has_authority and CERTIFICATE in name))
