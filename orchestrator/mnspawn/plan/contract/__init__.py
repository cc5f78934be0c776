"""What a worker finds in its environment: pure functions of the layout, one module per framework.

Each module of this folder that has CONTRACTS offers them to `--contract`. mnspawn's own variables are set whatever is
chosen.
"""

import pkgutil
from importlib import import_module

from mnspawn.errors import UsageError

from .base import Contract, RunFacts, Share, facts_of
from .interfaces import INTERFACES
from .ours import OURS
from .torchrun import advice

__all__ = [
    "DEFAULT",
    "PROXIES",
    "REGISTRY",
    "SCRUBBED",
    "WATCHED",
    "Contract",
    "RunFacts",
    "Share",
    "advice",
    "choose",
    "facts_of",
]


def _found() -> tuple[Contract, ...]:
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(contract for module in modules for contract in getattr(module, "CONTRACTS", ()))


NONE = Contract(
    "none",
)
REGISTRY: dict[str, Contract] = {contract.name: contract for contract in (*_found(), NONE)}

# Each of these leaves other libraries as they are. `jax` and `ompi` make some believe in MPI, `tf` in TensorFlow.
DEFAULT = ("torch", "paddle", "jax-address")

_ALL = (*REGISTRY.values(), INTERFACES, OURS)
_DEVICE_LISTS = ("CUDA_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES")  # devices in the layout are positions inside them
WATCHED = (*_DEVICE_LISTS, "PYTHONUNBUFFERED", *(name for contract in _ALL for name in contract.watched))
_OF_MPI = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_*", "PMIX_*", "MV2_COMM_WORLD_*", "SLURM_*")
SCRUBBED = (*_OF_MPI, *(name for contract in _ALL for name in contract.scrubbed))
PROXIES = ("http_proxy", "https_proxy")  # rendezvous traffic must not go to a proxy; Paddle removes them too


def choose(names: tuple[str, ...]) -> tuple[Contract, ...]:
    """Return the contracts to apply, in order; ours last, so that nothing hides it.

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
