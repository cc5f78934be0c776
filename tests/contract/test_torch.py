from mnspawn.layout import Site, assign
from tests.contract.worked_example import cluster, environments, table


def test_ranks_and_sizes_as_torchrun_sets_them() -> None:
    envs = environments(cluster(), ["torch"])
    assert table(envs, "RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK") == [
        ("0", "0", "0", "0", "0"),
        ("1", "1", "0", "0", "1"),
        ("2", "0", "1", "1", "2"),
        ("3", "1", "1", "1", "3"),
    ]
    sizes = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")
    assert table(envs, *sizes) == [("4", "2", "2", "4")] * 4
    assert table(envs, "MASTER_ADDR", "MASTER_PORT", "ROLE_NAME") == [("10.0.0.1", "29500", "default")] * 4


def test_what_torch_elastic_asks_for() -> None:
    envs = environments(cluster(), ["torch"])
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
    assert table(envs, *names) == [("r1", "0", "0")] * 4
    assert table(envs, "TORCHELASTIC_ERROR_FILE") == [
        ("/runs/r1/0/error.0.json",),
        ("/runs/r1/0/error.1.json",),
        ("/runs/r1/1/error.0.json",),
        ("/runs/r1/1/error.1.json",),
    ]
    assert table(envs, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS") == [("1", "1")] * 4
    assert {env["TORCHELASTIC_SIGNALS_TO_HANDLE"] for env in envs} == {"SIGTERM,SIGINT,SIGHUP,SIGQUIT"}


def test_nobody_is_told_that_an_agent_hosts_the_store() -> None:
    assert table(environments(cluster()), "TORCHELASTIC_USE_AGENT_STORE") == [(None,)] * 4


def test_hosts_may_differ_in_size() -> None:
    layout = assign([Site("a", "10.0.0.1", "eth0", (1,)), Site("b", "10.0.0.2", "eth0", (1, 2, 3))], 29500, 29501)
    assert table(environments(layout, ["torch"]), "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS") == [
        ("0", "0", "1", None),
        ("1", "0", "3", "1"),
        ("2", "1", "3", "1"),
        ("3", "2", "3", "1"),
    ]


def test_the_address_of_an_ipv6_rendezvous_has_no_brackets() -> None:
    envs = environments(cluster(addresses=["fd00::1", "fd00::2"]), ["torch"])
    assert table(envs, "MASTER_ADDR", "MASTER_PORT") == [("fd00::1", "29500")] * 4
