import json

import pytest

from mnspawn.plan.contract import paddle as contract
from tests.contract.worked_example import cluster, environments, table

ENDPOINTS = "10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070,10.0.0.2:6071"
WHO = ("PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT", "FLAGS_selected_gpus")


def test_the_worked_example_on_gpus() -> None:
    envs = environments(cluster("gpu"), ["paddle"])
    assert table(envs, *WHO) == [
        ("0", "10.0.0.1:6070", "0"),
        ("1", "10.0.0.1:6071", "1"),
        ("2", "10.0.0.2:6070", "0"),
        ("3", "10.0.0.2:6071", "1"),
    ]
    assert table(envs, "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS") == [("4", ENDPOINTS)] * 4
    assert table(envs, "PADDLE_DISTRI_BACKEND", "PADDLE_MASTER") == [(None, None)] * 4


def test_the_worked_example_on_cpus() -> None:
    envs = environments(cluster("cpu"), ["paddle"])
    assert table(envs, *WHO) == [
        ("0", "10.0.0.1:6070", None),
        ("1", "10.0.0.1:6071", None),
        ("2", "10.0.0.2:6070", None),
        ("3", "10.0.0.2:6071", None),
    ]
    assert table(envs, "PADDLE_TRAINER_ENDPOINTS", "PADDLE_DISTRI_BACKEND") == [(ENDPOINTS, "gloo")] * 4


def test_what_the_newer_launcher_adds() -> None:
    envs = environments(cluster(), ["paddle"])
    names = ("PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE")
    assert table(envs, *names) == [("0", "0", "0"), ("1", "1", "1"), ("2", "0", "0"), ("3", "1", "1")]
    assert table(envs, "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_SIZE", "PADDLE_NNODES") == [("4", "2", "2")] * 4


def test_other_devices_have_names_of_their_own() -> None:
    names = ("FLAGS_selected_xpus", "FLAGS_selected_npus", "PADDLE_DISTRI_BACKEND", "PADDLE_XCCL_BACKEND")
    assert table(environments(cluster("xpu"), ["paddle"]), *names)[1] == ("1", None, None, None)
    assert table(environments(cluster("npu"), ["paddle"]), *names)[1] == (None, "1", "xccl", "npu")


def test_a_long_endpoint_list_goes_to_a_file_as_with_paddles_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "LONGEST_LIST", len(ENDPOINTS))
    assert table(environments(cluster(), ["paddle"]), "PADDLE_TRAINER_ENDPOINTS") == [(ENDPOINTS,)] * 4
    monkeypatch.setattr(contract, "LONGEST_LIST", len(ENDPOINTS) - 1)
    names = ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_BACKUP_ENV_PATH", "PADDLE_MASTER")
    assert table(environments(cluster(), ["paddle"]), *names) == [
        (None, "/runs/r1/0/paddle_env.json", "10.0.0.1:6070"),
        (None, "/runs/r1/0/paddle_env.json", "10.0.0.1:6070"),
        (None, "/runs/r1/1/paddle_env.json", "10.0.0.1:6070"),
        (None, "/runs/r1/1/paddle_env.json", "10.0.0.1:6070"),
    ]
    assert json.loads(contract._backup(ENDPOINTS)) == {"PADDLE_TRAINER_ENDPOINTS": ENDPOINTS}
