"""Tries whether other hosts' data addresses answer. Nothing listens for it: a refusal is an answer, too."""

import errno
import os
import selectors
import socket
import time
from typing import Dict, List, Tuple

LIMIT = 3.0  # seconds; a packet to a host of the same network takes milliseconds, a lost SYN is sent again after one
ANSWERS = (0, errno.ECONNREFUSED)


def probe(targets: List[Tuple[str, int]]) -> List[List[str]]:
    """[address, problem] of every target, all tried at once; problem is "" where something answered."""
    results: Dict[str, str] = {}
    selector = selectors.DefaultSelector()
    deadline = time.monotonic() + LIMIT
    for address, port in targets:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            number = sock.connect_ex((address, port))
        except (OSError, ValueError) as error:  # no such family here, or no address at all
            results[address] = str(error)
            sock.close()
            continue
        if number == errno.EINPROGRESS:
            results[address] = "no answer within %.0f s" % LIMIT
            selector.register(sock, selectors.EVENT_WRITE, address)
        else:
            results[address] = _problem(number)
            sock.close()
    while selector.get_map() and time.monotonic() < deadline:
        for key, _ in selector.select(max(0, deadline - time.monotonic())):
            sock = key.fileobj  # type: ignore[assignment]
            results[key.data] = _problem(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            selector.unregister(sock)
            sock.close()
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    return [[address, problem] for address, problem in results.items()]


def _problem(number: int) -> str:
    return "" if number in ANSWERS else os.strerror(number)
