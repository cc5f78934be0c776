"""What a host's own inventory values do to its share of the plan."""

import subprocess
import sys

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


def test_a_prelude_runs_before_the_program_and_hands_it_its_arguments_unchanged() -> None:
    prelude = "export SEEN='a b'\ntrue"
    show = "import os, sys; print(os.environ['SEEN'], sys.argv[1:])"
    ground = Ground(sys.executable, "/run", "/", prelude=prelude)
    argv = pod(ground, program=Program("command", sys.executable, ("-c", show, "$x", "", "c d"))).argv
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "a b ['$x', '', 'c d']\n"


def test_a_prelude_that_leaves_is_the_end_of_the_trainer() -> None:
    ground = Ground(sys.executable, "/run", "/", prelude="exit 9")
    argv = pod(ground, program=Program("command", "echo", ("never",))).argv
    done = subprocess.run(argv, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (9, b"")
