"""Which network interface the collectives use, where a host's own name leads nowhere. Pure.

Gloo looks up the host's own name, and Debian resolves that to 127.0.1.1: peers on other hosts can't reach it. NCCL
picks an interface by itself and may pick a bridge. Naming the interface that owns the data address cures both.
"""

from mnspawn.plan.layout import Pod

from .base import Contract, RunFacts, Share


def _shared(facts: RunFacts, pod: Pod) -> Share:
    if not pod.interface:
        return Share()
    return Share(
        defaults={
            "GLOO_SOCKET_IFNAME": pod.interface,
            "NCCL_SOCKET_IFNAME": f"={pod.interface}",  # "=": this name, not every name that starts so
        }
    )


INTERFACES = Contract(
    "interfaces",
    _shared,
    watched=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
)
