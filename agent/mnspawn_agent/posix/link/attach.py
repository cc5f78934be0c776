"""Joins a new link to an agent that is already there: bytes between stdin/stdout and its control socket."""

import os
import select
import socket
from typing import Any, Dict, List

from ..files import control
from ..streams import write_all


def serve(link_in: int, link_out: int, argv: List[str], hello: Dict[str, Any]) -> int:
    """The mode `attach RUN NODE_RANK`; returns the exit status."""
    sock = control.connect(argv[1], argv[2])
    write_all(link_out, b"here\n" if sock else b"gone\n")
    if sock is None:
        return 1
    _relay(link_in, link_out, sock)
    return 0


def _relay(link_in: int, link_out: int, sock: socket.socket) -> None:
    """Pass bytes both ways until either side ends."""
    poll = select.poll()
    poll.register(link_in, select.POLLIN)
    poll.register(sock, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == link_in:
                chunk = os.read(link_in, 65536)
                if not chunk:
                    return
                sock.sendall(chunk)
            else:
                chunk = sock.recv(65536)
                if not chunk:
                    return
                write_all(link_out, chunk)
