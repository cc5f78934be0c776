"""Lays the cluster out: which host runs which ranks, and at which endpoints. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Site:
    """What the layout needs to know of one host that takes part, in the order of the host list.

    Attributes:
        host: the host's name.
        address: its data address, as it shall stand in endpoints.
        interface: the network interface that owns `address` ("" where none is known).
        ports: one port a worker, held on the host.
        devices: accelerator positions the workers may use (positions inside the host's own visible list).
        device_kind: "gpu", "xpu", ... or "cpu" when there are none.
        has_accelerators: programs may find some there, whether workers are given them or not.
    """

    host: str
    address: str
    interface: str
    ports: tuple[int, ...]
    devices: tuple[int, ...] = ()
    device_kind: str = "cpu"
    has_accelerators: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """One rank: `endpoint` is address:port (IPv6 in brackets); `devices` are positions, none on CPU."""

    rank: int
    local_rank: int
    endpoint: str
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """A run's share of one host."""

    node_rank: int
    host: str
    address: str
    interface: str
    device_kind: str
    has_accelerators: bool
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The cluster of one run: pods in host order, ranks dense, contiguous per pod.

    Attributes:
        rendezvous: address and port of MASTER_ADDR/MASTER_PORT, held on the first host.
        coordinator_port: a further port on the first host (JAX).
    """

    pods: tuple[Pod, ...]
    rendezvous: tuple[str, int]
    coordinator_port: int

    @property
    def world_size(self) -> int:
        return sum(len(pod.workers) for pod in self.pods)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(worker.endpoint for pod in self.pods for worker in pod.workers)


def join_endpoint(address: str, port: int) -> str:
    """Return address:port, with an IPv6 address in brackets (RFC 3986, 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def ranks_of(counts: Sequence[int]) -> list[range]:
    """Return the ranks of each pod, given how many workers each has."""
    return [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]


def assign(sites: Sequence[Site], master_port: int, coordinator_port: int) -> Layout:
    """Lay the cluster out: node_rank follows the order of `sites`, ranks count through their workers."""
    pods = []
    rank = 0
    for node_rank, site in enumerate(sites):
        workers = []
        has_devices = len(site.devices) >= len(site.ports)  # one each, or none for anybody
        for local_rank, port in enumerate(site.ports):
            devices = (site.devices[local_rank],) if has_devices else ()
            workers.append(Worker(rank, local_rank, join_endpoint(site.address, port), devices))
            rank += 1
        kind = site.device_kind if has_devices else "cpu"
        has_accelerators = site.has_accelerators or bool(site.devices)
        pods.append(Pod(node_rank, site.host, site.address, site.interface, kind, has_accelerators, tuple(workers)))
    return Layout(tuple(pods), (sites[0].address, master_port), coordinator_port)
