import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.errors import UsageError
from mnspawn.plan.contract import PROXIES, SCRUBBED, WATCHED
from mnspawn.plan.contract.base import LONGEST_LIST
from mnspawn.plan.launch_plan import HostContext, LaunchPlan, LaunchSpec, Program, build
from mnspawn.plan.layout import Layout, Site, assign
from mnspawn_inventory.secret_names import MASK

SCRIPT = Program("script", "train.py", ("--lr", "0.1"))


def layout(hosts: int = 2, nproc: int = 2, interface: str = "eth0") -> Layout:
    ports = tuple(range(6070, 6070 + nproc))
    return assign([Site(f"h{i}", f"10.0.0.{i}", interface, ports) for i in range(1, hosts + 1)], 29500, 29501)


def context(
    environ: Mapping[str, str] | None = None, host_env: tuple[tuple[str, str], ...] = (), script: str | None = None
) -> HostContext:
    return HostContext("/usr/bin/python3", "/state/r1/0", "/home/u", script, environ or {}, host_env)


def plan(spec: LaunchSpec | None = None, *contexts: HostContext) -> LaunchPlan:
    return build(spec or LaunchSpec("r1", SCRIPT), layout(), contexts or (context(), context()))


def env_of(plan: LaunchPlan, rank: int) -> dict[str, str]:
    return next(pod.env | worker.env for pod in plan.pods for worker in pod.workers if worker.rank == rank)


def with_env(*env: tuple[str, str], program: Program = SCRIPT) -> LaunchSpec:
    return LaunchSpec("r1", program, env=env)


# -- argv


def test_a_script_runs_unbuffered_with_its_arguments_as_they_are() -> None:
    program = Program("script", "train.py", ("", "a b", "--hosts", "'\"$`\n", "\udcff"))
    pod = plan(LaunchSpec("r1", program)).pods[1]
    assert pod.argv == ("/usr/bin/python3", "-u", "train.py", "", "a b", "--hosts", "'\"$`\n", "\udcff")


def test_a_script_that_travelled_runs_from_where_the_host_put_it() -> None:
    pods = plan(None, context(script="/state/r1/0/train.py"), context()).pods
    assert [pod.argv[2] for pod in pods] == ["/state/r1/0/train.py", "train.py"]


def test_a_module_and_a_command() -> None:
    module = plan(LaunchSpec("r1", Program("module", "pkg.train", ("x",)))).pods[0]
    command = plan(LaunchSpec("r1", Program("command", "./train.sh", ("x",)))).pods[0]
    assert module.argv == ("/usr/bin/python3", "-u", "-m", "pkg.train", "x")
    assert command.argv == ("./train.sh", "x")
    assert "PYTHONUNBUFFERED" not in module.env
    assert command.env["PYTHONUNBUFFERED"] == "1"


# -- who wins


def test_given_variables_win_over_the_inventory_and_contracts_win_over_both() -> None:
    hosts = context(host_env=(("A", "inventory"), ("B", "inventory"), ("RANK", "inventory"), ("MASTER_PORT", "1")))
    env = env_of(plan(with_env(("B", "given"), ("C", "given"), ("RANK", "99")), hosts, context()), rank=0)
    assert (env["A"], env["B"], env["C"]) == ("inventory", "given", "given")
    assert (env["RANK"], env["MASTER_PORT"]) == ("0", "29500")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0"),
        ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("OMP_NUM_THREADS", "1"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    ],
)
def test_defaults_give_way_to_the_host_the_inventory_and_given_ones(name: str, value: str) -> None:
    assert name in WATCHED
    assert env_of(plan(), rank=0)[name] == value
    of_host = plan(None, context({name: "host"}), context())
    assert name not in env_of(of_host, rank=0)  # so that the host's own stays
    assert env_of(of_host, rank=2)[name] == value
    assert env_of(plan(None, context(host_env=((name, "inventory"),)), context()), rank=0)[name] == "inventory"
    assert env_of(plan(with_env((name, "")), context({name: "host"}), context()), rank=0)[name] == ""


def test_the_backend_of_paddle_can_be_chosen() -> None:
    assert env_of(plan(), rank=0)["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert env_of(plan(with_env(("PADDLE_DISTRI_BACKEND", "nccl"))), rank=0)["PADDLE_DISTRI_BACKEND"] == "nccl"


def test_without_a_known_interface_none_is_named() -> None:
    env = build(LaunchSpec("r1", SCRIPT), layout(interface=""), (context(), context())).pods[0].env
    assert {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & env.keys() == set()


def test_one_worker_a_host_keeps_all_its_threads() -> None:
    env = build(LaunchSpec("r1", SCRIPT), layout(nproc=1), (context(), context())).pods[0].env
    assert "OMP_NUM_THREADS" not in env


def test_what_an_outer_launcher_left_is_removed_and_proxies_too_unless_asked_for() -> None:
    assert plan().pods[0].unset == (*SCRUBBED, *PROXIES)
    assert plan(LaunchSpec("r1", SCRIPT, keep_proxy=True)).pods[0].unset == SCRUBBED
    for name in ("RANK", "POD_IP", "DISTRIBUTED_TRAINER_ENDPOINTS", "TRAINER_PORTS_NUM", "TORCHELASTIC_*", "PADDLE_*"):
        assert name in SCRUBBED
    for name in ("FLAGS_selected_*", "OMPI_*", "PMI_*", "PMIX_*", "SLURM_*"):
        assert name in SCRUBBED


def test_a_given_proxy_is_kept() -> None:
    assert env_of(plan(with_env(("http_proxy", "http://p:1"))), rank=3)["http_proxy"] == "http://p:1"


def test_every_name_that_a_default_contract_sets_is_scrubbed_or_a_default() -> None:
    names = {name.rstrip("*") for name in SCRUBBED if name.endswith("*")}
    for name in env_of(plan(), rank=0):
        assert name in SCRUBBED or name in WATCHED or any(name.startswith(prefix) for prefix in names), name


# -- values of any kind


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff")))
def test_values_pass_unchanged(value: str) -> None:
    assert env_of(plan(with_env(("A", value))), rank=1)["A"] == value


def test_100_kb_pass_and_more_than_a_process_can_take_is_refused() -> None:
    assert len(env_of(plan(with_env(("A", "x" * 100_000))), rank=1)["A"]) == 100_000
    with pytest.raises(UsageError, match=r"^env A: expected at most 131071 bytes \(Linux's limit\), found 140002$"):
        plan(with_env(("A", "\N{SNOWMAN}" * 46_666 + "xx")))
    with pytest.raises(UsageError, match=r"^argument 2 of the program: expected at most 131071 bytes"):
        plan(LaunchSpec("r1", Program("script", "t.py", ("a", "x" * 131_072))))
    with pytest.raises(UsageError, match=r"^h2: inventory variable B: "):
        plan(None, context(), context(host_env=(("B", "x" * 131_072),)))


def test_more_than_any_process_can_be_given_is_refused() -> None:
    many = ("x" * 100_000,) * 70
    told = r"arguments and variables: expected at most 6291456 bytes .*, found 70\d+: arguments 35\d+, V10 1"
    with pytest.raises(UsageError, match=told):
        plan(LaunchSpec("r1", Program("script", "t.py", many[:35]), env=tuple((f"V{n}", many[n]) for n in range(35))))
    assert len(plan(LaunchSpec("r1", Program("script", "t.py", ("x",) * 400_000))).pods[0].argv) == 400_003


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
def test_names_that_no_environment_can_hold_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"^env: expected a variable's name, found"):
        plan(with_env((name, "x")))


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_values_that_no_environment_can_hold_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"^env A: expected text"):
        plan(with_env(("A", value)))


# -- contracts


def test_the_default_contracts_leave_other_libraries_alone() -> None:
    env = env_of(plan(), rank=2)
    assert {"RANK", "PADDLE_TRAINER_ID", "JAX_COORDINATOR_ADDRESS", "MNSPAWN_RANK"} <= env.keys()
    assert [name for name in env if name.startswith(("OMPI_", "TF_", "SLURM_", "PMI"))] == []


def test_none_leaves_mnspawns_own_variables_and_the_given_ones() -> None:
    spec = LaunchSpec("r1", SCRIPT, contracts=("none",), env=(("RANK", "7"),))
    env = env_of(plan(spec), rank=2)
    assert {name for name in env if not name.startswith("MNSPAWN_")} == {"RANK"}
    assert env["RANK"] == "7"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("torch", "horovod"), "expected contracts out of .*, found 'horovod'"),
        (("none", "torch"), "expected 'none' alone, found it beside others"),
    ],
)
def test_contracts_that_can_not_be(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(LaunchSpec("r1", SCRIPT, contracts=names))


def test_lists_too_long_for_the_environment_travel_as_files() -> None:
    sites = [Site(f"host-{i:05}", f"10.0.{i >> 8}.{i & 255}", "eth0", (6070,)) for i in range(4500)]
    big = build(LaunchSpec("r1", SCRIPT), assign(sites, 1, 2), [context()] * 4500)
    pod = big.pods[4499]
    files = dict(pod.files)
    assert "PADDLE_TRAINER_ENDPOINTS" not in pod.env
    assert "MNSPAWN_HOSTS" not in pod.env
    assert pod.env["PADDLE_BACKUP_ENV_PATH"] == "/state/r1/0/paddle_env.json"
    assert pod.env["PADDLE_MASTER"] == "10.0.0.0:6070"
    assert pod.env["MNSPAWN_HOSTS_FILE"] == "/state/r1/0/hosts"
    assert json.loads(files["paddle_env.json"])["PADDLE_TRAINER_ENDPOINTS"].split(",")[4499] == "10.0.17.147:6070"
    assert files["hosts"].splitlines()[4499] == "host-04499"
    assert all(len(value) <= LONGEST_LIST for value in pod.env.values())


def test_a_tf_config_too_long_for_the_environment_is_refused() -> None:
    sites = [Site("h0", "gpu-0.cluster.example", "eth0", tuple(range(1000, 6000)))]
    with pytest.raises(UsageError, match=r"^h0: contract tf TF_CONFIG: expected at most 131071 bytes"):
        build(LaunchSpec("r1", SCRIPT, contracts=("tf",)), assign(sites, 1, 2), [context()])


# -- what people see


def test_describe_has_everything_a_rank_is_given() -> None:
    spec = LaunchSpec("r1", Program("script", "train.py", ("a b",)), env=(("A", "x\udc80"),))
    shown = json.loads(json.dumps(plan(spec).describe()))
    assert (shown["run"], shown["world_size"], shown["rendezvous"]) == ("r1", 4, "10.0.0.1:29500")
    pod = shown["pods"][1]
    assert (pod["node_rank"], pod["host"], pod["address"]) == (1, "h2", "10.0.0.2")
    worker = pod["trainers"][1]
    assert (worker["rank"], worker["local_rank"], worker["endpoint"]) == (3, 1, "10.0.0.2:6071")
    assert worker["devices"] == []
    assert worker["argv"] == ["/usr/bin/python3", "-u", "train.py", "a b"]
    assert worker["env"] == env_of(plan(spec), rank=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("WANDB_API_KEY", "x"),
        ("db_password", "x"),
        ("MYSQL_PWD", "x"),
        ("DATABASE_URL", "postgres://me:pw@db/x"),
        ("https_proxy", "http://me:pw@proxy:3128"),
    ],
)
def test_secrets_are_masked_unless_asked_for(name: str, value: str) -> None:
    secret = plan(with_env((name, value)))
    assert secret.describe(reveal=False)["pods"][0]["trainers"][0]["env"][name] == MASK
    assert secret.describe(reveal=True)["pods"][0]["trainers"][0]["env"][name] == value


def test_what_the_inventory_keeps_elsewhere_is_masked_whatever_its_name() -> None:
    one = replace(context(host_env=(("PLAIN", "x"), ("MODE", "y"))), secrets=frozenset({"PLAIN"}))
    env = plan(None, one, one).describe(reveal=False)["pods"][1]["trainers"][1]["env"]
    assert (env["PLAIN"], env["MODE"]) == (MASK, "y")


def test_nothing_that_mnspawn_sets_is_taken_for_a_secret() -> None:
    spec = LaunchSpec("r1", SCRIPT, contracts=("torch", "paddle", "jax", "tf", "ompi"))
    env = plan(spec).describe(reveal=False)["pods"][0]["trainers"][0]["env"]
    assert [name for name, value in env.items() if value == MASK] == []


def test_a_repr_shows_no_value_and_no_argument() -> None:
    program = Program("script", "train.py", ("--password=hunter2",))
    spec = LaunchSpec("r1", program, env=(("PASSWORD", "hunter2"),))
    one = context({"OMP_NUM_THREADS": "hunter2"}, (("B", "hunter2"),))
    assert "hunter2" not in repr((program, spec, one, build(spec, layout(), (one, one))))
