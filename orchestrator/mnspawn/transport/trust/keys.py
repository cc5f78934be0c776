"""Private key files before any library reads them: is one there, safe, encrypted, and which public key is it of?"""

import base64
import binascii
import hashlib
import os
import re
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"openssh-key-v1\0"
_BEGIN = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """One IdentityFile.

    Attributes:
        public: its public key as it goes over the wire, where that can be told without a passphrase.
        is_private: False where only the public key is there: it stands for one that the agent may have.
        problem: why it can't be used; "" when it can.
        broken_line: the line from which on it is no private key; 0 where it looks like one.
    """

    path: Path
    public: bytes | None = None
    is_encrypted: bool = False
    is_private: bool = True
    problem: str = ""
    broken_line: int = 0

    @property
    def is_missing(self) -> bool:
        return self.problem == MISSING


_AGENT_PATIENCE = 2.0  # seconds
MISSING = "is not there"
PUBLIC = "is there as a public key only, and no agent holds its private one"


def inspect(path: Path) -> KeyFile:
    """Inspect a key file. One that holds only a public key stands for a key in the agent."""
    try:
        status = path.stat()
        text = path.read_bytes()
    except FileNotFoundError:
        public = public_of(path.with_name(path.name + ".pub"))
        return KeyFile(path, public, is_private=False) if public else KeyFile(path, problem=MISSING)
    except OSError as exc:
        return KeyFile(path, problem=f"can't be read ({exc.strerror})")
    if public := parse_public(text):
        return KeyFile(path, public, is_private=False)
    public = public_of(path.with_name(path.name + ".pub"))
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        mode = oct(stat.S_IMODE(status.st_mode))[2:]
        return KeyFile(path, public, problem=f"is open to others (mode {mode}; chmod 600 it)")
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if _BEGIN.match(line)), None)
    if first is None:
        return KeyFile(path, public, problem="is not a private key (line 1 is no BEGIN line)", broken_line=1)
    broken, packed = _armour(lines, first)
    if broken:
        problem = f"is damaged (line {broken} is neither base64 nor the END line)"
        return KeyFile(path, public, problem=problem, broken_line=broken)
    if b"OPENSSH" in lines[first]:
        return _inspect_openssh(path, packed, public, first + 2)
    is_encrypted = b"ENCRYPTED" in lines[first] or b"Proc-Type: 4,ENCRYPTED" in text
    return KeyFile(path, public, is_encrypted=is_encrypted)


def _armour(lines: Sequence[bytes], first: int) -> tuple[int, bytes]:
    """The number of the first line of a PEM block that does not belong there, or 0; and what is in the block."""
    packed = b""
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if line.startswith(b"-----END"):
            break
        if b":" in line:  # Proc-Type and the like, before an empty line
            continue
        if not _BASE64.fullmatch(line.strip()):
            return number, b""
        packed += line.strip()
    else:
        return len(lines) + 1, b""
    try:
        return 0, base64.b64decode(packed, validate=True)
    except binascii.Error:
        return number - 1, b""  # its last line is cut short


def _inspect_openssh(path: Path, packed: bytes, public: bytes | None, line: int) -> KeyFile:
    try:
        if not packed.startswith(_MAGIC):
            raise ValueError
        cipher, rest = cut_string(packed[len(_MAGIC) :])
        _, rest = cut_string(rest)
        _, rest = cut_string(rest)
        own, rest = cut_string(rest[4:])
        cut_string(rest)  # the private part
    except ValueError:
        return KeyFile(path, public, problem=f"is damaged (line {line} ff. hold no key)", broken_line=line)
    return KeyFile(path, own, is_encrypted=cipher != b"none")


def cut_string(packed: bytes) -> tuple[bytes, bytes]:
    """The first string of SSH's wire format, and what comes after it.

    Raises:
        ValueError: it is cut short.
    """
    end = 4 + int.from_bytes(packed[:4], "big")
    if len(packed) < end:
        raise ValueError("cut short")
    return packed[4:end], packed[end:]


def public_of(path: Path) -> bytes | None:
    """The key of a .pub file, a certificate included; None where there is none."""
    try:
        return parse_public(path.read_bytes())
    except OSError:
        return None


def parse_public(text: bytes) -> bytes | None:
    """The key of a line as in a .pub file; None when it is none."""
    words = text.split(None, 2)
    if len(words) < 2 or text.startswith(b"-"):
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
        kind, _ = cut_string(blob)
    except (ValueError, binascii.Error):
        return None
    return blob if kind == words[0] else None


def entry_shown(place: str, blob: bytes) -> str:
    """Describe a line of known_hosts for messages."""
    return f"{place} has {fingerprint(blob)}"


def kind_of(blob: bytes) -> str:
    """The algorithm of a public key: ssh-ed25519 and the like."""
    return cut_string(blob)[0].decode("ascii", "replace")


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def certified(certificate: bytes) -> bytes | None:
    """The plain public key that an OpenSSH certificate is for; None when it is no certificate."""
    try:
        kind, rest = cut_string(certificate)
        plain = kind.removesuffix(b"-cert-v01@openssh.com")
        if plain == kind:
            return None
        parts = {b"ssh-ed25519": 1, b"ssh-rsa": 2}.get(plain, 2 if plain.startswith(b"ecdsa-sha2") else 0)
        plain = plain + b"@openssh.com" if plain.startswith(b"sk-") else plain
        _, rest = cut_string(rest)  # the nonce
        fields = rest
        for _ in range(parts):
            _, fields = cut_string(fields)
    except ValueError:
        return None
    return len(plain).to_bytes(4, "big") + plain + rest[: len(rest) - len(fields)] if parts else None


def agent_has_keys(path: str | None) -> bool:
    """Whether an agent may hold keys; False if none answers at the path."""
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_AGENT_PATIENCE)
        try:
            sock.connect(path)
            sock.sendall(b"\0\0\0\1\x0b")  # SSH_AGENTC_REQUEST_IDENTITIES
            answer = b""
            while len(answer) < 9 and (chunk := sock.recv(9 - len(answer))):
                answer += chunk
        except TimeoutError:
            return True  # it may wait for its user
        except OSError:
            return False
    return len(answer) == 9 and int.from_bytes(answer[5:], "big") > 0
