"""Names, addresses and `ip` command lines of a virtual network. Runs nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NET = "10.77.0"  # every cluster has a network namespace of its own, so all may use the same addresses
NET6 = "fd77::"
BRIDGE = "br0"
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"  # no name is looked for outside


def address_of(number: int) -> str:
    """IPv4 address of host `number`; 0 is the controller."""
    return f"{NET}.{10 + number if number else 1}"


def address6_of(number: int) -> str:
    return f"{NET6}{10 + number if number else 1}"


def mac_of(number: int) -> str:
    return f"02:77:00:00:{number >> 8:02x}:{number & 255:02x}"


@dataclass(frozen=True)
class Port:
    """One host's place on the network; `device` is the controller's end of its cable."""

    number: int
    host: str

    @property
    def device(self) -> str:
        return f"v{self.number}"

    @property
    def address(self) -> str:
        return address_of(self.number)


def _interface(device: str, number: int, others: Iterable[int]) -> list[str]:
    """Address, and the others' hardware addresses: nobody asks for them, so a cut is silence and never 'no route'."""
    return [
        f"link set {device} address {mac_of(number)}",
        f"link set {device} up",
        f"addr add {address_of(number)}/24 dev {device}",
        f"addr add {address6_of(number)}/64 dev {device} nodad",
        *(f"neigh replace {address_of(other)} lladdr {mac_of(other)} dev {device} nud permanent" for other in others),
    ]


def controller_lines(ports: Sequence[Port]) -> list[str]:
    """The bridge that all cables end in."""
    return [
        "link set lo up",
        f"link add {BRIDGE} type bridge mcast_snooping 0",
        *_interface(BRIDGE, 0, [port.number for port in ports]),
    ]


def plug_lines(port: Port, netns: str) -> list[str]:
    """A cable between the bridge and the host's network namespace (a pid of it, or a path)."""
    return [f"link add {port.device} type veth peer name eth0 netns {netns}", *join_lines(port)]


def join_lines(port: Port) -> list[str]:
    return [f"link set {port.device} master {BRIDGE} up"]


def cut_lines(port: Port) -> list[str]:
    """Takes the cable out of the bridge: both ends stay up, frames get lost."""
    return [f"link set {port.device} nomaster"]


def unplug_lines(port: Port) -> list[str]:
    return [f"link del {port.device}"]


def host_lines(port: Port, ports: Sequence[Port]) -> list[str]:
    """What the host does with its end of the cable."""
    return _interface("eth0", port.number, [0, *(other.number for other in ports if other != port)])


def hosts_file(own: str | None, ports: Sequence[Port]) -> str:
    """/etc/hosts as Debian writes it: a machine's own name is 127.0.1.1, which no other machine can use."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    if own is not None:
        lines.append(f"127.0.1.1 {own}")
    lines += [f"{port.address} {port.host}" for port in ports if port.host != own]
    return "\n".join(lines) + "\n"
