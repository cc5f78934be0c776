"""What torchrun's workers find: torch.distributed's env:// variables and those of torch elastic. Pure."""

from mnspawn.plan.layout import Pod, Worker

from . import torchrun
from .base import Contract, RunFacts, Share


def _shared(facts: RunFacts, pod: Pod) -> Share:
    address, port = facts.layout.rendezvous
    env = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(facts.world_size),
        "LOCAL_WORLD_SIZE": str(len(pod.workers)),
        "GROUP_RANK": str(pod.node_rank),
        "GROUP_WORLD_SIZE": str(len(facts.layout.pods)),
        "NODE_RANK": str(pod.node_rank),  # Lightning's word for GROUP_RANK
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(facts.world_size),
        "TORCHELASTIC_RUN_ID": facts.run,
        "TORCHELASTIC_RESTART_COUNT": str(facts.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(facts.max_restarts),
        # TORCHELASTIC_USE_AGENT_STORE stays away: it tells rank 0 that somebody else hosts the store.
    }
    defaults = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        **torchrun.meeting(facts, pod),
    }
    if not pod.has_accelerators:
        defaults["ACCELERATE_USE_CPU"] = "true"  # else Accelerate makes no group there: each rank trains alone
    if len(pod.workers) > 1:
        defaults["OMP_NUM_THREADS"] = "1"  # else each worker starts a thread per core
    return Share(env, defaults)


def _own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    env = {
        "RANK": str(worker.rank),
        "LOCAL_RANK": str(worker.local_rank),
        "ROLE_RANK": str(worker.rank),
    }
    if "TORCHELASTIC_ERROR_FILE" not in facts.given[pod.node_rank]:
        env["TORCHELASTIC_ERROR_FILE"] = facts.path(pod, f"error.{worker.local_rank}.json")
    return env


CONTRACTS = (
    Contract(
        "torch",
        _shared,
        _own,
        watched=("ACCELERATE_USE_CPU", "OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        scrubbed=(
            *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
            *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*"),
            *("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_*", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"),
            "PET_STANDALONE",
        ),
    ),
)
