import shlex
from collections.abc import Sequence

import pytest

from mnspawn.plan.contract import SCRUBBED, advice
from mnspawn.plan.launch_plan import HostContext, LaunchSpec, Program, build
from mnspawn.plan.layout import Layout, Site, assign
from tests.contract.worked_example import SCRIPT, cluster, environments, table


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


# -- torchrun as the rank


PET = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


def one_each(addresses: Sequence[str] = ("10.0.0.1", "10.0.0.2")) -> Layout:
    sites = [Site(f"h{number}", address, "eth0", (6070,)) for number, address in enumerate(addresses, 1)]
    return assign(sites, 29500, 29501)


def told(program: Program, layout: Layout | None = None, **env: str) -> list[tuple[str | None, ...]]:
    """What torchrun reads on each host."""
    chosen = layout or one_each()
    contexts = [HostContext("python3", "/runs", "/home/u") for _ in chosen.pods]
    plan = build(LaunchSpec("r1", program, env=tuple(env.items())), chosen, contexts)
    return table([pod.env | worker.env for pod in plan.pods for worker in pod.workers], *PET)


MEETING = [("2", "0", "10.0.0.1", "29500"), ("2", "1", "10.0.0.1", "29500")]
NOTHING = [(None,) * 4] * 2
TORCHRUN = Program("command", "torchrun", ("--nproc-per-node", "8", "train.py"))


def test_torchrun_on_each_host_is_told_where_the_others_are() -> None:
    assert told(TORCHRUN) == MEETING
    assert told(SCRIPT) == MEETING  # which may be what starts torchrun


def test_torchrun_takes_an_ipv6_address_in_brackets() -> None:
    assert told(TORCHRUN, one_each(["fd00::1", "fd00::2"]))[1] == ("2", "1", "[fd00::1]", "29500")


def test_where_hosts_have_more_ranks_or_there_is_one_host_torchrun_is_told_nothing() -> None:
    assert told(TORCHRUN, one_each(["10.0.0.1"])) == NOTHING[:1]
    assert told(TORCHRUN, cluster()) == NOTHING * 2
    uneven = assign([Site("a", "10.0.0.1", "eth0", (1,)), Site("b", "10.0.0.2", "eth0", (1, 2))], 29500, 29501)
    assert told(TORCHRUN, uneven) == [(None,) * 4] * 3


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --standalone --nproc-per-node 8 train.py",
        "torchrun --nproc-per-node=8 --standalone train.py",
        "/opt/venv/bin/torchrun --nproc_per_node 8 --nnodes 1 train.py",
        "torchrun -m --nnodes=1:1 train",
        "python3 -m torch.distributed.run --standalone train.py",
        "sh -c 'cd /data && exec torchrun --standalone --nproc-per-node 8 train.py'",
        "accelerate launch --multi_gpu --num_machines 1 train.py",
    ],
)
def test_a_launcher_that_shall_stay_on_its_host_is_not_told_of_others(line: str) -> None:
    target, *args = shlex.split(line)
    assert told(Program("command", target, tuple(args))) == NOTHING


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 8 train.py --standalone",
        "torchrun --nnodes 2 --nproc-per-node 8 train.py",
        "torchrun --nproc-per-node 8 train.py --nnodes 1",
        "torchrun --rdzv-id standalone train.py",
        "sh -c 'torchrun --nproc-per-node 8 train.py'",
        "accelerate launch --multi_gpu --num_processes 8 train.py",
        "accelerate launch --num_machines 12 train.py",
    ],
)
def test_other_launchers_are(line: str) -> None:
    target, *args = shlex.split(line)
    assert told(Program("command", target, tuple(args))) == MEETING


def test_what_the_user_gives_torchrun_wins() -> None:
    assert told(TORCHRUN, PET_NNODES="1") == [("1", None, None, None)] * 2
    assert told(TORCHRUN, PET_STANDALONE="1") == NOTHING
    assert told(TORCHRUN, PET_NNODES="1:2", PET_MASTER_PORT="7") == [
        ("1:2", "0", "10.0.0.1", "7"),
        ("1:2", "1", "10.0.0.1", "7"),
    ]


def test_nothing_that_an_outer_launcher_told_torchrun_is_left() -> None:
    left = {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_*", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_STANDALONE"}
    assert left <= set(SCRUBBED)


# -- Accelerate


def test_accelerate_uses_cpus_where_there_is_nothing_else() -> None:
    assert table(environments(cluster()), "ACCELERATE_USE_CPU") == [("true",)] * 4
    assert table(environments(cluster("gpu")), "ACCELERATE_USE_CPU") == [(None,)] * 4
    unused = assign([Site("a", "10.0.0.1", "eth0", (1,), has_accelerators=True)], 29500, 29501)
    fewer = assign([Site("a", "10.0.0.1", "eth0", (1, 2), (0,), "gpu")], 29500, 29501)
    assert table(environments(unused) + environments(fewer), "ACCELERATE_USE_CPU") == [(None,)] * 3


def test_an_error_file_of_the_users_own_stays() -> None:
    contexts = [HostContext("python3", "/runs", "/home/u", host_env=(("TORCHELASTIC_ERROR_FILE", "/mine"),))]
    plan = build(LaunchSpec("r1", SCRIPT), one_each(["10.0.0.1"]), contexts)
    (pod,) = plan.pods
    assert (pod.env | pod.workers[0].env)["TORCHELASTIC_ERROR_FILE"] == "/mine"


def test_a_torchrun_for_every_rank_of_a_host_gets_a_note() -> None:
    (note,) = advice(("torchrun", "--nproc-per-node", "2", "train.py"), cluster())
    assert note.startswith("each rank starts a torchrun of its own, up to 2 on a host")
    assert advice(("sh", "-c", "exec /opt/bin/torchrun train.py"), cluster()) == (note,)
    assert advice(("torchrun", "train.py"), one_each()) == ()
    assert advice(("python", "train.py"), cluster()) == ()
    assert advice(("torchrun", "--node-rank", "3", "train.py"), cluster()) == ()
    assert advice(("torchrun", "--standalone", "train.py"), cluster()) == ()
