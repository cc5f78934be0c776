"""The facts of a host that HELLO carries. Reads the system, changes nothing."""

import ctypes
import glob
import os
import socket
import sys
import time
from typing import Any, Dict, List

from ..files import rundir
from ..streams import first_line
from . import devices

# variables whose presence in the host's own environment changes what a contract sets
WATCHED = (
    "ACCELERATE_USE_CPU",
    "CUDA_VISIBLE_DEVICES",
    "XPU_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)


def collect() -> Dict[str, Any]:
    """JSON-able facts of this host, cheap enough to be collected before every run."""
    found = devices.find()
    return {
        "python": sys.executable or "",
        "python_version": list(sys.version_info[:3]),
        "cpus": os.cpu_count() or 1,
        "device_kind": found["kind"],
        "devices": found["devices"],
        "lost_devices": found["lost_devices"],
        "device_problem": found["problem"],
        "is_device_doubtful": found["is_doubtful"],
        "accelerator_nodes": accelerator_nodes(),
        "interfaces": interfaces(),
        "ssh_address": ssh_address(),
        "hostname": socket.gethostname(),
        "netid": netid(),
        "user": os.getuid(),
        "home": os.path.expanduser("~"),
        "pid": os.getpid(),
        "monotonic": time.monotonic(),
        "time": time.time(),
        "env": {name: os.environ[name] for name in WATCHED if name in os.environ},
    }


# Device files by which programs find accelerators that are not counted here: AMD, Intel Gaudi and NPUs, TPUs, Ascend,
# Cambricon, Moore Threads, Trainium, NVIDIA's Jetson, Windows' subsystem for Linux.
NODES = (
    *("kfd", "accel[0-9]*", "accel/accel[0-9]*", "hl[0-9]*", "davinci[0-9]*", "cambricon_dev[0-9]*", "mtgpu.[0-9]*"),
    *("neuron[0-9]*", "nvhost-gpu", "nvgpu", "dxg"),
)
INTEL = "0x8086"


def accelerator_nodes(dev: str = "/dev", drm: str = "/sys/class/drm") -> List[str]:
    """Some device files of accelerators other than NVIDIA's. Intel's processors have graphics, too: on bus 0."""
    found = [path for pattern in NODES for path in sorted(glob.glob(os.path.join(dev, pattern)))]
    for path in sorted(glob.glob(os.path.join(drm, "renderD*"))):
        is_intel = first_line(os.path.join(path, "device", "vendor")) == INTEL
        bus = os.path.basename(os.path.realpath(os.path.join(path, "device"))).split(":")
        if is_intel and bus[1:2] != ["00"]:
            found.append(os.path.join(dev, "dri", os.path.basename(path)))
    return found[:8]


def ssh_address() -> str:
    """The address at which sshd was reached, seen from here; "" without SSH."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return parts[2] if len(parts) == 4 else ""


def netid() -> str:
    """The same for all who share this network stack: then a loopback address is good between them."""
    boot = rundir.boot_id()
    try:
        return "%s:%d" % (boot or socket.gethostname(), os.stat("/proc/self/ns/net").st_ino)
    except OSError:
        return socket.gethostname()


class _Sockaddr(ctypes.Structure):
    _fields_ = [("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26)]


class _Ifaddrs(ctypes.Structure):
    pass


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_Sockaddr)),
    ("netmask", ctypes.c_void_p),
    ("broadcast", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]

IFF_UP = 0x1


def interfaces() -> List[List[str]]:
    """[interface, address] of everything that is up, IPv4 first (getifaddrs(3)).

    Without IPv6's fe80::/10, which means nothing without the name of an interface.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return []
    four, six = [], []
    try:
        entry = first
        while entry:
            item = entry.contents
            if item.address and item.flags & IFF_UP:
                raw = bytes(bytearray(item.address.contents.data))
                name = item.name.decode("utf-8", "replace")
                if item.address.contents.family == socket.AF_INET:
                    four.append([name, socket.inet_ntop(socket.AF_INET, raw[2:6])])
                elif item.address.contents.family == socket.AF_INET6 and not (raw[6] == 0xFE and raw[7] & 0xC0 == 0x80):
                    six.append([name, socket.inet_ntop(socket.AF_INET6, raw[6:22])])
            entry = item.next
    finally:
        libc.freeifaddrs(first)
    return four + six
