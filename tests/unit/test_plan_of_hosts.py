"""What a host's own inventory values do to its share of the plan."""

import pytest

from mnspawn.errors import UsageError
from mnspawn.layout import Layout, Site, assign
from mnspawn.plan import Forwarded, Ground, LaunchSpec, PodPlan, Program, build


def layout() -> Layout:
    return assign([Site("h1", "10.0.0.1", "eth0", (6070,))], 29500, 29501)


def pod(ground: Ground, *env: tuple[str, str], program: Program | None = None) -> PodPlan:
    program = program or Program("script", "train.py")
    return build(LaunchSpec("r1", program, env=env), layout(), [ground]).pods[0]


def test_a_forwarded_value_gives_way_to_the_hosts_own_and_a_given_one_does_not() -> None:
    own = Ground("python3", "/run", "/", host_env=(("NCCL_SOCKET_IFNAME", "ib0"), ("MODE", "host")))
    env = pod(own, ("NCCL_SOCKET_IFNAME", Forwarded("eth0")), ("MODE", "given"), ("ONLY", Forwarded("ours"))).env
    assert (env["NCCL_SOCKET_IFNAME"], env["MODE"], env["ONLY"]) == ("ib0", "given", "ours")


def test_a_prelude_stands_beside_the_program_and_shows_no_secrets() -> None:
    prelude = "source ~/venv/bin/activate\nexport HF_TOKEN='a b' MODE=fast; PASSWORD=x"
    launch = build(
        LaunchSpec("r1", Program("command", "echo")), layout(), [Ground("python3", "/run", "/", prelude=prelude)]
    )
    assert (launch.pods[0].prelude, launch.pods[0].argv) == (prelude, ("echo",))
    assert launch.describe()["pods"][0]["prelude"] == prelude
    assert launch.describe(reveal=False)["pods"][0]["prelude"] == (
        "source ~/venv/bin/activate\nexport HF_TOKEN=*** MODE=fast; PASSWORD=***"
    )
    assert repr(launch).count("HF_TOKEN") == 0


def test_a_prelude_that_no_shell_can_be_handed_is_refused() -> None:
    with pytest.raises(UsageError, match="h1: prelude: expected at most 131071 bytes"):
        pod(Ground("python3", "/run", "/", prelude="#" * 131_050))
