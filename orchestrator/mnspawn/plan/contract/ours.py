"""mnspawn's own variables: set on every rank, whatever contracts are chosen. Pure."""

from mnspawn.plan.layout import Pod, Worker

from .base import LONGEST_LIST, Contract, RunFacts, Share

_HOSTS_FILE = "hosts"
NAMES = frozenset(
    f"MNSPAWN_{name}"
    for name in (
        *("RUN_ID", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("HOST", "HOSTS", "HOSTS_FILE", "ATTEMPT"),
    )
)


def _shared(facts: RunFacts, pod: Pod) -> Share:
    env = {
        "MNSPAWN_RUN_ID": facts.run,
        "MNSPAWN_NODE_RANK": str(pod.node_rank),
        "MNSPAWN_WORLD_SIZE": str(facts.world_size),
        "MNSPAWN_LOCAL_WORLD_SIZE": str(len(pod.workers)),
        "MNSPAWN_HOST": pod.host,
        "MNSPAWN_ATTEMPT": str(facts.attempt),
    }
    if len(facts.hosts) <= LONGEST_LIST:
        return Share(env | {"MNSPAWN_HOSTS": facts.hosts})
    env["MNSPAWN_HOSTS_FILE"] = facts.path(pod, _HOSTS_FILE)
    return Share(env, files=((_HOSTS_FILE, facts.hosts.replace(",", "\n") + "\n"),))


def _own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    return {"MNSPAWN_RANK": str(worker.rank), "MNSPAWN_LOCAL_RANK": str(worker.local_rank)}


OURS = Contract("mnspawn", _shared, _own, scrubbed=("MNSPAWN_*",))
