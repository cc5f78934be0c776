"""What a transport can't do, with the reason. docs/ssh.md shows this table, and a test keeps the two the same."""

from collections.abc import Mapping

SECURITY_KEYS = "hardware keys (sk-*)"
SIGNAL = "death by signal"
CANONICAL = "CanonicalizeHostname"
MASTER = "ControlMaster"
GSSAPI = "GSSAPI"
PKCS11 = "PKCS#11 keys"
MATCH = "Match localnetwork, version"
FDPASS = "ProxyUseFdpass"
KNOWN_HOSTS_COMMAND = "KnownHostsCommand"
REVOKED = "RevokedHostKeys, binary"
OFFERED = "many hosts"

_OWN_PARSER = "ssh_config is read here, and this part of it is not"
_LIBRARY = "an open session belongs to the ssh program"

MARKS: Mapping[str, Mapping[str, str]] = {
    "asyncssh": {
        CANONICAL: _OWN_PARSER,
        MATCH: _OWN_PARSER,
        FDPASS: _OWN_PARSER,
        KNOWN_HOSTS_COMMAND: _OWN_PARSER,
        REVOKED: _OWN_PARSER,
        MASTER: _LIBRARY,
        GSSAPI: "no Kerberos library is installed with mnspawn",
        PKCS11: "no PKCS#11 library is installed with mnspawn; keys in ssh-agent work",
        SECURITY_KEYS: "no FIDO library is installed with mnspawn; keys in ssh-agent work",
    },
    "paramiko": {
        CANONICAL: _OWN_PARSER,
        MATCH: _OWN_PARSER,
        FDPASS: _OWN_PARSER,
        KNOWN_HOSTS_COMMAND: _OWN_PARSER,
        REVOKED: _OWN_PARSER,
        MASTER: _LIBRARY,
        GSSAPI: "no Kerberos library is installed with mnspawn",
        PKCS11: "paramiko has no PKCS#11; keys in ssh-agent work",
        SECURITY_KEYS: "paramiko has no FIDO",
        OFFERED: "two threads for each host: slower from about 100 hosts on",
    },
    "openssh": {
        SIGNAL: "ssh exits with 255 and does not tell the signal",
        OFFERED: "two processes for each host, and ssh's key exchange costs ten times as much",
    },
    "local": {},
    "memory": {},
}


def table() -> str:
    """The table of docs/ssh.md."""
    names = ("asyncssh", "paramiko", "openssh")
    topics = sorted({topic for name in names for topic in MARKS[name]}, key=str.lower)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for topic in topics:
        cells = [f"no: {MARKS[name][topic]}" if topic in MARKS[name] else "yes" for name in names]
        if topic == OFFERED:
            cells = [cell.replace("no: ", "") for cell in cells]
        lines.append(f"| {topic} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
