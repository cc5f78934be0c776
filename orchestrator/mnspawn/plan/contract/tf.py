"""TF_CONFIG, as TensorFlow's multi-worker strategies read it. Pure."""

import json

from mnspawn.plan.layout import Pod, Worker

from .base import Contract, RunFacts


def _own(facts: RunFacts, pod: Pod, worker: Worker) -> dict[str, str]:
    config = {
        "cluster": {"worker": facts.endpoints.split(",")},
        "task": {"type": "worker", "index": worker.rank},
    }
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


CONTRACTS = (Contract("tf", own=_own, scrubbed=("TF_CONFIG",)),)
