"""Tries whether other hosts' data addresses answer. Nothing needs to listen there: a refusal is an answer."""

import errno
import os
import select
import socket
import time
from typing import Dict, List, Optional, Set, Tuple

LIMIT = 3.0  # seconds; a packet to a host of the same network takes milliseconds, a lost SYN is sent again after one
AT_ONCE = 512  # each takes a descriptor, of which many systems allow a process 1024
ANSWERS = (0, errno.ECONNREFUSED)
SILENCE = "no answer within %.0f s" % LIMIT

Target = Tuple[str, int]


def probe(targets: List[Target]) -> List[List[str]]:
    """[address, problem] of every target; problem is "" where something answered."""
    return [[address, problem] for (address, _), problem in attempt(targets, AT_ONCE).items()]


def attempt(targets: List[Target], at_once: int) -> Dict[Target, str]:
    """What keeps each target from being reached, "" for nothing; never more than `at_once` of them under way."""
    waiting = list(reversed(list(dict.fromkeys(targets))))
    problems: Dict[Target, str] = dict.fromkeys(targets, "")
    under_way: Dict[socket.socket, Tuple[Target, float]] = {}  # the first entry's time is over first
    poll = select.poll()
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            target = waiting.pop()
            sock, problem = _begin(target)
            if sock is None:
                problems[target] = problem
            else:
                poll.register(sock, select.POLLOUT)
                under_way[sock] = (target, time.monotonic() + LIMIT)
        ready: Set[int] = set()
        if under_way:
            oldest = next(iter(under_way.values()))[1]
            ready = {fd for fd, _ in poll.poll(max(0, oldest - time.monotonic()) * 1000)}
        now = time.monotonic()
        for sock, (target, deadline) in list(under_way.items()):
            if sock.fileno() in ready:
                problems[target] = _problem(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            elif now >= deadline:
                problems[target] = SILENCE
            else:
                continue
            poll.unregister(sock)
            sock.close()
            del under_way[sock]
    return problems


def _begin(target: Target) -> Tuple[Optional[socket.socket], str]:
    """A socket that connects, or what came of it at once."""
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in target[0] else socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:  # no such family here, or no descriptor left
        return None, str(error)
    try:
        sock.setblocking(False)
        number = sock.connect_ex(target)
    except (OSError, ValueError, OverflowError) as error:  # no address at all
        sock.close()
        return None, str(error)
    if number == errno.EINPROGRESS:
        return sock, ""
    sock.close()
    return None, _problem(number)


def _problem(number: int) -> str:
    return "" if number in ANSWERS else os.strerror(number)
