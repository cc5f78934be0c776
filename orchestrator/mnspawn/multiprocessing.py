"""`torch.multiprocessing`'s spawn, across hosts: `fn(i, *args)` where i is the rank among all hosts' processes."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, overload

from mnspawn.errors import ArgumentTypeError
from mnspawn.spawning import options
from mnspawn.spawning.context import SpawnContext as ProcessContext
from mnspawn.spawning.errors import ProcessException, ProcessExitedException, ProcessRaisedException
from mnspawn.spawning.ranks import SpawnedProcess
from mnspawn.spawning.results import outcomes
from mnspawn.spawning.start import start

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnedProcess",
    "spawn",
    "start_processes",
]


class _Spawns(Protocol):
    """The type of both functions: what they return depends on `join`."""

    @overload
    def __call__(
        self,
        fn: Callable[..., object],
        args: Iterable[Any] = (),
        nprocs: int = 1,
        join: Literal[True] = True,
        daemon: bool = False,
        start_method: str = "spawn",
        *,
        hosts: Any = None,
        **given: Any,
    ) -> None: ...
    @overload
    def __call__(
        self,
        fn: Callable[..., object],
        args: Iterable[Any] = (),
        nprocs: int = 1,
        *,
        join: Literal[False],
        daemon: bool = False,
        start_method: str = "spawn",
        hosts: Any = None,
        **given: Any,
    ) -> ProcessContext[None]: ...
    @overload
    def __call__(
        self,
        fn: Callable[..., object],
        args: Iterable[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
        *,
        hosts: Any = None,
        **given: Any,
    ) -> ProcessContext[None] | None: ...


def _typed(function: Any) -> _Spawns:
    typed: _Spawns = function
    return typed


@_typed
def start_processes(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    hosts: Any = None,
    **given: Any,
) -> ProcessContext[None] | None:
    """Start `fn(i, *args)` in `nprocs` processes on every host.

    Args:
        fn, args: the function, whose result is dropped, and its arguments after the rank.
        nprocs: processes on each host.
        join: wait until all ranks have ended, and raise their errors here.
        daemon: when this interpreter ends, kill ranks that still run instead of waiting for them.
        start_method: "spawn", or "forkserver", where one interpreter on each host imports what fn needs and becomes all
            ranks, or "fork", on this machine only.
        hosts, given: as for `mnspawn.spawn`.

    Returns:
        None after a join, else the context. Without a join the others go on when one fails, until `join` is called.

    Raises:
        TypeError, ValueError: an option or argument can't be used; no host was touched.
        HostsUnusable, PlanRefused: nothing was started.
        ProcessRaisedException, ProcessExitedException, HostLost: a rank failed; all others were stopped before.
    """
    _check_names("start_processes", given)
    asked = options.read(nprocs, hosts, {**given, "start_method": start_method}, "mnspawn.multiprocessing.spawn")
    context: ProcessContext[None] = start(
        fn, args, asked, outcomes.TORCH, passes_rank=True, stops_on_failure=join, ends_with_us=daemon
    )
    context.wait_for_caller(joins=join)
    return None if join else context


@_typed
def spawn(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    hosts: Any = None,
    **given: Any,
) -> ProcessContext[None] | None:
    """`start_processes` with a fresh interpreter for every rank; takes, returns and raises the same."""
    _check_names("spawn", given)
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}). To use a different start_method use: "
            "mnspawn.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn", hosts=hosts, **given)


def _check_names(function: str, given: dict[str, Any]) -> None:
    """Raise ArgumentTypeError for an unknown option, in the words that torch's own function has for it."""
    for name in given:
        if name not in options.KNOWN:
            raise ArgumentTypeError(
                f"{function}() got an unexpected keyword argument {name!r}",
                hint=options.KEYWORDS if name == "kwargs" else "docs/spawn.md lists the options",
            )
