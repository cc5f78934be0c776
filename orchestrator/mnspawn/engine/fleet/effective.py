"""Lists the settings of one host and where each comes from. Reads configuration, connects nowhere."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from mnspawn.engine.link.sites import target_of
from mnspawn.transport.base import SshOptions
from mnspawn.transport.config.route import DEFAULT, Hop, Router
from mnspawn.transport.config.ssh_config import HostConfig
from mnspawn_inventory import Host
from mnspawn_inventory.secret_names import MASK, is_secret

# value of a Hop -> the ssh_config keyword that its origin is filed under
_PLAIN = (
    ("address", "hostname"),
    ("port", "port"),
    ("user", "user"),
    ("proxy_command", "proxycommand"),
    ("identities_only", "identitiesonly"),
    ("agent", "identityagent"),
    ("known_as", "hostkeyalias"),
    ("hash_known_hosts", "hashknownhosts"),
    ("revoked_keys", "revokedhostkeys"),
    ("host_key_check", "stricthostkeychecking"),
    ("family", "addressfamily"),
    ("bind_address", "bindaddress"),
    ("connect_timeout", "connecttimeout"),
    ("compression", "compression"),
)
_ALGORITHMS = {"kex": "kexalgorithms", "ciphers": "ciphers", "macs": "macs", "host keys": "hostkeyalgorithms"}
_OF_INVENTORY = {
    "hostname": "address",
    "proxyjump": "jump",
    "proxycommand": "proxy_command",
    "identityfile": "identity",
}
_OWN = ("data_address", "network", "slots", "max_slots", "devices", "python", "workdir", "prelude")
_FAMILIES = {0: "any", 2: "inet", 10: "inet6", 30: "inet6"}


@dataclass(frozen=True, slots=True)
class Effective:
    """One value; `origin` is file:line, an option, or "default"."""

    name: str
    value: object
    origin: str


def effective(host: Host, ssh: SshOptions, transport: str, origins: dict[str, str]) -> list[Effective]:
    """Return every setting of a host; inventory over ssh_config over defaults.

    Args:
        transport: for hosts whose inventory names none.
        origins: where options came from (transport, connect_timeout, host_key_check).

    Raises:
        HostError: the settings can't be used.
        UsageError: ssh_config can't be read.
    """
    router = Router(ssh)
    target = target_of(host)
    hop = router.hop(target)
    place = _place(host, "name")
    return [
        Effective("name", host.name, "given" if place is None or place.startswith("--") else place),
        *_of_hop(host, hop, router.config(target), ssh, origins),
        Effective("transport", host.transport or transport, _place(host, "transport") or origins["transport"]),
        *_of_inventory(host),
    ]


def _of_hop(host: Host, hop: Hop, config: HostConfig, ssh: SshOptions, origins: dict[str, str]) -> Iterator[Effective]:
    for name, keyword in _PLAIN:
        value = getattr(hop, name)
        origin = _origin(host, hop, keyword)
        if keyword in ("stricthostkeychecking", "connecttimeout"):
            option = {"stricthostkeychecking": "host_key_check", "connecttimeout": "connect_timeout"}[keyword]
            given = {"stricthostkeychecking": ssh.host_key_check, "connecttimeout": ssh.connect_timeout}[keyword]
            if value == given:
                origin = origins[option]
        elif name == "family":
            value = _FAMILIES.get(value, value)
        elif name == "agent" and origin == DEFAULT and value is not None:
            origin = "SSH_AUTH_SOCK"
        if value is not None:
            yield Effective(name, value, origin)
    if hop.jump is not None:
        yield Effective("jump", _way(hop.jump), _origin(host, hop, "proxyjump"))
    yield from _keys(host, hop, config)
    place = hop.origins.get("userknownhostsfile") or hop.origins.get("globalknownhostsfile") or DEFAULT
    yield Effective("known_hosts", ",".join(str(path) for path in hop.known_hosts), place)
    for name, value in hop.algorithms.items():
        yield Effective(name, value, _origin(host, hop, _ALGORITHMS[name]))
    sent_by = hop.origins.get("setenv") or hop.origins.get("sendenv") or DEFAULT
    for variable, _ in hop.env:
        yield Effective(f"ssh_env.{os.fsdecode(variable)}", "sent", sent_by)


def _keys(host: Host, hop: Hop, config: HostConfig) -> Iterator[Effective]:
    """Each key file with the line that names it."""
    places: list[str] = []
    if host.identity is None:
        values = config.all("identityfile")
        places = [value.origin for value in values if value.text.lower() != "none"]
    for number, path in enumerate(hop.identities):
        origin = places[number] if number < len(places) else _origin(host, hop, "identityfile")
        yield Effective("identity", str(path), origin)


def _way(hop: Hop) -> str:
    before = f"{_way(hop.jump)}," if hop.jump is not None else ""
    return f"{before}{hop.user}@{hop.address}:{hop.port}"


def _of_inventory(host: Host) -> Iterator[Effective]:
    for name in _OWN:
        value = getattr(host, name)
        if value is not None:
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            yield Effective(name, shown, _place(host, name) or "inventory")
    for name, value in host.env:
        shown = MASK if is_secret(name, value) else value
        yield Effective(f"env.{name}", shown, _place(host, f"env.{name}") or "inventory")
    for name, secret in host.secrets:
        yield Effective(f"env.{name}", f"({secret})", _place(host, f"env.{name}") or "inventory")
    for name, value in host.labels:
        yield Effective(f"labels.{name}", value, _place(host, f"labels.{name}") or "inventory")
    if host.groups:
        yield Effective("groups", ",".join(host.groups), "inventory")


def _origin(host: Host, hop: Hop, keyword: str) -> str:
    """The inventory's own place where the value is the inventory's."""
    origin = hop.origins.get(keyword, DEFAULT)
    if origin in ("inventory", "given"):
        return _place(host, _OF_INVENTORY.get(keyword, keyword)) or "inventory"
    return origin


def _place(host: Host, field: str) -> str | None:
    place = host.origin(field)
    return None if place is None else str(place)
