"""Which given variables a contract replaces, and what does instead what the user wanted. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_ORDER = "ranks count through --hosts in their order"
_SIZE = "--hosts and --nproc-per-node decide it"
_PLACE = "the first of --hosts is the rendezvous; --network, or data_address in the inventory, chooses its address"
_ENDPOINTS = "--start-port and --network choose endpoints"
_WAYS: tuple[tuple[str, str], ...] = (  # patterns of names, the first that fits counts
    (r"(PET_)?MASTER_PORT", "--master-port PORT chooses it"),
    (r"(PET_)?MASTER_ADDR|PET_RDZV_ENDPOINT|PADDLE_MASTER|JAX_COORDINATOR_ADDRESS|OMPI_MCA_orte_hnp_uri", _PLACE),
    (r"PADDLE_\w*ENDPOINTS?|TF_CONFIG", _ENDPOINTS),
    (r"FLAGS_selected_\w+", "--hosts a:0,2 chooses devices"),
    (r"\w*(WORLD_SIZE|LOCAL_SIZE|GLOBAL_SIZE|UNIVERSE_SIZE|COMM_WORLD_SIZE|NNODES|NUM_MACHINES|TRAINERS_NUM)", _SIZE),
    (r"\w*RANK\w*|PADDLE_TRAINER_ID", _ORDER),
)
_FEW = 3  # hosts that are named in a note


@dataclass(frozen=True, slots=True)
class Overruled:
    """A variable that somebody gave and a contract replaces with another value.

    Attributes:
        host: whose inventory has it; None for one that was given for all hosts.
    """

    name: str
    contract: str
    host: str | None


def find(
    env: Mapping[str, str], given: Mapping[str, str], of_host: Mapping[str, str], host: str, contract: str
) -> Iterator[Overruled]:
    """Return what a contract's variables replace.

    Args:
        given: for all hosts; they win over `of_host`, which are the inventory's for this one.
    """
    for name, value in env.items():
        if given.get(name, value) != value:
            yield Overruled(name, contract, None)
        elif name not in given and of_host.get(name, value) != value:
            yield Overruled(name, contract, host)


def notes(found: Iterable[Overruled]) -> tuple[str, ...]:
    """Return a line for each name and origin; values are never shown."""
    hosts: dict[tuple[str, str, bool], list[str]] = {}
    for one in found:
        names = hosts.setdefault((one.name, one.contract, one.host is None), [])
        if one.host is not None and one.host not in names:
            names.append(one.host)
    return tuple(_note(name, contract, names) for (name, contract, _), names in hosts.items())


def _note(name: str, contract: str, hosts: Sequence[str]) -> str:
    origin = f"the inventory of {_shown(hosts)}" if hosts else "-x"
    way = next((way for pattern, way in _WAYS if re.fullmatch(pattern, name)), None)
    if contract == "mnspawn":
        return f"{name} from {origin} is overruled: mnspawn sets it on every rank"
    other = f"a --contract without {contract} leaves it alone"
    return f"{name} from {origin} is overruled: contract {contract} sets it; {f'{way}, {other}' if way else other}"


def _shown(hosts: Sequence[str]) -> str:
    more = len(hosts) - _FEW
    return ", ".join(hosts[:_FEW]) + (f" and {more} more" if more > 0 else "")
