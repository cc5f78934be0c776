"""Ports for workers: bound here, by the host that will use them, and held until they start."""

import os
import socket
from typing import Dict, List, Optional

POOL = range(20000, 32768)  # below Linux' ephemeral ports (ip_local_port_range), so no outgoing connection takes one


class PortTaken(Exception):
    """A port that was asked for by number is in use."""


class HeldPorts:
    """Sockets that are bound and do nothing else: nobody can connect, nobody else can bind.

    Between the release and the worker's own bind a port looks free, and a worker may never bind its own. So each port
    also has a claim, a name that all other agents in the host's network find taken for as long as we live.
    """

    def __init__(self) -> None:
        self._held: Dict[int, List[socket.socket]] = {}
        self._claims: Dict[int, socket.socket] = {}

    def hold(self, port: int, is_used_again: bool = False) -> bool:
        """Mark and bind one port on all addresses; False when it is taken.

        Args:
            is_used_again: connections of an earlier server that the kernel keeps for a minute (TIME_WAIT) don't make it
                taken. A worker can then bind it only as servers do, with SO_REUSEADDR.
        """
        claim = _claim(port)
        if claim is None:
            return False
        bound: List[socket.socket] = []
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # no IPv6 on this host
            try:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if is_used_again:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((address, port))
            except OSError as error:
                sock.close()
                if family == socket.AF_INET6 and error.errno in (97, 99):  # EAFNOSUPPORT, EADDRNOTAVAIL: disabled
                    continue
                for other in [claim] + bound:
                    other.close()
                return False
            bound.append(sock)
        self._held[port] = bound
        self._claims[port] = claim
        return True

    def hold_exactly(self, port: int) -> int:
        """A port that was asked for by number."""
        if not self.hold(port) and not self.hold(port, is_used_again=True):
            raise PortTaken("port %d is in use" % port)
        return port

    def hold_free(self) -> int:
        """Any free port."""
        first = int.from_bytes(os.urandom(4), "big")
        for number in range(first, first + len(POOL)):
            port = POOL[number % len(POOL)]
            if self.hold(port):
                return port
        raise PortTaken("no free port from %d to %d" % (POOL[0], POOL[-1]))

    def hold_row(self, first: int, count: int, is_required: bool) -> List[int]:
        """first, first+1, ...; where one is taken and they are not required, free ones instead of all."""
        row = range(first, first + count)
        for port in row:
            if port > 65535:
                raise PortTaken("port %d does not exist" % port)
            if is_required:
                self.hold_exactly(port)
            elif not self.hold(port):
                for held in range(first, port):
                    self._free(held)
                return [self.hold_free() for _ in row]
        return list(row)

    def _free(self, port: int) -> None:
        for sock in [self._claims.pop(port)] + self._held.pop(port):
            sock.close()

    def release(self) -> None:
        """Give all ports to the workers; the claims stay."""
        for bound in self._held.values():
            for sock in bound:
                sock.close()
        self._held.clear()

    def close(self) -> None:
        """Give ports and claims back."""
        self.release()
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


def _claim(port: int) -> Optional[socket.socket]:
    """A name in the host's network namespace that one process can have, without a file; None when another has it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind("\0mnspawn-port-%d" % port)
    except OSError:
        sock.close()
        return None
    return sock
