"""What jax.distributed.initialize() reads: the coordinator; and, on request, who is who. Pure."""

from mnspawn.plan.layout import Pod, join_endpoint

from . import ompi
from .base import Contract, RunFacts, Share


def _coordinator(facts: RunFacts, pod: Pod) -> Share:
    address, _ = facts.layout.rendezvous
    return Share({"JAX_COORDINATOR_ADDRESS": join_endpoint(address, facts.layout.coordinator_port)})


def _cluster(facts: RunFacts, pod: Pod) -> Share:
    """JAX has no variables for the number of processes and the own one; it asks known launchers for them, Open MPI
    first. It takes the launcher's presence from this URI (jax/_src/clusters/ompi_cluster.py); the address that it
    would derive from it gives way to JAX_COORDINATOR_ADDRESS.
    """
    address, _ = facts.layout.rendezvous
    scheme, place = ("tcp6", f"[{address}]") if ":" in address else ("tcp", address)
    uri = f"0.0;{scheme}://{place}:{facts.layout.coordinator_port}"
    return Share(
        _coordinator(facts, pod).env | ompi.shared(facts, pod).env | {"OMPI_MCA_orte_hnp_uri": uri},
    )


CONTRACTS = (
    Contract("jax", _cluster, ompi.own),
    Contract(
        "jax-address",
        _coordinator,
        scrubbed=("JAX_COORDINATOR_*", "JAX_LOCAL_DEVICE_IDS", "JAX_PARTITION_INDEX"),
    ),
)
