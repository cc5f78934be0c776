import json

import pytest

from mnspawn.plan.contract import DEFAULT, REGISTRY, ours
from tests.contract.worked_example import cluster, environments, table
from tests.support.controller import REPOSITORY

IPV6 = ("fd00::1", "fd00::2")


# -- jax


def test_jax_finds_its_coordinator_on_a_port_of_its_own() -> None:
    envs = environments(cluster())
    assert table(envs, "JAX_COORDINATOR_ADDRESS", "MASTER_PORT") == [("10.0.0.1:29501", "29500")] * 4
    assert table(environments(cluster(addresses=IPV6)), "JAX_COORDINATOR_ADDRESS") == [("[fd00::1]:29501",)] * 4


def test_jax_believes_in_open_mpi_when_asked_for_by_name() -> None:
    names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    envs = environments(cluster(), ["jax"])
    assert table(envs, *names) == [("4", "0", "0"), ("4", "1", "1"), ("4", "2", "0"), ("4", "3", "1")]
    assert table(envs, "OMPI_MCA_orte_hnp_uri") == [("0.0;tcp://10.0.0.1:29501",)] * 4
    assert table(environments(cluster(), DEFAULT), *names, "OMPI_MCA_orte_hnp_uri") == [(None,) * 4] * 4
    ipv6 = environments(cluster(addresses=IPV6), ["jax"])
    assert table(ipv6, "OMPI_MCA_orte_hnp_uri") == [("0.0;tcp6://[fd00::1]:29501",)] * 4


# -- ompi


def test_open_mpis_node_rank_counts_processes_and_not_nodes() -> None:
    envs = environments(cluster(), ["ompi"])
    ranks = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK")
    sizes = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_UNIVERSE_SIZE", "OMPI_MCA_orte_hnp_uri")
    assert table(envs, *ranks) == [("0", "0", "0"), ("1", "1", "1"), ("2", "0", "0"), ("3", "1", "1")]
    assert table(envs, *sizes) == [("4", "2", "4", None)] * 4


# -- tf


def test_tf_config_names_every_rank_as_a_worker() -> None:
    configs = [json.loads(env["TF_CONFIG"]) for env in environments(cluster(), ["tf"])]
    workers = ["10.0.0.1:6070", "10.0.0.1:6071", "10.0.0.2:6070", "10.0.0.2:6071"]
    assert [config["cluster"] for config in configs] == [{"worker": workers}] * 4
    assert [config["task"] for config in configs] == [{"type": "worker", "index": rank} for rank in range(4)]


# -- interfaces, ours, the registry


def test_each_hosts_own_interface_is_named() -> None:
    assert table(environments(cluster()), "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") == [
        ("eth1", "=eth1"),
        ("eth1", "=eth1"),
        ("eth2", "=eth2"),
        ("eth2", "=eth2"),
    ]


@pytest.mark.parametrize("name", REGISTRY)
def test_mnspawns_own_variables_are_there_whatever_is_chosen(name: str) -> None:
    envs = environments(cluster(), [name])
    who = ("MNSPAWN_RANK", "MNSPAWN_LOCAL_RANK", "MNSPAWN_NODE_RANK", "MNSPAWN_HOST")
    assert table(envs, *who) == [
        ("0", "0", "0", "h1"),
        ("1", "1", "0", "h1"),
        ("2", "0", "1", "h2"),
        ("3", "1", "1", "h2"),
    ]
    run = ("MNSPAWN_WORLD_SIZE", "MNSPAWN_LOCAL_WORLD_SIZE", "MNSPAWN_HOSTS", "MNSPAWN_RUN_ID", "MNSPAWN_ATTEMPT")
    assert table(envs, *run) == [("4", "2", "h1,h2", "r1", "0")] * 4
    assert {name for name in envs[0] if name.startswith("MNSPAWN_")} == ours.NAMES - {"MNSPAWN_HOSTS_FILE"}


def test_a_long_host_list_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "LONGEST_LIST", 4)
    assert table(environments(cluster()), "MNSPAWN_HOSTS", "MNSPAWN_HOSTS_FILE")[2] == (None, "/runs/r1/1/hosts")


@pytest.mark.parametrize("contracts", [*([name] for name in REGISTRY), DEFAULT])
def test_every_variable_is_documented(contracts: list[str]) -> None:
    page = (REPOSITORY / "docs" / "contracts.md").read_text(encoding="utf-8")
    for kind in ("cpu", "gpu"):
        for env in environments(cluster(kind), contracts):
            assert [name for name in env if f"`{name}" not in page] == []
