"""TF_CONFIG, as TensorFlow's multi-worker strategies read it. Pure."""

import json

from mnspawn.contract.base import Contract, Scene
from mnspawn.layout import Pod, Trainer


def _own(scene: Scene, pod: Pod, trainer: Trainer) -> dict[str, str]:
    config = {
        "cluster": {"worker": scene.endpoints.split(",")},
        "task": {"type": "worker", "index": trainer.rank},
    }
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


TF = Contract("tf", "TF_CONFIG with every rank as a worker", own=_own)
