"""Starts a function on every rank: `mnspawn.spawn`, `mnspawn.aspawn`, and what all dialects of spawn do."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mnspawn.api import arguments, echo
from mnspawn.api.background import Background
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.engine.run.prepare import foresee
from mnspawn.errors import ArgumentTypeError
from mnspawn.plan.launch_plan import Program
from mnspawn.settings import to_request

from . import devices, options
from .context import SpawnContext
from .errors import StartError
from .ranks import Ranks
from .results import outcomes
from .sending import arrival, function, pickling

R = TypeVar("R")


def spawn(
    func: Callable[..., R],
    args: Iterable[Any] = (),
    nprocs: int = -1,
    join: bool = True,
    daemon: bool = False,
    *,
    hosts: Any = None,
    pass_rank: bool = False,
    **given: Any,
) -> SpawnContext[R]:
    """Call `func(*args)` in processes of their own on every host: Paddle's `spawn`, across hosts.

        losses = mnspawn.spawn(train, (100,), nprocs=4, hosts="gpu-01,gpu-02").results()

    Args:
        func: any function, also a lambda, a closure, or one of a notebook cell.
        args: its arguments, sent once to each host.
        nprocs: processes per host. -1 takes the host's slots, else one per accelerator, else one per CPU.
        join: wait until all ranks have ended, and raise their errors here.
        daemon: when this interpreter ends, kill ranks that still run instead of waiting for them.
        hosts: "a,b" or a list of names, as for --hosts; None for this machine, without SSH.
        pass_rank: call `func(rank, *args)`.
        given: options of Paddle (start_method, ips, gpus, xpus, backend, print_config) and of the command line (python,
            workdir, env, output, grace, timeout, ssh_config, ...); docs/spawn.md lists them.

    Returns:
        The context; its `results()` are what the ranks returned, by rank.

    Raises:
        ValueError, TypeError: an option or argument can't be used; no host was touched.
        HostsUnusable, PlanRefused: nothing was started.
        ProcessRaisedException, ProcessExitedException, HostLost: a rank failed; all others were stopped before.
    """
    context = _spawn("spawn", func, args, nprocs, daemon, hosts, pass_rank, given)
    context.wait_for_caller(joins=join)
    return context


async def aspawn(
    func: Callable[..., R],
    args: Iterable[Any] = (),
    nprocs: int = -1,
    join: bool = True,
    daemon: bool = False,
    *,
    hosts: Any = None,
    pass_rank: bool = False,
    **given: Any,
) -> SpawnContext[R]:
    """`spawn` for asyncio: the caller's loop goes on meanwhile.

    Takes, returns and raises what `spawn` does. A cancellation stops all ranks before it is raised.
    """
    context = _spawn("aspawn", func, args, nprocs, daemon, hosts, pass_rank, given)
    await (context.ajoin() if join else context.await_started())
    return context


def _spawn(
    caller: str,
    func: Callable[..., R],
    args: Iterable[Any],
    nprocs: int,
    daemon: bool,
    hosts: Any,
    pass_rank: bool,
    given: Mapping[str, Any],
) -> SpawnContext[R]:
    asked = options.read(nprocs, hosts, given, f"mnspawn.{caller}")
    _warn_of_cpus(asked)
    if asked.print_config and caller == "spawn":
        print("\n".join(options.config_lines(asked)))  # noqa: T201 - what the option asks for
    return start(func, args, asked, outcomes.PADDLE, passes_rank=pass_rank, stops_on_failure=True, ends_with_us=daemon)


def _warn_of_cpus(asked: options.SpawnOptions) -> None:
    """Warn as Paddle does when gloo was asked for, or when Paddle was imported here and knows no accelerator."""
    paddle = sys.modules.get("paddle")
    is_found = asked.place.is_here and asked.backend == "auto" and hasattr(paddle, "device")
    if asked.backend == "gloo" or (is_found and "cpu" in str(paddle.device.get_device())):  # type: ignore[union-attr]
        why = ", as asked for" if asked.backend == "gloo" else ": Paddle has no accelerator here"
        arguments.warn(f"the processes train in CPUONLY mode (backend gloo){why}")


def start(
    func: Callable[..., R],
    args: Iterable[Any],
    asked: options.SpawnOptions,
    dialect: outcomes.Dialect,
    *,
    passes_rank: bool,
    stops_on_failure: bool,
    ends_with_us: bool,
) -> SpawnContext[R]:
    """Start the run and return its context at once, without waiting for the ranks.

    Raises:
        StartError, ArgumentTypeError, NotPicklable: before any host is touched.
    """
    _check_may_start()
    if not callable(func):
        raise ArgumentTypeError(f"expected something to call, found {func!r}", place="func")
    if not isinstance(args, Iterable) or isinstance(args, str | bytes):
        raise ArgumentTypeError(f"expected a tuple of arguments, found {args!r}", place="args")
    call = func, tuple(args)
    place = asked.place
    request = replace(_request_of(func, asked, dialect), stops_on_failure=stops_on_failure)
    for note in foresee(request):
        arguments.warn(note)
    ranks = Ranks(stops_on_failure=stops_on_failure)
    shown = echo.listener_of(place.output)
    listeners: list[Listener] = [ranks] if shown is None else [shown, ranks]
    parcel = pickling.Parcel(is_here=place.is_here, shares_tensors=dialect.shares_tensors)
    agent = None
    if asked.is_fork:
        from .forking.agent import start_agent

        agent = start_agent(
            *call, place.settings.workdir, passes_rank=passes_rank, wants_result=dialect.returns_results
        )
    else:
        files = function.pack(*call, parcel, passes_rank=passes_rank, wants_result=dialect.returns_results)
        request = replace(request, files=files)

    def end() -> None:
        try:
            parcel.close()
        finally:
            ranks.end()

    ranks.run = Background(request, listeners, ends_with_us=ends_with_us, on_end=end, agent=agent)
    context: SpawnContext[R] = SpawnContext(ranks, dialect)
    if parcel.shared is not None:
        parcel.shared.serve(lambda: len(ranks.processes), call)
    ranks.run.start(keep=context)
    return context


def _check_may_start() -> None:
    """Raise StartError in a child process that is importing its main module: so would each of its ranks in turn."""
    process = sys.modules.get("multiprocessing.process")
    is_child = process is not None and getattr(process.current_process(), "_inheriting", False)
    if is_child or getattr(sys.modules.get(arrival.NAME), "is_loading", False):
        raise StartError(
            "ranks can't be started while a rank or a child process imports the module that asks for them",
            hint='put the call into a function, or below `if __name__ == "__main__":`',
        )


def _request_of(func: Callable[..., Any], asked: options.SpawnOptions, dialect: outcomes.Dialect) -> RunRequest:
    place, nprocs = asked.place, None if asked.nprocs == -1 else asked.nprocs
    name = getattr(func, "__qualname__", type(func).__qualname__)
    request = to_request.request_of(place.settings, Program("function", name), place.hosts)
    share: devices.Rule | None = None
    if dialect.chooses_devices:
        share = devices.rule(asked.nprocs, asked.backend, asked.selected)
    elif nprocs is not None:
        share = devices.any_devices(nprocs)
    python = request.python
    if place.is_here and request.prelude is None:  # a prelude may lead to another interpreter than ours
        python = python or sys.executable or None
    if dialect.grace is not None and place.settings.origin("grace").layer == "default":
        request = replace(request, grace=dialect.grace)
    return replace(
        request,
        nproc=nprocs,
        python=None if asked.is_fork else python,
        prelude=None if asked.is_fork else request.prelude,
        has_results=True,
        python_version=None if asked.is_fork else sys.version_info[:2],
        is_forked=asked.start_method == "forkserver",
        keeps_folder=False,
        share=share,
        ends_with_us=place.is_here,
    )
