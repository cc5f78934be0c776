"""What Paddle's launchers give their workers: PADDLE_* and FLAGS_selected_*. Pure."""

import json
from functools import lru_cache

from mnspawn.plan.layout import Pod, Worker

from .base import LONGEST_LIST, Contract, RunFacts, Share

_BACKUP_FILE = "paddle_env.json"


@lru_cache(maxsize=1)  # the same content for every pod of a run
def _backup(endpoints: str) -> str:
    return json.dumps({"PADDLE_TRAINER_ENDPOINTS": endpoints})


def _shared(facts: RunFacts, pod: Pod) -> Share:
    env = {
        "PADDLE_TRAINERS_NUM": str(facts.world_size),
        "PADDLE_GLOBAL_SIZE": str(facts.world_size),
        "PADDLE_LOCAL_SIZE": str(len(pod.workers)),
        "PADDLE_NNODES": str(len(facts.layout.pods)),
    }
    defaults = _backend(pod.device_kind)
    if len(facts.endpoints) <= LONGEST_LIST:
        return Share(env | {"PADDLE_TRAINER_ENDPOINTS": facts.endpoints}, defaults)
    env["PADDLE_BACKUP_ENV_PATH"] = facts.path(pod, _BACKUP_FILE)
    # Paddle's C++ store never opens that file: it needs the address of rank 0 in the environment.
    env["PADDLE_MASTER"] = facts.layout.pods[0].workers[0].endpoint
    return Share(env, defaults, ((_BACKUP_FILE, _backup(facts.endpoints)),))


def _backend(kind: str) -> dict[str, str]:
    """GPU and XPU builds know theirs. Without gloo named, Paddle makes no group on a CPU."""
    if kind == "cpu":
        return {"PADDLE_DISTRI_BACKEND": "gloo"}
    return {} if kind in ("gpu", "xpu") else {"PADDLE_DISTRI_BACKEND": "xccl", "PADDLE_XCCL_BACKEND": kind}


def _own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    rank, local_rank = str(worker.rank), str(worker.local_rank)
    env = {
        "PADDLE_TRAINER_ID": rank,
        "PADDLE_GLOBAL_RANK": rank,
        "PADDLE_RANK_IN_NODE": local_rank,
        "PADDLE_LOCAL_RANK": local_rank,
        "PADDLE_CURRENT_ENDPOINT": worker.endpoint,
    }
    if worker.devices:  # positions inside the host's visible list
        env[f"FLAGS_selected_{pod.device_kind}s"] = ",".join(map(str, worker.devices))
    return env


CONTRACTS = (
    Contract(
        "paddle",
        _shared,
        _own,
        scrubbed=(
            *("PADDLE_*", "POD_IP", "POD_NAME", "DISTRIBUTED_TRAINER_ENDPOINTS", "TRAINER_PORTS_NUM"),
            *("TRAINER_IP_PORT_LIST", "FLAGS_selected_*", "FLAGS_START_PORT"),
        ),
    ),
)
