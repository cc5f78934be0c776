"""Makes the LaunchPlan of a run from its program, layout and contracts: what every host starts. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mnspawn.errors import UsageError
from mnspawn_inventory.secret_names import MASK as MASK
from mnspawn_inventory.secret_names import is_secret

from . import contract
from .contract import overruled
from .layout import Layout, Pod, join_endpoint

# One string of argv or "NAME=value" with its final NUL is at most 128 KiB (MAX_ARG_STRLEN, execve(2)).
LONGEST_STRING = 131_071
# All of them together are at most 6 MiB, with their ends and a pointer each, whatever the host's limits (execve(2)).
LARGEST_TOTAL = 6 << 20

NAMED = 3  # of the largest variables, when all are too many

# The agent hands a prelude to its shell in a variable with so long a name.
PRELUDE_NAME = 32

# Where the agent puts a run's file of this name, inside the run directory.
FUNCTION_RUNNER = "code/worker_main.py"


_ASSIGNMENT = re.compile(r"""\b([A-Za-z_]\w*)=('[^']*'|"[^"]*"|[^\s;&|]+)""")  # of a shell, as far as secrets go


class Forwarded(str):
    """A variable's value taken from the controller's own environment: where a host has its own, that one wins."""

    __slots__ = ()


class FromFile(str):
    """A variable's value that was read from a file of variables: such files keep secrets, so it is not shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What a worker runs: a script file, a Python module, any command, or a function that is called `target`.

    `args` arrive byte for byte as given. A function is run by FUNCTION_RUNNER, one of the run's files.
    """

    kind: Literal["script", "module", "command", "function"]
    target: str
    args: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What holds for the whole run.

    Attributes:
        env: given variables (-x), values resolved; they win over the host's and the inventory's, but for Forwarded
            values, which lose against the inventory's.
        keep_proxy: leave http_proxy and https_proxy of the hosts' environments in place.
        attempt, max_restarts: restarts of the whole run so far, and how many there may be.
    """

    run: str
    program: Program
    contracts: tuple[str, ...] = contract.DEFAULT
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    keep_proxy: bool = False
    attempt: int = 0
    max_restarts: int = 0


@dataclass(frozen=True, slots=True)
class HostContext:
    """The facts of one host from HELLO and PREPARED that the plan needs.

    Attributes:
        script: where the program's script is on this host (None: at the path that was given).
        environ: those of contract.WATCHED that the host's own environment has set.
        host_env: the inventory's variables of this host.
        secrets: names of those that the inventory only refers to.
        prelude: shell lines that run before each worker of this host, in bash where there is one.
    """

    python: str
    run_dir: str
    workdir: str
    script: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    host_env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    prelude: str | None = None
    secrets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One rank: the variables that only it gets."""

    rank: int
    local_rank: int
    env: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One host's share. A worker's environment is the host's less `unset`, then `env`, then its own `env`.

    Attributes:
        unset: names, or PREFIX*.
        argv, env: the same for all workers of the pod.
        prelude: shell lines that the host runs before each worker, in its environment; they may change that.
        files: (name, content) to be written into the run directory before the start.
        secrets: names of variables that are secret, whatever they are called.
    """

    node_rank: int
    host: str
    workdir: str
    unset: tuple[str, ...]
    argv: tuple[str, ...] = field(repr=False)
    env: dict[str, str] = field(repr=False)
    files: tuple[tuple[str, str], ...] = field(repr=False)
    workers: tuple[WorkerPlan, ...]
    secrets: frozenset[str] = frozenset()
    prelude: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that will be started, before anything is.

    Attributes:
        notes: what a user should know of variables that were given and are not what ranks will find.
    """

    run: str
    layout: Layout
    pods: tuple[PodPlan, ...]
    notes: tuple[str, ...] = ()

    def describe(self, reveal: bool = True) -> dict[str, Any]:
        """Return JSON-able values. `env` is all that mnspawn gives a rank on top of the host's own environment.

        Args:
                reveal: False replaces the values of variables that are secrets or look like some.
        """
        return {
            "run": self.run,
            "world_size": self.layout.world_size,
            "rendezvous": join_endpoint(*self.layout.rendezvous),
            "pods": [
                {
                    "node_rank": pod.node_rank,
                    "host": pod.host,
                    "address": pod.address,
                    "interface": pod.interface,
                    "workdir": pod_plan.workdir,
                    "prelude": _shown_lines(pod_plan.prelude, reveal),
                    "unset": list(pod_plan.unset),
                    "files": [name for name, _ in pod_plan.files],
                    "trainers": [
                        {
                            "rank": worker.rank,
                            "local_rank": worker.local_rank,
                            "endpoint": worker.endpoint,
                            "devices": list(worker.devices),
                            "argv": list(pod_plan.argv),
                            "env": _shown(pod_plan.env | worker_plan.env, reveal, pod_plan.secrets),
                        }
                        for worker, worker_plan in zip(pod.workers, pod_plan.workers, strict=True)
                    ],
                }
                for pod, pod_plan in zip(self.layout.pods, self.pods, strict=True)
            ],
        }


def build(spec: LaunchSpec, layout: Layout, contexts: Sequence[HostContext]) -> LaunchPlan:
    """Complete the plan of a run: argv and environment of every rank.

    Args:
        contexts: one per pod, in the order of `layout.pods`.

    Raises:
        UsageError: an unknown contract; a variable or an argument that no process can be given.
    """
    contracts = contract.choose(spec.contracts)
    given = _checked(spec.env, "env")
    for position, argument in enumerate((spec.program.target, *spec.program.args)):
        _check_string(argument, f"argument {position} of the program" if position else "program")
    _check_total((spec.program.target, *spec.program.args), given)
    facts = contract.facts_of(
        spec.run,
        layout,
        tuple(context.run_dir for context in contexts),
        tuple(_given_on(pod, context, given) for pod, context in zip(layout.pods, contexts, strict=True)),
        (spec.program.target, *spec.program.args),
        attempt=spec.attempt,
        max_restarts=spec.max_restarts,
    )
    unset = contract.SCRUBBED if spec.keep_proxy else (*contract.SCRUBBED, *contract.PROXIES)
    found: dict[overruled.Overruled, None] = {}
    pods = tuple(
        _plan_pod(spec, facts, contracts, pod, context, unset, found)
        for pod, context in zip(layout.pods, contexts, strict=True)
    )
    return LaunchPlan(spec.run, layout, pods, overruled.notes(found))


def _given_on(pod: Pod, context: HostContext, given: dict[str, str]) -> dict[str, str]:
    """Return the user's variables for one host, from weak to strong."""
    env: dict[str, str] = {name: value for name, value in given.items() if isinstance(value, Forwarded)}
    env |= _checked(context.host_env, f"{pod.host}: inventory variable")
    env |= {name: value for name, value in given.items() if not isinstance(value, Forwarded)}
    return env


def _plan_pod(
    spec: LaunchSpec,
    facts: contract.RunFacts,
    contracts: tuple[contract.Contract, ...],
    pod: Pod,
    context: HostContext,
    unset: tuple[str, ...],
    found: dict[overruled.Overruled, None],
) -> PodPlan:
    shares = [chosen.shared(facts, pod) for chosen in contracts]
    defaults: dict[str, str] = {}
    if spec.program.kind == "command":
        defaults["PYTHONUNBUFFERED"] = "1"  # what -u does for scripts: output comes when it is written
    for share in shares:
        defaults |= share.defaults
    env = {name: value for name, value in defaults.items() if name not in context.environ}
    given, on_host = dict(spec.env), facts.given[pod.node_rank]
    env |= on_host
    for chosen, share in zip(contracts, shares, strict=True):
        env |= _checked(share.env.items(), f"{pod.host}: contract")
        found |= dict.fromkeys(overruled.find(share.env, given, on_host, pod.host, chosen.name))
    workers = []
    for worker in pod.workers:
        own: dict[str, str] = {}
        for chosen in contracts:
            variables = _checked(chosen.own(facts, pod, worker).items(), f"{pod.host}: contract {chosen.name}")
            found |= dict.fromkeys(overruled.find(variables, given, on_host, pod.host, chosen.name))
            own |= variables
        workers.append(WorkerPlan(worker.rank, worker.local_rank, own))
    files = tuple(file for share in shares for file in share.files)
    argv = _argv(spec.program, context)
    secrets = context.secrets | {name for name, value in given.items() if isinstance(value, FromFile)}
    prelude = context.prelude
    if prelude is not None:
        _check_string(f"{'-' * PRELUDE_NAME}{prelude}", f"{pod.host}: prelude")
    return PodPlan(pod.node_rank, pod.host, context.workdir, unset, argv, env, files, tuple(workers), secrets, prelude)


def _argv(program: Program, context: HostContext) -> tuple[str, ...]:
    if program.kind == "script":
        return (context.python, "-u", context.script or program.target, *program.args)
    if program.kind == "module":
        return (context.python, "-u", "-m", program.target, *program.args)
    if program.kind == "function":
        return (context.python, "-u", f"{context.run_dir.rstrip('/')}/{FUNCTION_RUNNER}", *program.args)
    return (program.target, *program.args)


def _checked(variables: Iterable[tuple[str, str]], origin: str) -> dict[str, str]:
    checked = dict(variables)
    for name, value in checked.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"expected a variable's name, found {name!r}", place=origin)
        _check_string(f"{name}={value}", f"{origin} {name}")
    return checked


def _check_string(text: str, place: str) -> None:
    if "\0" in text:
        raise UsageError("expected text without NUL characters: no process can be given one", place=place)
    try:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise UsageError(
            "expected text or escaped bytes, found a surrogate that stands for no byte", place=place
        ) from None
    if size > LONGEST_STRING:
        raise UsageError(f"expected at most {LONGEST_STRING} bytes (Linux's limit), found {size}", place=place)


def size_of(strings: Iterable[str]) -> int:
    """Return the bytes that arguments take, with what the kernel adds to each: an end and a pointer."""
    return sum(len(text.encode("utf-8", "surrogateescape")) + 9 for text in strings)


def _check_total(argv: Sequence[str], variables: Mapping[str, str]) -> None:
    arguments = size_of(argv)
    sizes = {name: size_of((f"{name}={value}",)) for name, value in variables.items()}
    total = arguments + sum(sizes.values())
    if total > LARGEST_TOTAL:
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:NAMED]
        parts = ", ".join([f"arguments {arguments}", *(f"{name} {sizes[name]}" for name in largest)])
        raise UsageError(
            f"expected at most {LARGEST_TOTAL} bytes (Linux's limit), found {total}: {parts}",
            place="the program's arguments and variables",
            hint="put large values into files",
        )


def _shown_lines(prelude: str | None, reveal: bool) -> str | None:
    if prelude is None or reveal:
        return prelude
    return _ASSIGNMENT.sub(lambda found: f"{found[1]}={MASK}" if is_secret(found[1], found[2]) else found[0], prelude)


def _shown(env: dict[str, str], reveal: bool, secrets: frozenset[str]) -> dict[str, str]:
    if reveal:
        return env
    return {name: MASK if name in secrets or is_secret(name, value) else value for name, value in env.items()}
