"""An all-reduce over a ring of sockets, with nothing but Python 3.6 and the endpoints in the environment.

    mnspawn --hosts a:2,b:2 ring.py [LENGTH]

Every rank listens on its own endpoint and connects to the next rank's. A vector is cut into as many chunks as there
are ranks: in world_size - 1 steps each chunk is added up around the ring, in as many again the sums go round. Exits
with 1 when the sum is wrong.
"""

import operator
import os
import socket
import struct
import sys
import threading
import time
from array import array

PATIENCE = 60.0  # seconds for the neighbours to appear, and for each of their messages


def split(endpoint):
    """address:port, where an IPv6 address has brackets."""
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


def listen(endpoint):
    address, port = split(endpoint)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(1)
    server.settimeout(PATIENCE)
    return server


def connect(endpoint):
    """The next rank may not listen yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(split(endpoint), timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(sock, size):
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("the previous rank went away")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Ring:
    """This rank's two neighbours."""

    def __init__(self, rank, endpoints):
        self.rank, self.size = rank, len(endpoints)
        server = listen(endpoints[rank])
        self.next = connect(endpoints[(rank + 1) % self.size])
        self.previous, _ = server.accept()
        self.previous.settimeout(PATIENCE)
        server.close()

    def exchange(self, numbers):
        """Pass numbers on and return what the previous rank passes on, both at the same time."""
        content = numbers.tobytes()
        sender = threading.Thread(target=self.next.sendall, args=(struct.pack("!Q", len(content)) + content,))
        sender.start()
        (size,) = struct.unpack("!Q", receive(self.previous, 8))
        received = array(numbers.typecode, receive(self.previous, size))
        sender.join()
        return received

    def all_reduce(self, vector):
        """The sum of all ranks' vectors."""
        cuts = [len(vector) * i // self.size for i in range(self.size + 1)]
        chunks = [vector[cuts[i] : cuts[i + 1]] for i in range(self.size)]
        for step in range(self.size - 1):
            come = (self.rank - step - 1) % self.size
            received = self.exchange(chunks[(self.rank - step) % self.size])
            chunks[come] = array(vector.typecode, map(operator.add, chunks[come], received))
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
    weight = world_size * (world_size + 1) // 2
    is_right = total == array("q", [weight * i for i in range(length)])
    print(
        "rank {} of {} at {}: sum {} of {} numbers {}".format(
            rank, world_size, endpoints[rank], sum(total), length, "is right" if is_right else "IS WRONG"
        )
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
