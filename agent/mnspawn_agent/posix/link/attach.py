"""Joins a new link to an agent that is already there: bytes between stdin/stdout and its control socket."""

import os
import selectors
import socket


def relay(link_in: int, link_out: int, sock: socket.socket) -> None:
    """Pass bytes both ways until either side ends."""
    selector = selectors.DefaultSelector()
    selector.register(link_in, selectors.EVENT_READ)
    selector.register(sock, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == link_in:
                chunk = os.read(link_in, 65536)
                if not chunk:
                    return
                sock.sendall(chunk)
            else:
                chunk = sock.recv(65536)
                if not chunk:
                    return
                view = memoryview(chunk)
                while view:
                    view = view[os.write(link_out, view) :]
