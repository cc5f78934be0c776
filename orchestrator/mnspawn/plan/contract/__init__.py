"""What a worker finds in its environment: pure functions of the layout, one module per framework.

`--contract` chooses among REGISTRY; mnspawn's own variables are set whatever is chosen.
"""

from mnspawn.errors import UsageError

from .base import Contract, Scene, Share, depict
from .interfaces import INTERFACES
from .jax import JAX, JAX_ADDRESS
from .ompi import OMPI
from .ours import OURS
from .paddle import PADDLE
from .tf import TF
from .torch import TORCH
from .torchrun import advice

__all__ = [
    "DEFAULT",
    "PROXIES",
    "REGISTRY",
    "SCRUBBED",
    "WATCHED",
    "Contract",
    "Scene",
    "Share",
    "advice",
    "choose",
    "depict",
]

NONE = Contract("none", "mnspawn's own variables only")
REGISTRY: dict[str, Contract] = {
    contract.name: contract for contract in (TORCH, PADDLE, JAX, JAX_ADDRESS, TF, OMPI, NONE)
}

# Each of these leaves other libraries as they are. `jax` and `ompi` make some believe in MPI, `tf` in TensorFlow.
DEFAULT = ("torch", "paddle", "jax-address")

# Variables of a host's own environment that are asked for: when one is set there, a contract's default gives way.
# (CUDA_VISIBLE_DEVICES and XPU_VISIBLE_DEVICES: the devices in the layout are positions inside them.)
WATCHED = (
    "ACCELERATE_USE_CPU",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "XPU_VISIBLE_DEVICES",
)

# What an outer launcher may have left in a host's environment, removed before anything is set. "*" ends a prefix.
SCRUBBED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_*", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"),
    "PET_STANDALONE",
    *("PADDLE_*", "POD_IP", "POD_NAME", "DISTRIBUTED_TRAINER_ENDPOINTS", "TRAINER_PORTS_NUM", "TRAINER_IP_PORT_LIST"),
    *("FLAGS_selected_*", "FLAGS_START_PORT", "JAX_COORDINATOR_*", "JAX_LOCAL_DEVICE_IDS", "JAX_PARTITION_INDEX"),
    *("TF_CONFIG", "OMPI_*", "PMI_*", "PMIX_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_*", "SLURM_*"),
    "MNSPAWN_*",
)
PROXIES = ("http_proxy", "https_proxy")  # rendezvous traffic must not go to a proxy; Paddle removes them too


def choose(names: tuple[str, ...]) -> tuple[Contract, ...]:
    """The contracts to apply, in order; ours last, so that nothing hides it.

    Raises:
        UsageError: an unknown name, a name twice, or "none" together with others.
    """
    unknown = [name for name in names if name not in REGISTRY]
    if unknown:
        raise UsageError(f"expected contracts out of {', '.join(REGISTRY)}, found {unknown[0]!r}", place="contract")
    if "none" in names and len(set(names)) > 1:
        raise UsageError("expected 'none' alone, found it beside others", place="contract")
    chosen = tuple(REGISTRY[name] for name in dict.fromkeys(names) if name != "none")
    return (*chosen, INTERFACES, OURS) if chosen else (OURS,)
