"""Starts a function on every rank: from the arguments of a spawn to its context."""

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from mnspawn.api import echo
from mnspawn.api.background import Background
from mnspawn.core.survey import HostView, Share
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.engine.run.control import Control
from mnspawn.engine.run.prepare import foresee
from mnspawn.plan.launch_plan import Program
from mnspawn.settings import to_request

from . import devices, options
from .context import SpawnContext
from .errors import ArgumentTypeError, StartError
from .process import SpawnedProcess
from .results import outcomes
from .sending import arrival, function, pickling
from .watcher import Watcher

P = ParamSpec("P")
R = TypeVar("R")

TORCH_GRACE = 30.0  # seconds between SIGTERM and SIGKILL in torch


def check_function(func: object, args: object) -> tuple[Any, ...]:
    """The arguments as a tuple.

    Raises:
        ArgumentTypeError: func can't be called, or args are no arguments.
    """
    if not callable(func):
        raise ArgumentTypeError(f"expected something to call, found {func!r}", place="func")
    if not isinstance(args, Iterable) or isinstance(args, str | bytes):
        raise ArgumentTypeError(f"expected a tuple of arguments, found {args!r}", place="args")
    return tuple(args)


def start(
    func: Callable[..., R],
    args: Iterable[Any],
    asked: options.Asked,
    *,
    wording: outcomes.Wording,
    passes_rank: bool,
    wants_result: bool,
    stops_on_failure: bool,
    daemon: bool,
    grace: float | None = None,
) -> SpawnContext[R]:
    """Start the run; gives its context at once: see `SpawnContext.wait_for_caller`.

    Raises:
        NotPicklable: before any host is touched.
    """
    check_may_start()
    arguments = check_function(func, args)
    is_copied = asked.start_method == "fork"
    request = request_of(func, asked, wording is outcomes.PADDLE, stops_on_failure)
    if grace is not None and asked.settings.origin("grace").layer == "default":
        request = replace(request, grace=grace)
    for note in foresee(request):
        warnings.warn(note, UserWarning, stacklevel=options.level_of_caller())
    control = Control()

    def stop_all(process: SpawnedProcess) -> None:
        if stops_on_failure:
            control.stop(request.grace, f"rank {process.rank} on {process.host} failed")

    luggage = pickling.Luggage(is_here=asked.is_here, shares_tensors=wording is outcomes.TORCH)
    watcher = Watcher(stop_all)
    shown = echo.listener_of(asked.output)
    listeners: list[Listener] = [watcher] if shown is None else [shown, watcher]
    agent = None
    calls = {"passes_rank": passes_rank, "wants_result": wants_result}
    if is_copied:
        from .forking.agent import start_agent

        agent = start_agent(func, arguments, asked.settings.workdir, **calls)
    else:
        files = function.pack(func, arguments, **calls, is_here=asked.is_here, luggage=luggage)
        request = replace(request, files=files)

    def end() -> None:
        watcher.end()
        luggage.close()

    run = Background(request, listeners, control=control, ends_with_us=daemon, on_end=end, agent=agent)
    context: SpawnContext[R] = SpawnContext(run, watcher, wording, stops_on_failure=stops_on_failure)
    watcher.owner = weakref.ref(context)
    if luggage.shared is not None:
        luggage.shared.serve(lambda: len(watcher.processes), arguments)
    run.start(keep=context)
    return context


def check_may_start() -> None:
    """Raises StartError: this is a child process that is importing its module, as each of its ranks would be."""
    process = sys.modules.get("multiprocessing.process")
    is_child = process is not None and getattr(process.current_process(), "_inheriting", False)
    if is_child or getattr(sys.modules.get(arrival.NAME), "is_loading", False):
        raise StartError(
            "ranks can't be started while a rank or a child process imports the module that asks for them",
            hint='put the call into a function, or below `if __name__ == "__main__":`',
        )


def request_of(
    func: Callable[..., Any],
    asked: options.Asked,
    has_device_rules: bool,
    stops_on_failure: bool,
) -> RunRequest:
    """The run of a function as the engine takes it."""
    name = getattr(func, "__qualname__", type(func).__qualname__)
    request = to_request.request_of(asked.settings, Program("function", name), asked.hosts)
    is_copied = asked.start_method == "fork"
    share: Callable[[Sequence[HostView]], Sequence[Share]] | None = None
    if has_device_rules:
        share = devices.rule(asked.nprocs, asked.backend, asked.selected)
    elif asked.nprocs != -1:
        share = partial(devices.any_devices, asked.nprocs)
    return replace(
        request,
        nproc=None if asked.nprocs == -1 else asked.nprocs,
        python=None if is_copied else request.python or _own_python(asked, request),
        prelude=None if is_copied else request.prelude,
        has_results=True,
        python_version=None if is_copied else sys.version_info[:2],
        is_forked=asked.start_method == "forkserver",
        stops_on_failure=stops_on_failure,
        keeps_folder=False,
        share=share,
        ends_with_us=asked.is_here,
    )


def _own_python(asked: options.Asked, request: RunRequest) -> str | None:
    """On this machine ranks run the caller's interpreter, unless a prelude leads to another one."""
    return sys.executable or None if asked.is_here and request.prelude is None else None


def spawn(
    func: Callable[P, R],
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

    Args:
        func: any function: lambdas, closures and notebook cells travel too.
        args: sent once per host.
        nprocs: processes per host; -1 for the host's slots, else one per accelerator, else one per CPU.
        join: wait for the end of all; their errors are raised here.
        daemon: at the end of this interpreter kill what still runs instead of waiting for it.
        hosts: "a,b" or a list of texts as --hosts takes them; None for this machine, without SSH.
        pass_rank: call func(rank, *args).
        given: Paddle's options (start_method, ips, gpus, xpus, backend, print_config) and ours (python, workdir, env,
            output, grace, timeout, ssh_config, ...); see docs/spawn.md.

    Returns:
        The context, also after a join: `results()` has what the ranks returned.

    Raises:
        ValueError, TypeError: an option or argument that can't be used; no host was touched.
        HostsUnusable, PlanRefused: nothing was started.
        ProcessRaisedException, ProcessExitedException, HostLost: a rank failed; all others were stopped before.
    """
    asked = options.read(nprocs, hosts, given)
    _warn_of_cpus(asked)
    if asked.print_config:
        print("\n".join(options.print_all(asked)))  # noqa: T201 - what the option asks for
    context = start(
        func,
        args,
        asked,
        wording=outcomes.PADDLE,
        passes_rank=pass_rank,
        wants_result=True,
        stops_on_failure=True,
        daemon=daemon,
    )
    context.wait_for_caller(joins=join)
    return context


def _warn_of_cpus(asked: options.Asked) -> None:
    """As Paddle does: CPUs were asked for, or here it knows nothing else. Who never imported it is spared."""
    paddle = sys.modules.get("paddle")
    is_found = asked.is_here and asked.backend == "auto" and hasattr(paddle, "device")
    if asked.backend == "gloo" or (is_found and "cpu" in str(paddle.device.get_device())):  # type: ignore[union-attr]
        warnings.warn(
            "the processes train in CPUONLY mode (backend gloo)"
            + (", as asked for" if asked.backend == "gloo" else ": Paddle has no accelerator here"),
            UserWarning,
            stacklevel=3,
        )


async def aspawn(
    func: Callable[P, R],
    args: Iterable[Any] = (),
    nprocs: int = -1,
    join: bool = True,
    daemon: bool = False,
    *,
    hosts: Any = None,
    pass_rank: bool = False,
    **given: Any,
) -> SpawnContext[R]:
    """`spawn` for asyncio: the caller's loop runs on. A cancellation stops all ranks, then goes on its way."""
    asked = options.read(nprocs, hosts, given, "mnspawn.aspawn")
    _warn_of_cpus(asked)
    context = start(
        func,
        args,
        asked,
        wording=outcomes.PADDLE,
        passes_rank=pass_rank,
        wants_result=True,
        stops_on_failure=True,
        daemon=daemon,
    )
    await (context.ajoin() if join else context.await_started())
    return context
