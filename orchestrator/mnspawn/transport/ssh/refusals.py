"""Why a host did not let us in: from what was offered and what the server takes to one clear error."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mnspawn.errors import AuthError, AuthRefused, KeyUnusable, PassphraseNeeded
from mnspawn.quoting import quoted
from mnspawn.transport.config.route import Hop
from mnspawn.transport.trust import keys
from mnspawn.transport.trust.keys import KeyFile
from mnspawn_inventory.errors import for_shell


@dataclass
class Attempt:
    """What happened while one hop was asked to let us in."""

    files: Sequence[KeyFile] = ()
    offered: list[str] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)  # the authentication methods that the server is known to accept
    in_agent: frozenset[bytes] = frozenset()
    banner: bytes | str = ""


def explain(hop: Hop, attempt: Attempt) -> AuthError:
    """Return the error that says which keys were tried and what to do."""
    who = f"{hop.user}@{hop.address}"
    wanted = sorted(attempt.methods - {"publickey"})
    if attempt.methods and "publickey" not in attempt.methods:
        return AuthRefused(
            f"the server takes no keys for {who}, only {', '.join(wanted)}, and nothing is ever asked here"
            f"{quoted(attempt.banner)}",
            host=hop.name,
            hint="allow public keys there, or open a session with ssh (ControlMaster) and use --transport openssh",
        )
    locked = (file for file in attempt.files if file.is_encrypted and file.public not in attempt.in_agent)
    if file := next(locked, None):
        path = shown(file.path)
        return PassphraseNeeded(
            f"key {path} needs a passphrase, and no agent holds it{_tried(attempt)}",
            host=hop.name,
            hint=("" if hop.agent else 'eval "$(ssh-agent)" and ') + f"ssh-add {for_shell(path)}",
        )
    if unusable := [file for file in attempt.files if file.problem and not file.is_missing]:
        reasons = "; ".join(f"key {shown(file.path)} {file.problem}" for file in unusable)
        return KeyUnusable(f"{reasons}{_tried(attempt)}", host=hop.name, hint="mend the key file, or name another one")
    missing = [shown(file.path) for file in attempt.files if file.is_missing]
    if not attempt.offered:
        reason = f"; {', '.join(missing)} is not there" if missing else ""
        return AuthRefused(
            f"there is no key to offer to {who}{reason}",
            host=hop.name,
            hint="make one with ssh-keygen and put it on the host with ssh-copy-id",
        )
    return AuthRefused(
        f"no key was accepted for {who}{_tried(attempt)}",
        host=hop.name,
        hint="is the user right? else put the key on the host with ssh-copy-id",
    )


def too_many(hop: Hop, attempt: Attempt) -> AuthError:
    """Return the error for a server that hung up after too many keys."""
    return AuthRefused(
        f"the server gave up after too many keys for {hop.user}@{hop.address}{_tried(attempt)}",
        host=hop.name,
        hint=f"name the right key: IdentityFile with IdentitiesOnly yes for {hop.name} in ssh_config",
    )


def _tried(attempt: Attempt) -> str:
    """Describe what was tried, and quote the server's banner."""
    tried = f"; tried {', '.join(attempt.offered)}" if attempt.offered else ""
    return tried + quoted(attempt.banner)


def shown(path: Path) -> str:
    """A path as people write it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def label(public: bytes | None, source: str) -> str:
    """Name a key for messages: its source, and its fingerprint as `ssh-keygen -l` prints it."""
    return f"{source} ({keys.fingerprint(public)})" if public else source
