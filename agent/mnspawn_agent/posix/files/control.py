"""The control socket in a pod's folder: how a second process of the account reaches the pod's agent."""

import os
import socket
import struct
from typing import Optional

from . import rundir

SOCKET_NAME = "control"
CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


def address_of(folder: int) -> str:
    """A socket's address by its folder's descriptor: sun_path holds 107 bytes, a home can be longer."""
    return "/proc/self/fd/%d/%s" % (folder, SOCKET_NAME)


def listen(folder: str) -> socket.socket:
    """The agent's control socket: reachable only through a folder of mode 0700."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        address = address_of(fd)
        if os.path.exists(address):
            os.unlink(address)
        sock.bind(address)
        os.chmod(address, 0o600)
        sock.listen(4)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(fd)
    sock.setblocking(False)
    return sock


def connect(run: str, node_rank: str) -> Optional[socket.socket]:
    """A connection to the pod's agent, None when no agent answers."""
    for path in rundir.folders_of(run, node_rank):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # it went meanwhile
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(address_of(fd))
            if is_ours(sock):
                return sock
        except OSError:
            pass  # the agent is gone, its folder is left
        finally:
            os.close(fd)
        sock.close()
    return None


def is_ours(sock: socket.socket) -> bool:
    """The process at the other end is of this account; for a socket that listens, as it was when it began to."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(raw)[1] == os.getuid())
