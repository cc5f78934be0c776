"""Sums a vector over all ranks in a ring of sockets. Needs only Python 3.6 and the endpoints in the environment.

    mnspawn --hosts a:2,b:2 ring.py [LENGTH]

Every rank listens on its own endpoint and connects to that of the next rank. The vector is cut into world_size chunks.
In world_size - 1 steps each chunk is summed around the ring; in world_size - 1 more, every rank receives all sums.
Exits with 1 if the sum is wrong.
"""

import operator
import os
import socket
import struct
import sys
import threading
import time
from array import array

TIMEOUT = 60.0  # seconds to wait for the neighbours to appear, and for each of their messages


def split(endpoint):
    """Split address:port; an IPv6 address stands in brackets."""
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


def listen(endpoint):
    address, port = split(endpoint)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(1)
    server.settimeout(TIMEOUT)
    return server


def connect(endpoint):
    """Connect to an endpoint, and retry while nobody listens there yet."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return socket.create_connection(split(endpoint), timeout=TIMEOUT)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(sock, size):
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("the previous rank closed its connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Ring:
    """The connections to this rank's two neighbours."""

    def __init__(self, rank, endpoints):
        self.rank, self.size = rank, len(endpoints)
        server = listen(endpoints[rank])
        self.next = connect(endpoints[(rank + 1) % self.size])
        self.previous, _ = server.accept()
        self.previous.settimeout(TIMEOUT)
        server.close()

    def exchange(self, numbers):
        """Send numbers to the next rank while receiving from the previous one. Returns what was received."""
        content = numbers.tobytes()
        sender = threading.Thread(target=self.next.sendall, args=(struct.pack("!Q", len(content)) + content,))
        sender.start()
        (size,) = struct.unpack("!Q", receive(self.previous, 8))
        received = array(numbers.typecode, receive(self.previous, size))
        sender.join()
        return received

    def all_reduce(self, vector):
        """Returns the sum of the vectors of all ranks."""
        cuts = [len(vector) * i // self.size for i in range(self.size + 1)]
        chunks = [vector[cuts[i] : cuts[i + 1]] for i in range(self.size)]
        for step in range(self.size - 1):
            incoming = (self.rank - step - 1) % self.size
            received = self.exchange(chunks[(self.rank - step) % self.size])
            chunks[incoming] = array(vector.typecode, map(operator.add, chunks[incoming], received))
        for step in range(self.size - 1):
            chunks[(self.rank - step) % self.size] = self.exchange(chunks[(self.rank - step + 1) % self.size])
        return array(vector.typecode, b"".join(chunk.tobytes() for chunk in chunks))

    def close(self):
        self.next.close()
        self.previous.close()


def main():
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    ring = Ring(rank, endpoints)
    total = ring.all_reduce(array("q", [(rank + 1) * i for i in range(length)]))
    ring.close()
    world_size = len(endpoints)
    factor = world_size * (world_size + 1) // 2
    is_right = total == array("q", [factor * i for i in range(length)])
    print(
        "rank {} of {} at {}: sum {} of {} numbers {}".format(
            rank, world_size, endpoints[rank], sum(total), length, "is right" if is_right else "IS WRONG"
        )
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
