"""What workers on real hosts find, against what the contracts say and what --dry-run showed before."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import Cluster

SHOW = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
NASTY = ["", "a b", "'\"$HOME`id`\\", "line\nline\n", "ä\N{SNOWMAN}", "\udcff\udc80", "x" * 100_000, "--hosts", "-x"]


def shown(cluster: Cluster, *args: str, env: dict[str, str] | None = None) -> list[tuple[list[str], dict[str, str]]]:
    """Arguments and environment of every rank, in rank order."""
    script = cluster.home / "show.py"
    script.write_text(SHOW)
    words = [str(script) if word == "SCRIPT" else word for word in args]
    done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "2", *words, env=env).check()
    found: dict[int, Any] = {}
    for line in done.stdout.splitlines():
        prefix, _, said = line.partition("] ")
        found[int(prefix.partition(":")[2])] = json.loads(said)
    assert sorted(found) == list(range(2 * len(cluster.hosts)))
    return [(found[rank][0], found[rank][1]) for rank in range(len(found))]


@pytest.mark.essential
def test_three_hosts_with_two_workers_each(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3)  # no port of theirs was used before, so the defaults are free
    envs = [env for _, env in shown(cluster, "SCRIPT")]
    for rank, env in enumerate(envs):
        host, local_rank = cluster.hosts[rank // 2], rank % 2
        assert env["RANK"] == env["ROLE_RANK"] == env["MNSPAWN_RANK"] == str(rank)
        assert env["PADDLE_TRAINER_ID"] == env["PADDLE_GLOBAL_RANK"] == str(rank)
        assert env["LOCAL_RANK"] == env["MNSPAWN_LOCAL_RANK"] == str(local_rank)
        assert env["PADDLE_LOCAL_RANK"] == env["PADDLE_RANK_IN_NODE"] == str(local_rank)
        assert env["GROUP_RANK"] == env["NODE_RANK"] == env["MNSPAWN_NODE_RANK"] == str(rank // 2)
        assert env["WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == env["MNSPAWN_WORLD_SIZE"] == "6"
        assert env["PADDLE_TRAINERS_NUM"] == env["PADDLE_GLOBAL_SIZE"] == "6"
        assert env["LOCAL_WORLD_SIZE"] == env["MNSPAWN_LOCAL_WORLD_SIZE"] == env["PADDLE_LOCAL_SIZE"] == "2"
        assert env["GROUP_WORLD_SIZE"] == env["PADDLE_NNODES"] == "3"
        assert (env["MNSPAWN_HOST"], env["MNSPAWN_HOSTS"]) == (host.name, cluster.hosts_option)
        assert env["PADDLE_CURRENT_ENDPOINT"] == f"{host.address}:{6070 + local_rank}"
        assert env["PADDLE_TRAINER_ENDPOINTS"].split(",")[rank] == env["PADDLE_CURRENT_ENDPOINT"]
        assert (env["PADDLE_DISTRI_BACKEND"], env["OMP_NUM_THREADS"]) == ("gloo", "1")
        assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("eth0", "=eth0")
        assert env["TORCHELASTIC_ERROR_FILE"].endswith(f"/error.{local_rank}.json")
    first = cluster.hosts[0].address
    for name in ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "PADDLE_TRAINER_ENDPOINTS"):
        assert len({env[name] for env in envs}) == 1
    ports = {envs[0]["MASTER_PORT"], envs[0]["JAX_COORDINATOR_ADDRESS"].removeprefix(f"{first}:"), "6070", "6071"}
    assert (envs[0]["MASTER_ADDR"], len(ports)) == (first, 4)
    assert len({env["MNSPAWN_RUN_ID"] for env in envs} | {env["TORCHELASTIC_RUN_ID"] for env in envs}) == 1


def test_arguments_and_values_arrive_byte_for_byte(cluster: Cluster) -> None:
    given = [word for number, value in enumerate(NASTY) for word in ("-x", f"V{number}={value}")]
    forwarded = {f"W{number}": value for number, value in enumerate(NASTY)}
    names = [word for name in forwarded for word in ("-x", name)]
    for argv, env in shown(cluster, *given, *names, "SCRIPT", *NASTY, env=forwarded):
        assert argv == NASTY
        assert [env[f"V{number}"] for number in range(len(NASTY))] == NASTY
        assert [env[f"W{number}"] for number in range(len(NASTY))] == NASTY


def test_hosts_own_variables_are_scrubbed_kept_or_respected(make_cluster: Callable[..., Cluster]) -> None:
    left = "export RANK=7 SLURM_JOB_ID=1 TORCHELASTIC_USE_AGENT_STORE=True PADDLE_MASTER=x PMI_RANK=1 MNSPAWN_HOSTS=x"
    cluster = make_cluster(2)
    cluster["h1"].write("/root/.bashrc", f"{left}\nexport http_proxy=http://p https_proxy=http://p NO_PROXY=x MINE=1\n")
    cluster["h2"].write("/root/.bashrc", "export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=4\n")
    envs = [env for _, env in shown(cluster, "-x", "MINE=2", "SCRIPT")]
    gone = {"SLURM_JOB_ID", "TORCHELASTIC_USE_AGENT_STORE", "PADDLE_MASTER", "PMI_RANK", "http_proxy", "https_proxy"}
    assert [gone & env.keys() for env in envs] == [set()] * 4
    assert [env["RANK"] for env in envs] == ["0", "1", "2", "3"]
    assert [env["MNSPAWN_HOSTS"] for env in envs] == ["h1,h2"] * 4
    assert (envs[0]["NO_PROXY"], envs[0]["MINE"]) == ("x", "2")
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS")
    assert [[env[name] for name in names] for env in envs[1:3]] == [["eth0", "=eth0", "1"], ["lo", "=eth0", "4"]]
    kept = [env for _, env in shown(cluster, "--keep-proxy", "SCRIPT")]
    assert [env.get("http_proxy") for env in kept] == ["http://p", "http://p", None, None]


def test_a_dry_run_shows_what_ranks_then_get(cluster: Cluster) -> None:
    script = cluster.home / "show.py"
    script.write_text(SHOW)
    where = (
        "--hosts",
        cluster.hosts_option,
        "--nproc-per-node",
        "2",
        "--start-port",
        "6070",
        "-x",
        "API_TOKEN=s3cret",
        "--contract",
        "torch,tf",
    )
    dry = cluster.mnspawn(*where, "--dry-run", "--json", str(script), "an argument").check()
    plan = json.loads(dry.stdout)
    real = shown(cluster, *where[4:], "SCRIPT", "an argument")
    assert (plan["world_size"], len(plan["pods"])) == (6, 3)
    differing = {"MASTER_PORT", "MNSPAWN_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
    for pod in plan["pods"]:
        for worker in pod["trainers"]:
            argv, env = real[worker["rank"]]
            assert worker["argv"][3:] == argv == ["an argument"]
            assert worker["env"].keys() <= env.keys()
            assert {name for name, value in worker["env"].items() if env[name] != value} <= differing
    for_people = cluster.mnspawn(*where, "--dry-run", str(script)).check()
    assert "s3cret" not in for_people.stdout + for_people.stderr
