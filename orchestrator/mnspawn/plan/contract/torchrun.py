"""What torchrun reads where each host runs one, so that they find each other: PET_NNODES, PET_NODE_RANK, ... Pure.

torchrun takes every option that its command line lacks from PET_<OPTION> (torch/distributed/argparse_util.py).
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from mnspawn.plan.layout import Layout, Pod

from .base import RunFacts

_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_FLAGS = ("standalone", "m", "module", "no-python", "run-path", "virtual-local-rank", "use-env")  # take no value
_WORDS = re.compile(r"[^\s;&|()'\"]+")
# accelerate launch starts torchrun's code with what it reads, unless --num_machines is on its own command line
_ACCELERATE = ("accelerate", "accelerate-launch", "accelerate.commands.launch")
_ONE_MACHINE = re.compile(r"--num[_-]machines[= ]1(?!\S)")
_TOLD = re.compile(r"--(node|rdzv)[_-](rank|endpoint)|--standalone")  # then somebody has thought of it
_ONE_NODE = ("1", "1:1")


def meeting(facts: RunFacts, pod: Pod) -> dict[str, str]:
    """Nothing where hosts have more ranks: then the ranks are the workers, and a torchrun in one is on its own.

    Nothing, too, for a torchrun that is told to stay on its host: these variables would make it wait for the others.
    """
    if not facts.is_one_each or _is_local(facts.given[pod.node_rank]) or _has_local_launcher(facts.words):
        return {}
    address, port = facts.layout.rendezvous
    return {
        "PET_NNODES": str(len(facts.layout.pods)),
        "PET_NODE_RANK": str(pod.node_rank),
        "PET_MASTER_ADDR": f"[{address}]" if ":" in address else address,  # torchrun joins it and the port with a colon
        "PET_MASTER_PORT": str(port),
    }


def advice(words: tuple[str, ...], layout: Layout) -> tuple[str, ...]:
    """A note where every rank starts a torchrun, which is seldom meant where hosts have more than one rank."""
    most = max(len(pod.workers) for pod in layout.pods)
    parts = _parts_of(words)
    if most == 1 or not any(part.rpartition("/")[2] in _LAUNCHERS for part in parts) or _TOLD.search(" ".join(parts)):
        return ()
    return (
        f"each rank starts a torchrun of its own, up to {most} on a host, and these don't find each other:"
        " for one on each host say --nproc-per-node 1 to mnspawn; or run the script without torchrun",
    )


def _is_local(given: Mapping[str, str]) -> bool:
    return given.get("PET_NNODES") in _ONE_NODE or given.get("PET_STANDALONE", "0") not in ("0", "")


@lru_cache(maxsize=1)  # the same for every pod of a run
def _has_local_launcher(words: tuple[str, ...]) -> bool:
    """Whether a launcher among these words, or in a shell's line among them, is told to stay on its host."""
    parts = _parts_of(words)
    for index, part in enumerate(parts):
        name = part.rpartition("/")[2]
        if name in _LAUNCHERS and _is_told_to_be_local(parts[index + 1 :]):
            return True
        if name in _ACCELERATE and _ONE_MACHINE.search(" ".join(parts[index + 1 :])):
            return True
    return False


def _parts_of(words: tuple[str, ...]) -> list[str]:
    return [part for word in words for part in _WORDS.findall(word)]


def _is_told_to_be_local(options: list[str]) -> bool:
    while options and options[0].startswith("-"):
        name, has_value, value = options.pop(0).lstrip("-").replace("_", "-").partition("=")
        if name == "standalone":
            return True
        if not has_value and name not in _FLAGS and options:
            value = options.pop(0)
        if name == "nnodes":
            return value in _ONE_NODE
    return False
