"""Names of hosts, users and groups, ports, and `user@host:port`: what is valid, and what each part is. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mnspawn_inventory.errors import InventoryError, Origin

# Names end up on command lines (ssh, ProxyCommand): what a shell or an option parser could misread is refused rather
# than quoted. RFC 1123 names, plus what ssh_config aliases commonly have: "_", "+" and upper case.
HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.+-]*[A-Za-z0-9_])?\.?")
USER_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@+-]*[A-Za-z0-9_])?")
GROUP_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ZONE = re.compile(r"[A-Za-z0-9_.-]+")

IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", re.ASCII)

MAX_NAME = 253  # RFC 1035, 2.3.4
MAX_PORT = 65535
SSH_PORT = 22
# From here on, `host:NUMBER` is a port: nobody has that many workers on one host, and many people write host:2222.
FIRST_PORT = 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`user@host:port`, with user and port optional."""

    host: str
    user: str | None = None
    port: int | None = None


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address without brackets, perhaps with a zone (fe80::1%eth0)."""
    if ":" not in text:
        return False
    import ipaddress  # late: most host lists have no IPv6 address

    address, percent, zone = text.partition("%")
    if percent and not ZONE.fullmatch(zone):
        return False
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    """Whether it is an IPv4 or IPv6 address."""
    return bool(IPV4.fullmatch(text)) or is_ipv6(text)


def check_host(text: str, place: Origin | None) -> str:
    """The host name or address, without the brackets of an IPv6 address.

    Raises:
        InventoryError: it is neither.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare:
        if is_ipv6(bare):
            return bare
    elif bare == text and HOST_NAME.fullmatch(text) and len(text) <= MAX_NAME:
        return text
    if text and len(text) > MAX_NAME:
        raise InventoryError(
            "the host name is too long", place=place, found=text, expected=f"at most {MAX_NAME} characters"
        )
    raise InventoryError(
        "not a host name",
        place=place,
        found=text,
        expected="letters, digits, '.', '-', '_' and '+', beginning with a letter or digit, or an IP address",
    )


def check_name(text: str, place: Origin | None) -> str:
    """A host's name in an inventory: a host name or address, if needed with a user and port (see `Host.name`).

    Raises:
        InventoryError: it is not valid.
    """
    if is_plain(text):
        return check_host(text, place)
    endpoint = parse_endpoint(text, place)
    if not _is_url(text) and _could_be_slots(endpoint):
        raise InventoryError(
            "not a host name", place=place, found=text, hint=f"slots are a setting; write a low port as ssh://{text}"
        )
    return label_of(endpoint)


def is_plain(name: str) -> bool:
    """Whether a name has neither a user nor a port."""
    return "@" not in name and (":" not in name or is_ipv6(name.strip("[]")))


def label_of(endpoint: "Endpoint") -> str:
    """An endpoint as a host's name: `user@host:port`; an IPv6 address before a port is in brackets."""
    host = endpoint.host
    if endpoint.port is not None:
        host = f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
    name = host if endpoint.user is None else f"{endpoint.user}@{host}"
    return f"ssh://{name}" if _could_be_slots(endpoint) else name


def _could_be_slots(endpoint: "Endpoint") -> bool:
    """Whether `host:number` would not be taken for a host and its port."""
    return endpoint.port is not None and endpoint.port < FIRST_PORT and endpoint.port != SSH_PORT


def _is_url(text: str) -> bool:
    return text[:6].lower() == "ssh://"


def endpoint_of(name: str) -> "Endpoint":
    """The parts of a host's name, which has been checked."""
    return Endpoint(name) if is_plain(name) else parse_endpoint(name, None)


def unique_names(endpoints: Iterable["Endpoint"]) -> dict["Endpoint", str]:
    """A unique name for each endpoint: its host, with port, user or both where others have the same host."""
    at: dict[str, list[Endpoint]] = {}
    for endpoint in dict.fromkeys(endpoints):
        at.setdefault(endpoint.host, []).append(endpoint)
    found = {}
    for host, those in at.items():
        has_ports = len({one.port for one in those}) == len(those)
        has_users = len({one.user for one in those}) == len(those)
        for one in those:
            user = None if has_ports else one.user
            port = None if has_users and not has_ports else one.port
            found[one] = host if len(those) == 1 else label_of(Endpoint(host, user, port))
    return found


def check_user(text: str, place: Origin | None) -> str:
    """The user name. Raises InventoryError if it is not valid."""
    return _matching(USER_NAME, "user", "letters, digits, '.', '-', '_', '+' and '@'", text, place)


def check_group(text: str, place: Origin | None) -> str:
    """The group name. Raises InventoryError if it is not valid."""
    return _matching(GROUP_NAME, "group", "letters, digits, '.', '-' and '_'", text, place)


def _matching(pattern: "re.Pattern[str]", what: str, letters: str, text: str, place: Origin | None) -> str:
    if pattern.fullmatch(text):
        return text
    expected = f"{letters}, beginning with a letter or digit"
    raise InventoryError(f"not a {what} name", place=place, found=text, expected=expected)


def check_port(text: str, place: Origin | None) -> int:
    """The TCP port. Raises InventoryError if it is not valid."""
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_PORT and len(text) <= 5:
        return int(text)
    raise InventoryError("not a port", place=place, found=text, expected=f"a whole number from 1 to {MAX_PORT}")


def parse_endpoint(text: str, place: Origin | None) -> Endpoint:
    """Read `host`, `user@host`, `user@host:port`, `[v6]:port` and `ssh://user@host:port`.

    Raises:
        InventoryError: it is none of these.
    """
    shift = 0
    rest = text
    if _is_url(rest):
        shift = 6
        rest = rest[6:].rstrip("/")
    user, at, address = rest.rpartition("@")
    if at:
        check_user(user, place and place.moved(shift))
        shift += len(user) + 1
    host, port = split_port(address)
    name = check_host(host, place and place.moved(shift))
    number = None if port is None else check_port(port, place and place.moved(shift + len(host) + 1))
    return Endpoint(name, user if at else None, number)


def split_port(text: str) -> tuple[str, str | None]:
    """Split `host:number` at its last colon; the number is None if there is none. IPv6 addresses stay whole."""
    if text.startswith("["):
        end = text.find("]")
        if end > 0 and text[end + 1 : end + 2] == ":":
            return text[: end + 1], text[end + 2 :]
        return text, None
    if is_ipv6(text):
        return text, None
    host, colon, port = text.rpartition(":")
    return (host, port) if colon else (text, None)


def check_jump(text: str, place: Origin | None) -> str:
    """A jump list as for `ssh -J`: `[user@]host[:port]`, separated by commas, or `none`."""
    if text == "none":
        return text
    shift = 0
    for hop in text.split(","):
        parse_endpoint(hop, place and place.moved(shift))
        shift += len(hop) + 1
    return text
