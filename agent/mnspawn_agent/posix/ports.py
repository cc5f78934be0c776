"""Ports for trainers: bound here, by the host that will use them, and held until they start."""

import random
import socket
from typing import List, Optional

POOL = range(20000, 32768)  # below Linux' ephemeral ports (ip_local_port_range), so no outgoing connection takes one


class PortTaken(Exception):
    """A port that was asked for by number is in use."""


class HeldPorts:
    """Sockets that are bound and do nothing else: nobody can connect, nobody else can bind."""

    def __init__(self) -> None:
        self._held: List[socket.socket] = []

    def hold(self, port: int) -> bool:
        """Bind one port on all addresses; False when it is taken."""
        bound: List[socket.socket] = []
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # no IPv6 on this host
            try:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address, port))
            except OSError as error:
                sock.close()
                if family == socket.AF_INET6 and error.errno in (97, 99):  # EAFNOSUPPORT, EADDRNOTAVAIL: disabled
                    continue
                for other in bound:
                    other.close()
                return False
            bound.append(sock)
        self._held.extend(bound)
        return bool(bound)

    def hold_exactly(self, port: int) -> int:
        if not self.hold(port):
            raise PortTaken("port %d is in use" % port)
        return port

    def hold_free(self) -> int:
        """Any free port."""
        for port in random.sample(POOL, len(POOL)):
            if self.hold(port):
                return port
        raise PortTaken("no free port from %d to %d" % (POOL[0], POOL[-1]))

    def hold_row(self, first: int, count: int, is_required: bool) -> List[int]:
        """first, first+1, ...; where one is taken and they are not required, free ones instead of all."""
        mark = len(self._held)
        for port in range(first, first + count):
            if port > 65535 or not self.hold(port):
                if is_required:
                    raise PortTaken("port %d is in use" % port if port <= 65535 else "port %d does not exist" % port)
                for sock in self._held[mark:]:
                    sock.close()
                del self._held[mark:]
                return [self.hold_free() for _ in range(count)]
        return list(range(first, first + count))

    def release(self) -> None:
        """Give all ports to the trainers."""
        for sock in self._held:
            sock.close()
        self._held = []


def source_address(address: str) -> Optional[str]:
    """The local address from which `address` would be reached; no packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address, 9))
        except OSError:
            return None
        return str(sock.getsockname()[0])
