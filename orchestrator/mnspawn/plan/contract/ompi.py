"""Open MPI's variables, for libraries that only look at the environment. Pure.

Real MPI programs do not start with these: they need MPI's own runtime.
"""

from mnspawn.plan.layout import Pod, Worker

from .base import Contract, RunFacts, Share


def shared(facts: RunFacts, pod: Pod) -> Share:
    """The sizes."""
    return Share(
        {
            "OMPI_COMM_WORLD_SIZE": str(facts.world_size),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(pod.workers)),
            "OMPI_UNIVERSE_SIZE": str(facts.world_size),
        }
    )


def own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    """The ranks. Open MPI's NODE_RANK counts the processes of one node over all its jobs; it does not number nodes."""
    return {
        "OMPI_COMM_WORLD_RANK": str(worker.rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(worker.local_rank),
        "OMPI_COMM_WORLD_NODE_RANK": str(worker.local_rank),
    }


CONTRACTS = (Contract("ompi", shared, own, scrubbed=("OMPI_*",)),)
