"""How to reach one host: inventory over ssh_config over defaults, each value with its origin; jumps included.

Connects nowhere. The result is the same for every transport that speaks SSH itself.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mnspawn.errors import HostError, SettingsUnusable, TransportUnavailable, UsageError
from mnspawn.transport.base import SshOptions, Target

from . import names
from .pasting import Pasted, pasted
from .ssh_config import HostConfig, SshConfig, expand_tokens

STRICT, ACCEPT_NEW = "strict", "accept-new"
_LAX = ("accept-new", "no", "off", "false")
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
_MAX_JUMPS = 8  # more is a circle
_INVENTORY = "inventory"
DEFAULT = "default"
DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH server on the way, and all that is needed to log in.

    Attributes:
        jump: the server before it, through which it is reached.
        identities: private key files to offer, in order.
        agent: socket of the agent to ask, None for none.
        known_hosts: files that are read; the first is written to.
        known_as: what known_hosts calls the host: a HostKeyAlias or None for its address and port.
        revoked_keys: a file with host keys that are never accepted.
        pasted: how commands for people name it.
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
    revoked_keys: Path | None
    hash_known_hosts: bool
    host_key_check: str
    family: int
    bind_address: str | None
    connect_timeout: float
    algorithms: Mapping[str, str]  # kex, ciphers, macs, host keys: OpenSSH's own notation
    compression: bool
    env: tuple[tuple[bytes, bytes], ...]  # as they go over the wire: text of any encoding
    pasted: Pasted
    origins: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.address} port {self.port}"

    @property
    def server(self) -> str:
        """See Transport.endpoint."""
        if self.proxy_template is not None:
            return self.proxy_template  # most often a connection of its own to one and the same bastion
        return f"{self.jump.place} {self.place}" if self.jump else self.place


class Router:
    """One per transport; reads the configuration once.

    Raises:
        UsageError: ssh_config can't be read; `place` is file:line.
    """

    def __init__(self, options: SshOptions) -> None:
        self._options = options
        self._config = SshConfig(options.config, patience=options.connect_timeout)
        self._hops: dict[Target, Hop] = {}

    def hop(self, target: Target) -> Hop:
        """Return where the target is, and the way to it. The first call for a target may run commands (Match exec).

        Raises:
            UsageError: ssh_config has something that can't be used; `place` is file:line.
            HostError: its settings can't be used.
        """
        if target not in self._hops:
            try:
                self._hops[target] = self._hop(target, 0)
            except UsageError as exc:
                if exc.place is not None:
                    raise
                raise SettingsUnusable(str(exc), host=target.name, hint=exc.hint) from exc
            except HostError as exc:  # perhaps of its jump host
                exc.host = target.name
                raise
        return self._hops[target]

    def config(self, target: Target) -> HostConfig:
        """Return what ssh_config says of a target. Raises as `hop`."""
        return self._config.lookup(target.ssh_name, target.user, target.port)

    def close(self) -> None:
        """End the commands that still run."""
        self._config.close()

    def _hop(self, target: Target, depth: int, place: str | None = None) -> Hop:
        """`place` is the line that names the target, where one does."""
        names.check_host(target.ssh_name, place)
        if target.user is not None:
            names.check_user(target.user, place)
        config = self.config(target)
        origins = {name: values[0].origin for name, values in config.values.items()}
        for name, given in (("user", target.user), ("port", target.port), ("hostname", target.address)):
            if given is not None:
                origins[name] = _INVENTORY
        address = _lowered(_unbracket(target.address or config.hostname))
        names.check_host(address, None if target.address else _line(config, "hostname"))
        names.check_user(config.user, None if target.user else _line(config, "user"))
        if not 0 < config.port < 65536:
            raise UsageError(f"expected a port from 1 to 65535, found {config.port}")
        _check_means(config, target)
        tokens = config.tokens(address)
        jump, command = self._way(target, config, depth, tokens)
        if target.jump is not None:
            origins["proxyjump"] = _INVENTORY
        if target.proxy_command is not None:
            origins["proxycommand"] = _INVENTORY
        if target.identity is not None:
            origins["identityfile"] = _INVENTORY
        return Hop(
            name=target.name,
            address=address,
            port=config.port,
            user=config.user,
            jump=jump,
            proxy_command=expand_tokens(command, tokens, _line(config, "proxycommand")) if command else None,
            proxy_template=command,
            identities=_identities(target, config, tokens),
            certificates=tuple(Path(config.expand(value, tokens=tokens)) for value in config.all("certificatefile")),
            identities_only=config.flag("identitiesonly"),
            agent=_agent(config, tokens),
            known_hosts=_known_hosts(config, tokens),
            known_as=config.text("hostkeyalias"),
            revoked_keys=_revoked_keys(config, tokens),
            hash_known_hosts=config.flag("hashknownhosts"),
            host_key_check=self._host_key_check(config),
            family=_FAMILIES[(config.text("addressfamily") or "any").lower()],
            bind_address=config.text("bindaddress"),
            connect_timeout=min(self._options.connect_timeout, config.seconds("connecttimeout") or float("inf")),
            algorithms=_algorithms(config),
            compression=config.flag("compression"),
            env=_environment(config),
            pasted=pasted(target, self._options),
            origins=origins,
        )

    def _way(
        self, target: Target, config: HostConfig, depth: int, tokens: Mapping[str, str]
    ) -> tuple[Hop | None, str | None]:
        """The jump or the ProxyCommand that leads to a host."""
        if target.proxy_command is not None:
            return None, target.proxy_command
        jumps, place = target.jump, None
        if jumps is None:
            if (command := config.text("proxycommand")) is not None:
                return None, None if command.lower() == "none" else command
            jumps, place = config.text("proxyjump"), _line(config, "proxyjump")
        if jumps is None or jumps.lower() == "none":
            return None, None
        if depth >= _MAX_JUMPS:
            raise UsageError(f"more than {_MAX_JUMPS} jumps: ProxyJump goes round in a circle", place=place)
        jumps = expand_tokens(jumps, {token: tokens[token] for token in "%hnpr"}, place)
        before, _, last = jumps.rpartition(",")
        user, host, port = parse_destination(last)
        # with one jump its own ProxyJump counts, with several those before it do: as `ssh -J` has it
        return self._hop(Target(host, user=user, port=port, jump=before or None), depth + 1, place), None

    def _host_key_check(self, config: HostConfig) -> str:
        if self._options.host_key_check is not None:
            return self._options.host_key_check
        return ACCEPT_NEW if (config.text("stricthostkeychecking") or "yes").lower() in _LAX else STRICT


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


def _line(config: HostConfig, keyword: str) -> str | None:
    value = config.get(keyword)
    return None if value is None or value.origin == "given" else value.origin


def _check_means(config: HostConfig, target: Target) -> None:
    """Check that no setting needs the ssh program itself.

    Raises:
        TransportUnavailable: it is.
    """
    for keyword, name in (("canonicalizehostname", "CanonicalizeHostname"), ("proxyusefdpass", "ProxyUseFdpass")):
        if (config.text(keyword) or "no").lower() not in ("no", "false"):
            raise TransportUnavailable(
                f"{name} is set, which only ssh itself does", host=target.name, hint="--transport openssh"
            )


def _lowered(address: str) -> str:
    return address if "%" in address else address.lower()  # after % comes the name of an interface


def _unbracket(address: str) -> str:
    return address[1:-1] if address.startswith("[") and address.endswith("]") else address


def _identities(target: Target, config: HostConfig, tokens: dict[str, str]) -> tuple[Path, ...]:
    if target.identity is not None:
        return (target.identity.expanduser(),)
    given = [value for value in config.all("identityfile") if value.text.lower() != "none"]
    if config.all("identityfile"):
        return tuple(Path(config.expand(value, tokens=tokens)) for value in given)
    folder = Path("~/.ssh").expanduser()
    return tuple(folder / name for name in DEFAULT_KEYS if (folder / name).exists())


def _agent(config: HostConfig, tokens: dict[str, str]) -> str | None:
    value = config.get("identityagent")
    path = os.environ.get("SSH_AUTH_SOCK")
    if value is not None:
        if value.text.lower() == "none":
            return None
        if value.text.startswith("$") and not value.text.startswith("${"):
            path = os.environ.get(value.text[1:])
        elif value.text != "SSH_AUTH_SOCK":
            path = config.expand(value, tokens=tokens)
    return path or None


def _known_hosts(config: HostConfig, tokens: dict[str, str]) -> tuple[Path, ...]:
    files: list[Path] = []
    for keyword, default in (
        ("userknownhostsfile", ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")),
        ("globalknownhostsfile", ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")),
    ):
        value = config.get(keyword)
        words = tuple(config.expand(value, word, tokens) for word in value.words) if value else default
        files += [Path(word).expanduser() for word in words if word.lower() != "none"]
    return tuple(files)


def _revoked_keys(config: HostConfig, tokens: dict[str, str]) -> Path | None:
    value = config.get("revokedhostkeys")
    return None if value is None or value.text.lower() == "none" else Path(config.expand(value, tokens=tokens))


def _algorithms(config: HostConfig) -> dict[str, str]:
    names = {"kexalgorithms": "kex", "ciphers": "ciphers", "macs": "macs", "hostkeyalgorithms": "host keys"}
    return {ours: value.text for keyword, ours in names.items() if (value := config.get(keyword)) is not None}


def _environment(config: HostConfig) -> tuple[tuple[bytes, bytes], ...]:
    """What SendEnv and SetEnv ask for; a server takes what its AcceptEnv allows."""
    patterns: list[str] = []
    for value in config.all("sendenv"):
        for word in value.words:
            if word.startswith("-"):  # takes out what was asked for before
                patterns = [pattern for pattern in patterns if not fnmatchcase(pattern, word[1:])]
            else:
                patterns.append(word)
    set_here: dict[str, str] = {}
    setenv = config.get("setenv")
    for word in setenv.words if setenv else ():
        name, _, text = word.partition("=")
        set_here.setdefault(name, text)
    sent = {name: text for name, text in os.environ.items() if any(fnmatchcase(name, one) for one in patterns)}
    return tuple((os.fsencode(name), os.fsencode(text)) for name, text in {**sent, **set_here}.items())
