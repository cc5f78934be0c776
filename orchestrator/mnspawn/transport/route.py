"""How one host is reached: inventory values over ssh_config over defaults, each with its origin; jumps included.

Asks nobody, connects nowhere. What it gives is the same for every transport that speaks SSH itself.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mnspawn.errors import SettingsUnusable, TransportUnavailable, UsageError
from mnspawn.transport import keys
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.ssh_config import HostConfig, SshConfig

STRICT, ACCEPT_NEW = "strict", "accept-new"
_CHECKS = {"yes": STRICT, "ask": STRICT, "accept-new": ACCEPT_NEW, "no": ACCEPT_NEW, "off": ACCEPT_NEW}
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
# what OpenSSH 9.6 refuses too: such a name would be code in somebody's ProxyCommand
_BAD_HOST = re.compile(r"^-|[\s\x00-\x20\x7f'`\"$\\;&<>|(){}]|^$")
_BAD_USER = re.compile(r"^-|['`\";&<>|(){}\x00-\x1f\x7f]|\\$|\s\\|^$")
_MAX_JUMPS = 8  # more is a circle
_INVENTORY = "inventory"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH server on the way, and all that is needed to be let in.

    Attributes:
        jump: the server before it, through which it is reached.
        identities: private key files to offer, in order.
        agent: socket of the agent to ask, None for none.
        known_hosts: files that are read; the first is written to.
        known_as: what known_hosts calls the host: a HostKeyAlias or None for its address and port.
        origins: for each setting where its value comes from.
    """

    name: str
    address: str
    port: int
    user: str
    jump: "Hop | None"
    proxy_command: str | None
    proxy_template: str | None
    identities: tuple[Path, ...]
    certificates: tuple[Path, ...]
    identities_only: bool
    agent: str | None
    known_hosts: tuple[Path, ...]
    known_as: str | None
    hash_known_hosts: bool
    host_key_check: str
    family: int
    bind_address: str | None
    connect_timeout: float
    algorithms: Mapping[str, str]  # kex, ciphers, macs, host keys: OpenSSH's own notation
    compression: bool
    env: tuple[tuple[str, str], ...]
    origins: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.address} port {self.port}"


class Router:
    """One per transport: the configuration is read once.

    Raises:
        UsageError: ssh_config can't be read; `place` is file:line.
    """

    def __init__(self, options: SshOptions) -> None:
        self._options = options
        self._config = SshConfig(options.config)
        self._hops: dict[Target, Hop] = {}

    def hop(self, target: Target) -> Hop:
        """Where the target is, and the way to it. Asked for the first time it may run commands (Match exec).

        Raises:
            HostError: its settings can't be used.
        """
        if target not in self._hops:
            try:
                self._hops[target] = self._hop(target, 0)
            except UsageError as exc:
                raise SettingsUnusable(str(exc), host=target.name, hint=exc.hint) from exc
        return self._hops[target]

    def endpoint(self, target: Target) -> str:
        """See Transport.endpoint."""
        hop = self.hop(target)
        if hop.proxy_template is not None:
            return hop.proxy_template  # most often a connection of its own to one and the same bastion
        way = hop.jump.place + " " if hop.jump else ""
        return way + hop.place

    def _hop(self, target: Target, depth: int) -> Hop:
        if depth > _MAX_JUMPS:
            raise UsageError(f"more than {_MAX_JUMPS} jumps: ProxyJump goes round in a circle")
        _check_name(target.name, _BAD_HOST, "host name")
        config = self._config.lookup(target.name, target.user, target.port)
        origins = {name: values[0].origin for name, values in config.values.items()}
        for name, given in (("user", target.user), ("port", target.port), ("hostname", target.address)):
            if given is not None:
                origins[name] = _INVENTORY
        address = _unbracket(target.address or config.hostname)
        _check_name(address, _BAD_HOST, "host name")
        _check_name(config.user, _BAD_USER, "user name")
        if not 0 < config.port < 65536:
            raise UsageError(f"expected a port from 1 to 65535, found {config.port}", place=origins.get("port"))
        if (config.text("canonicalizehostname") or "no").lower() in ("yes", "always"):
            raise TransportUnavailable(
                "CanonicalizeHostname is set, which only ssh itself does", host=target.name, hint="--transport openssh"
            )
        jump, command = self._way(target, config, depth)
        if target.jump is not None:
            origins["proxyjump"] = _INVENTORY
        if target.identity is not None:
            origins["identityfile"] = _INVENTORY
        return Hop(
            name=target.name,
            address=address,
            port=config.port,
            user=config.user,
            jump=jump,
            proxy_command=_expand_command(command, config, address) if command else None,
            proxy_template=command,
            identities=_identities(target, config),
            certificates=tuple(Path(config.expand(value)) for value in config.all("certificatefile")),
            identities_only=config.flag("identitiesonly", False),
            agent=_agent(config),
            known_hosts=_known_hosts(config),
            known_as=config.text("hostkeyalias"),
            hash_known_hosts=config.flag("hashknownhosts", False),
            host_key_check=self._host_key_check(config),
            family=_family(config),
            bind_address=config.text("bindaddress"),
            connect_timeout=min(self._options.connect_timeout, config.number("connecttimeout") or float("inf")),
            algorithms=_algorithms(config),
            compression=config.flag("compression", False),
            env=_environment(config),
            origins=origins,
        )

    def _way(self, target: Target, config: HostConfig, depth: int) -> tuple[Hop | None, str | None]:
        """The jump or the ProxyCommand that leads to a host."""
        jumps = target.jump
        if jumps is None:
            if (command := config.text("proxycommand")) is not None:
                return None, None if command.lower() == "none" else command
            jumps = config.text("proxyjump")
        if jumps is None or jumps.lower() == "none":
            return None, None
        before, _, last = jumps.rpartition(",")
        user, host, port = parse_destination(last)
        # with one jump its own ProxyJump counts, with several those before it do: as `ssh -J` has it
        return self._hop(Target(host, user=user, port=port, jump=before or None), depth + 1), None

    def _host_key_check(self, config: HostConfig) -> str:
        if self._options.host_key_check is not None:
            return self._options.host_key_check
        value = config.get("stricthostkeychecking")
        if value is None:
            return STRICT
        if value.text.lower() not in _CHECKS:
            raise UsageError(f"expected yes, no, ask or accept-new, found {value.text!r}", place=value.origin)
        return _CHECKS[value.text.lower()]


def parse_destination(text: str) -> tuple[str | None, str, int | None]:
    """[user@]host[:port], [user@][v6]:port or ssh://[user@]host[:port], as ProxyJump has them.

    Raises:
        UsageError: it is none of these.
    """
    text = text.strip().removeprefix("ssh://").rstrip("/")
    user, _, rest = text.rpartition("@")
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:\[\]]+)(?::(\d+))?|([0-9a-fA-F:.]+(?:%\w+)?)", rest)
    if match is None:
        raise UsageError(f"expected [user@]host[:port], found {text!r}")
    port = match.group(2) or match.group(4)
    return user or None, match.group(1) or match.group(3) or match.group(5), int(port) if port else None


def check_names(target: Target) -> None:
    """Refuse names that would be code in a shell.

    Raises:
        SettingsUnusable: one of them would.
    """
    try:
        for name, bad, what in (
            (target.name, _BAD_HOST, "host name"),
            (target.address, _BAD_HOST, "host name"),
            (target.user, _BAD_USER, "user name"),
        ):
            if name is not None:
                _check_name(name, bad, what)
    except UsageError as exc:
        raise SettingsUnusable(str(exc), host=target.name) from exc


def _check_name(name: str, bad: re.Pattern[str], what: str) -> None:
    if bad.search(name):
        raise UsageError(f"{what} {name!r} has characters that a shell would take as code, or none at all")


def _unbracket(address: str) -> str:
    return address[1:-1] if address.startswith("[") and address.endswith("]") else address


def _expand_command(command: str, config: HostConfig, address: str) -> str:
    tokens = {**config.tokens(), "h": address}
    return re.sub(r"%(.?)", lambda match: tokens.get(match.group(1), match.group(0)), command)


def _identities(target: Target, config: HostConfig) -> tuple[Path, ...]:
    if target.identity is not None:
        return (target.identity.expanduser(),)
    given = [value for value in config.all("identityfile") if value.text.lower() != "none"]
    if config.all("identityfile"):
        return tuple(Path(config.expand(value)) for value in given)
    folder = Path("~/.ssh").expanduser()
    return tuple(folder / name for name in keys.DEFAULT_NAMES if (folder / name).exists())


def _agent(config: HostConfig) -> str | None:
    value = config.get("identityagent")
    path = os.environ.get("SSH_AUTH_SOCK")
    if value is not None:
        if value.text.lower() == "none":
            return None
        if value.text.startswith("$") and not value.text.startswith("${"):
            path = os.environ.get(value.text[1:])
        elif value.text != "SSH_AUTH_SOCK":
            path = config.expand(value)
    return path or None


def _known_hosts(config: HostConfig) -> tuple[Path, ...]:
    files: list[Path] = []
    for keyword, default in (
        ("userknownhostsfile", ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")),
        ("globalknownhostsfile", ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")),
    ):
        value = config.get(keyword)
        words = tuple(config.expand(value, word) for word in value.words) if value else default
        files += [Path(word).expanduser() for word in words if word.lower() != "none"]
    return tuple(files)


def _family(config: HostConfig) -> int:
    value = config.get("addressfamily")
    if value is None:
        return socket.AF_UNSPEC
    if value.text.lower() not in _FAMILIES:
        raise UsageError(f"expected any, inet or inet6, found {value.text!r}", place=value.origin)
    return _FAMILIES[value.text.lower()]


def _algorithms(config: HostConfig) -> dict[str, str]:
    names = {"kexalgorithms": "kex", "ciphers": "ciphers", "macs": "macs", "hostkeyalgorithms": "host keys"}
    return {ours: value.text for keyword, ours in names.items() if (value := config.get(keyword)) is not None}


def _environment(config: HostConfig) -> tuple[tuple[str, str], ...]:
    """What SendEnv and SetEnv ask for; a server takes what its AcceptEnv allows."""
    found: dict[str, str] = {}
    for value in config.all("sendenv"):
        for pattern in value.words:
            found.update({name: text for name, text in os.environ.items() if fnmatchcase(name, pattern)})
    for value in config.all("setenv"):
        for word in value.words:
            name, _, text = word.partition("=")
            found[name] = text
    return tuple(found.items())


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value, for people to read: what `hosts show` prints."""

    name: str
    value: str
    origin: str  # "inventory", "default", or file:line


def describe(hop: Hop) -> tuple[Setting, ...]:
    """All that decides how a host is reached, each with its origin."""
    families = {int(number): name for name, number in _FAMILIES.items()}
    values: tuple[tuple[str, str, object], ...] = (
        ("address", "hostname", hop.address),
        ("port", "port", hop.port),
        ("user", "user", hop.user),
        ("jump", "proxyjump", hop.jump and hop.jump.name),
        ("proxy command", "proxycommand", hop.proxy_command),
        ("identity files", "identityfile", " ".join(map(str, hop.identities))),
        ("identities only", "identitiesonly", "yes" if hop.identities_only else "no"),
        ("certificates", "certificatefile", " ".join(map(str, hop.certificates))),
        ("agent", "identityagent", hop.agent),
        ("known hosts", "userknownhostsfile", " ".join(map(str, hop.known_hosts))),
        ("host key alias", "hostkeyalias", hop.known_as),
        ("host key check", "stricthostkeychecking", hop.host_key_check),
        ("address family", "addressfamily", families[hop.family]),
        ("connect timeout", "connecttimeout", f"{hop.connect_timeout:g} s"),
    )
    return tuple(
        Setting(name, "none" if value in (None, "") else str(value), hop.origins.get(keyword, DEFAULT))
        for name, keyword, value in values
    )
