"""Which error the log of OpenSSH's ssh (-v) means. Reads logs, known_hosts and key files; writes nothing."""

import contextlib
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from mnspawn import errors
from mnspawn.quoting import quoted
from mnspawn.transport.ssh import addresses
from mnspawn.transport.ssh.sockets import NO_SSH, SLOW
from mnspawn.transport.trust import keys
from mnspawn_inventory.errors import for_shell

# debug lines that show how far it came
CONNECTED = "Entering interactive session"
SESSION_OPENED = "master session id"
CLOSED = r"kex_exchange_identification: |Connection (?:closed|reset) by|Broken pipe|Connection to .* closed"
PROXY = re.compile(r"Executing proxy command: exec (.*?)\s*$", re.MULTILINE)
JUMP = re.compile(r"-W '\[\S+\]:\d+' (\S+)$")  # in what ProxyJump makes of itself
BEFORE = re.compile(r" -J (\S+) ")
CONNECTING = re.compile(r"^debug1: Connecting to (\S+) \[(\S+)\] port (\d+)\.", re.MULTILINE)
_SHOWN_KEY = re.compile(r"Server host key: (\S+) (\S+)")
LEVELS = re.compile(r"^debug\d: ")


def own_words(log: str) -> list[str]:
    """Return the lines that ssh shows without -v."""
    lines = [line.strip() for line in log.replace("\r", "\n").splitlines()]
    return [line for line in lines if line and not LEVELS.match(line) and not line.startswith(("OpenSSH_", "@@@@"))]


def tries(log: str) -> int:
    """Return how many addresses it has tried to connect to."""
    return len(CONNECTING.findall(log))


def explain(log: str, host: str, said: str = "", jumps: Sequence[str] = ()) -> errors.HostError:
    """Return the error that a log ends in.

    Args:
        said: its stderr: banners, and output of a ProxyCommand or of the ssh to the first jump host.
        jumps: the jump hosts on the way in order, if known.
    """
    found = [] if PROXY.search(log) else list(CONNECTING.finditer(log))
    error = _explain(log[found[-1].start() :] if found else log, host, said, jumps)
    if isinstance(error, errors.AuthError):
        error.message += quoted("\n".join(own_words(said)))
    return _with_addresses(error, log, host)


def _with_addresses(error: errors.HostError, log: str, host: str) -> errors.HostError:
    """The error of the last address that was tried, with those before it."""
    found = [] if PROXY.search(log) else list(CONNECTING.finditer(log))
    if not found or not addresses.may_be_elsewhere(error):
        return error
    failures: dict[str, errors.HostError] = {}  # ConnectionAttempts may have tried one several times
    for this, following in pairwise(found):
        failures[this.group(2)] = _explain(log[this.end() : following.start()], host, "", ())
    name, last, port = found[-1].groups()
    failures[last] = error
    return addresses.unusable(list(failures.items()), name, int(port))


def _explain(log: str, host: str, said: str, jumps: Sequence[str]) -> errors.HostError:
    if "Remote protocol version" not in log and (proxy := PROXY.search(log)):
        words = own_words(said)
        if jumps and said.strip():
            return _jump_failed(jumps[-1], ",".join(jumps[:-1]), said, host)
        if words and (jump := JUMP.search(proxy.group(1))):
            before = BEFORE.search(proxy.group(1))
            return _jump_failed(jump.group(1), before.group(1) if before else "", said, host)
        if re.search(CLOSED, log, re.MULTILINE):
            why = f" ({words[-1]})" if words else ""
            hint = f"see what it says: {proxy.group(1)}"
            return errors.ConnectionClosed(
                f"its ProxyCommand ended before the server answered{why}", host=host, hint=hint
            )
    log = log.replace("\r\n", "\n")
    for pattern, make in TABLE:
        if match := re.search(pattern, log, re.MULTILINE):
            return make(match, log, host)
    last = (own_words(log) or ["it ended without a word"])[-1]
    return errors.HostError(f"ssh: {last.removeprefix('ssh: ')}", host=host, hint=f"try `ssh -v {host}`")


def unusable_config(log: str) -> errors.UsageError | None:
    """Return the error for a configuration that ssh rejects, and so reaches no host at all."""
    if match := re.search(r"^(/.*?|\S+?):? line (\d+): (.+?)\.?\s*$", log, re.MULTILINE):
        return errors.UsageError(match.group(3), place=f"{match.group(1)}:{match.group(2)}", hint="mend that line")
    if match := re.search(r"^[Bb]ad owner or permissions on (.+?)\s*$", log, re.MULTILINE):
        return errors.UsageError(
            "others may write to it", place=match.group(1), hint=f"chmod go-w {for_shell(match.group(1))}"
        )
    return None


def _jump_failed(jump: str, before: str, said: str, host: str) -> errors.HostError:
    """Return why the ssh to a jump host ended; `before` are the jump hosts on the way to it."""
    if before:
        jump = f"{before},{jump}"
    if refused := re.search(r"^channel \d+: open failed: (.+?)\s*$", said, re.MULTILINE):
        which = f"of the jump hosts {jump} one can't reach the next" if before else f"jump host {jump} can't reach it"
        return errors.Unreachable(f"{which}: {refused.group(1)}", host=host)
    error = explain(said, jump)
    error.message = f"{'jump hosts' if before else 'jump host'} {jump}: {error.message}"
    error.host = host
    return error


def timed_out(
    log: str, host: str, connect_timeout: float, said: str = "", jumps: Sequence[str] = ()
) -> errors.HostError:
    """Return the error for an ssh that ran out of time: what it was waiting for."""
    if "Authenticated to" in log:
        what = "the server stopped answering after it let us in"
    elif "Remote protocol version" in log:
        what = "the server stopped answering during the handshake"
    elif jumps:
        what = f"the host does not answer through {','.join(jumps)}"
        if CONNECTED not in said:
            what = f"jump host{'s' if len(jumps) > 1 else ''} {','.join(jumps)}: no answer"
    elif "Connection established" in log:
        what = NO_SSH
    else:
        what = "the host does not answer"
    where = CONNECTING.findall(log)
    place = f"{where[-1][0]} port {where[-1][2]}, " if where else ""
    banner = "\n".join(own_words(said))
    error = errors.ConnectTimeout(f"{what} ({place}{connect_timeout:g} s){quoted(banner)}", host=host, hint=SLOW)
    return _with_addresses(error, log, host)


_Make = Callable[[re.Match[str], str, str], errors.HostError]


def _simple(kind: type[errors.HostError], message: str, hint: str | None = None) -> _Make:
    return lambda match, log, host: kind(message.format(*match.groups()), host=host, hint=hint)


def _changed(match: re.Match[str], log: str, host: str) -> errors.HostError:
    place = re.search(r"Offending (\S+) key in (.+?):(\d+)", log)
    shown = _SHOWN_KEY.search(log)
    where = f": {_other_key(Path(place.group(2)), int(place.group(3)))}" if place else ""
    found = f", the host shows {shown.group(2)}" if shown else ""
    return errors.HostKeyChanged(
        f"its {shown.group(1) if shown else 'host'} key has changed{where}{found}",
        host=host,
        hint=f"somebody may be in between; if it was set up anew: mnspawn hosts trust --replace {host}",
    )


def _other_key(path: Path, number: int) -> str:
    """Describe the key in a line of known_hosts; ssh reports only its place."""
    place, words = f"{path}:{number}", b""
    with contextlib.suppress(OSError, IndexError):
        words = path.read_bytes().splitlines()[number - 1].strip()
    after_names = words.partition(b" ")[2].strip()
    key = keys.parse_public(after_names)
    return f"{place} has another" if key is None else keys.entry_shown(place, key)


def _shown_key(log: str) -> str:
    shown = _SHOWN_KEY.search(log)
    return f"its {shown.group(1)} key {shown.group(2)}" if shown else "its key"


def _unknown(match: re.Match[str], log: str, host: str) -> errors.HostError:
    hint = f"compare the fingerprint, then: mnspawn hosts trust {host} (or --host-key-check accept-new)"
    return errors.HostKeyUnknown(f"{_shown_key(log)} is not in known_hosts", host=host, hint=hint)


def _revoked(match: re.Match[str], log: str, host: str) -> errors.HostError:
    return errors.HostKeyChanged(f"{_shown_key(log)} is revoked in known_hosts", host=host, hint="do not connect to it")


def _denied(match: re.Match[str], log: str, host: str) -> errors.HostError:
    methods = match.group(1)
    tried = re.findall(r"Offering public key: (.+?) (?:\S+) (SHA256:\S+)", log)
    missing = list(dict.fromkeys(re.findall(r"no such identity: (.+?): ", log)))
    which = "; there was none to try" + (f", {', '.join(missing)} is not there" if missing else "")
    if tried:
        which = f"; tried {', '.join(f'{path} ({print_})' for path, print_ in tried)}"
    if "publickey" not in methods.split(","):
        return errors.AuthRefused(
            f"the server takes no keys, only {methods}, and nothing is ever asked here",
            host=host,
            hint=f"open a session first (ControlMaster in ssh_config, `ssh {host}`), or allow public keys there",
        )
    if opened := re.search(r'Load key "([^"]+)": bad permissions', log):
        reason = f"key {opened.group(1)} is open to others"
        return errors.KeyUnusable(f"{reason}{which}", host=host, hint=f"chmod 600 {for_shell(opened.group(1))}")
    locked = re.search(r'Load key "([^"]+)": (?:incorrect passphrase|.*passphrase)', log) or _asked(log)
    if path := locked.group(1) if locked else _passed_over(log):
        which = which if tried else ""
        return errors.PassphraseNeeded(
            f"key {path} needs a passphrase, and no agent holds it{which}", host=host, hint=f"ssh-add {for_shell(path)}"
        )
    if broken := re.search(r'Load key "([^"]+)": (.+)', log):
        return errors.KeyUnusable(f"key {broken.group(1)}: {broken.group(2).strip()}{which}", host=host)
    hint = "is the user right? else put the key on the host with ssh-copy-id"
    return errors.AuthRefused(f"no key was accepted{which}", host=host, hint=hint)


def _asked(log: str) -> re.Match[str] | None:
    """Find a key that was offered and accepted but not used: in batch mode ssh skips encrypted keys silently."""
    taken = re.search(r"Server accepts key: (.+?) \S+ SHA256:", log)
    return taken if taken and "Authenticated to" not in log else None


def _passed_over(log: str) -> str | None:
    """Return the first key that was not even offered: encrypted, and its file does not show the public key."""
    paths = re.findall(r"Trying private key: (.+?)\s*$", log, re.MULTILINE)
    return next((path for path in paths if keys.inspect(Path(path)).is_encrypted), None)


def _closed(match: re.Match[str], log: str, host: str) -> errors.HostError:
    if "Remote protocol version" not in log:
        hint = "too many connections at once (MaxStartups), or a firewall? it was tried again"
        return errors.ConnectionClosed("the server hung up before it said anything", host=host, hint=hint)
    where = "" if "Authenticated to" in log else " while it let us in"
    hint = "sshd's log on the host says why"
    error = errors.ConnectionClosed(f"the server hung up{where}", host=host, hint=hint)
    error.is_transient = False
    return error


def _resolve(match: re.Match[str], log: str, host: str) -> errors.HostError:
    whose = "" if match.group(1) == host.lower() else f" for {match.group(1)!r}"  # the host is named anyway
    if "Temporary failure" in match.group(2):
        return errors.LookupFailed(f"the name server does not answer{whose}", host=host)
    hint = "check the spelling, or add a Host block with HostName to ~/.ssh/config"
    return errors.NameUnknown(f"no address is known{whose}", host=host, hint=hint)


# the first that is found holds
TABLE: tuple[tuple[str, _Make], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", _changed),
    (r"REVOKED HOST KEY DETECTED|[Hh]ost key .*revoked", _revoked),
    (r"host key is known for .* and you have requested strict checking|Host key verification failed", _unknown),
    (r"Could not resolve hostname (\S+): (.*)", _resolve),
    (
        r"no matching (.+?) found\. Their offer: (.*)",
        _simple(
            errors.NoCommonAlgorithm,
            "no common {0}; the server has {1}",
            "allow one of them in ssh_config (KexAlgorithms, Ciphers, HostKeyAlgorithms, ...)",
        ),
    ),
    (
        r"Too many authentication failures",
        _simple(
            errors.AuthRefused,
            "the server gave up after too many keys",
            "name the right key: IdentityFile with IdentitiesOnly yes in ssh_config",
        ),
    ),
    (r"Permission denied \(([^)]*)\)", _denied),
    (
        r"connect to (?:host|address) (\S+) port (\d+): Connection refused",
        _simple(
            errors.ConnectionRefused,
            "connection refused at {0} port {1}",
            "is sshd running there, and is this its port?",
        ),
    ),
    (
        r"connect to (?:host|address) (\S+) port (\d+): (No route to host|Network is unreachable|Host is down)",
        _simple(errors.NoRoute, "no route to {0} port {1} ({2})", "is the network up, and is this the right address?"),
    ),
    (
        r"timed out during banner exchange|Connection timed out during",
        _simple(errors.ConnectTimeout, NO_SSH, SLOW),
    ),
    (
        r"connect to (?:host|address) (\S+) port (\d+): .*timed out",
        _simple(errors.ConnectTimeout, "the host does not answer ({0} port {1})", SLOW),
    ),
    (r"timed out", _simple(errors.ConnectTimeout, "the host does not answer", SLOW)),
    (CLOSED, _closed),
    (
        r"session request failed: (.*)|(?:open failed: )(.*)",
        _simple(errors.ChannelRefused, "the server starts no command", "MaxSessions of sshd may be 0 or used up"),
    ),
)
