"""What a host's own inventory values do to its share of the plan."""

import pytest

from mnspawn.errors import UsageError
from mnspawn.plan.contract import DEFAULT, WATCHED
from mnspawn.plan.contract.ours import NAMES
from mnspawn.plan.launch_plan import Forwarded, HostContext, LaunchSpec, PodPlan, Program, build
from mnspawn.plan.layout import Layout, Site, assign


def layout() -> Layout:
    return assign([Site("h1", "10.0.0.1", "eth0", (6070,))], 29500, 29501)


def pod(context: HostContext, *env: tuple[str, str], program: Program | None = None) -> PodPlan:
    program = program or Program("script", "train.py")
    return build(LaunchSpec("r1", program, env=env), layout(), [context]).pods[0]


def test_a_forwarded_value_gives_way_to_the_hosts_own_and_a_given_one_does_not() -> None:
    own = HostContext("python3", "/run", "/", host_env=(("NCCL_SOCKET_IFNAME", "ib0"), ("MODE", "host")))
    env = pod(own, ("NCCL_SOCKET_IFNAME", Forwarded("eth0")), ("MODE", "given"), ("ONLY", Forwarded("ours"))).env
    assert (env["NCCL_SOCKET_IFNAME"], env["MODE"], env["ONLY"]) == ("ib0", "given", "ours")


def test_a_prelude_stands_beside_the_program_and_shows_no_secrets() -> None:
    prelude = "source ~/venv/bin/activate\nexport HF_TOKEN='a b' MODE=fast; PASSWORD=x"
    launch = build(
        LaunchSpec("r1", Program("command", "echo")), layout(), [HostContext("python3", "/run", "/", prelude=prelude)]
    )
    assert (launch.pods[0].prelude, launch.pods[0].argv) == (prelude, ("echo",))
    assert launch.describe()["pods"][0]["prelude"] == prelude
    assert launch.describe(reveal=False)["pods"][0]["prelude"] == (
        "source ~/venv/bin/activate\nexport HF_TOKEN=*** MODE=fast; PASSWORD=***"
    )
    assert repr(launch).count("HF_TOKEN") == 0


def test_a_prelude_that_no_shell_can_be_handed_is_refused() -> None:
    with pytest.raises(UsageError, match="h1: prelude: expected at most 131071 bytes"):
        pod(HostContext("python3", "/run", "/", prelude="#" * 131_050))


# -- variables that a contract replaces


def notes(
    *env: tuple[str, str], host_env: tuple[tuple[str, str], ...] = (), contracts: tuple[str, ...] = DEFAULT
) -> list[str]:
    own = HostContext("python3", "/run", "/", host_env=host_env)
    spec = LaunchSpec("r1", Program("script", "t.py"), contracts, env)
    return list(build(spec, layout(), [own]).notes)


def test_a_given_variable_that_a_contract_replaces_is_told_with_the_option_that_does_it() -> None:
    told = notes(("RANK", "7"), ("MASTER_PORT", Forwarded("1")), ("PADDLE_TRAINERS_NUM", "3"), ("MINE", "x"))
    assert sorted(told) == [
        "MASTER_PORT from -x is overruled: contract torch sets it; --master-port PORT chooses it,"
        " a --contract without torch leaves it alone",
        "PADDLE_TRAINERS_NUM from -x is overruled: contract paddle sets it; --hosts and --nproc-per-node decide it,"
        " a --contract without paddle leaves it alone",
        "RANK from -x is overruled: contract torch sets it; ranks count through --hosts in their order,"
        " a --contract without torch leaves it alone",
    ]


@pytest.mark.parametrize("name", sorted(NAMES - {"MNSPAWN_HOSTS_FILE"}))
def test_what_mnspawn_says_of_itself_is_its_own_whatever_the_contract(name: str) -> None:
    told = [f"{name} from -x is overruled: mnspawn sets it on every rank"]
    assert notes((name, "other"), contracts=("none",)) == told


def test_every_variable_that_a_contract_sets_is_told_and_never_its_value() -> None:
    plain = build(
        LaunchSpec("r1", Program("script", "t.py"), ("torch", "paddle", "jax", "tf", "ompi")),
        layout(),
        [HostContext("python3", "/run", "/", environ=dict.fromkeys(WATCHED, "x"))],
    )
    fixed = plain.pods[0].env | plain.pods[0].workers[0].env
    given = tuple((name, "s3cret") for name in fixed)
    told = notes(*given, contracts=("torch", "paddle", "jax", "tf", "ompi"))
    soft = {"PADDLE_DISTRI_BACKEND", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}  # unless set
    assert {line.split()[0] for line in told} == set(fixed) - soft
    assert not any("s3cret" in line for line in told)


def test_what_the_inventory_says_is_told_with_its_hosts_and_an_equal_value_is_not() -> None:
    assert notes(host_env=(("WORLD_SIZE", "8"), ("MASTER_ADDR", "10.0.0.1"))) == [
        "WORLD_SIZE from the inventory of h1 is overruled: contract torch sets it;"
        " --hosts and --nproc-per-node decide it, a --contract without torch leaves it alone"
    ]
    assert notes(("MASTER_ADDR", "other"), contracts=("paddle",)) == []
