"""TF_CONFIG, as TensorFlow's multi-worker strategies read it. Pure."""

import json

from mnspawn.plan.layout import Pod, Worker

from .base import Contract, Scene


def _own(scene: Scene, pod: Pod, worker: Worker) -> dict[str, str]:
    config = {
        "cluster": {"worker": scene.endpoints.split(",")},
        "task": {"type": "worker", "index": worker.rank},
    }
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


CONTRACTS = (Contract("tf", "TF_CONFIG with every rank as a worker", own=_own, scrubbed=("TF_CONFIG",)),)
