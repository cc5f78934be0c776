"""A slow cable: passes frames between two tap devices, each some time after it came. Run as a script by its cluster.

wire.py DEVICE NETNS SECONDS: DEVICE in this network namespace, eth0 in NETNS (a path); prints a line when both are up
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LARGEST_FRAME = 65536


def open_tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def enter_network(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY)
    if libc.setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), f"setns {path}")
    os.close(fd)


def pass_frames(a: int, b: int, delay: float) -> None:
    other = {a: b, b: a}
    travelling: collections.deque[tuple[float, int, bytes]] = collections.deque()
    while True:
        timeout = max(0.0, travelling[0][0] - time.monotonic()) if travelling else None
        for fd in select.select([a, b], [], [], timeout)[0]:
            travelling.append((time.monotonic() + delay, other[fd], os.read(fd, LARGEST_FRAME)))
        while travelling and travelling[0][0] <= time.monotonic():
            _, fd, frame = travelling.popleft()
            try:
                os.write(fd, frame)
            except OSError:  # the device is down or its queue is full: the frame is lost, as on a wire
                continue


def main() -> None:
    device, netns, delay = sys.argv[1:]
    here = open_tap(device)
    enter_network(netns)
    there = open_tap("eth0")
    print("ready", flush=True)
    pass_frames(here, there, float(delay))


if __name__ == "__main__":
    main()
