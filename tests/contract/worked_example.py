"""The worked example that contract tests share: hosts 10.0.0.1 and 10.0.0.2 with two workers each."""

from collections.abc import Sequence

from mnspawn.plan.contract import DEFAULT
from mnspawn.plan.launch_plan import HostContext, LaunchSpec, Program, build
from mnspawn.plan.layout import Layout, Site, assign

SCRIPT = Program("script", "train.py")


def cluster(kind: str = "cpu", addresses: Sequence[str] = ("10.0.0.1", "10.0.0.2")) -> Layout:
    """Two workers a host; with one device each unless on CPUs."""
    devices = () if kind == "cpu" else (0, 1)
    sites = [
        Site(f"h{number}", address, f"eth{number}", (6070, 6071), devices, kind)
        for number, address in enumerate(addresses, 1)
    ]
    return assign(sites, 29500, 29501)


def environments(layout: Layout, contracts: Sequence[str] = DEFAULT) -> list[dict[str, str]]:
    """What each rank is given, in rank order."""
    contexts = [HostContext("python3", f"/runs/r1/{pod.node_rank}", "/home/u") for pod in layout.pods]
    plan = build(LaunchSpec("r1", SCRIPT, contracts=tuple(contracts)), layout, contexts)
    return [pod.env | worker.env for pod in plan.pods for worker in pod.workers]


def table(envs: Sequence[dict[str, str]], *names: str) -> list[tuple[str | None, ...]]:
    """One row a rank."""
    return [tuple(env.get(name) for name in names) for env in envs]
