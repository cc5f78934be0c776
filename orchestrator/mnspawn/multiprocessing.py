"""`torch.multiprocessing`'s spawn, across hosts: `fn(i, *args)` where i is the rank among all hosts' processes."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

from .spawning import options, outcomes
from .spawning.context import SpawnContext as ProcessContext
from .spawning.errors import ProcessException, ProcessExitedException, ProcessRaisedException
from .spawning.process import SpawnedProcess
from .spawning.start import TORCH_GRACE, start

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnedProcess",
    "spawn",
    "start_processes",
]


@overload
def start_processes(
    fn: Callable[..., Any],
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
def start_processes(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
    hosts: Any = None,
    **given: Any,
) -> ProcessContext: ...
@overload
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
) -> ProcessContext | None: ...
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
) -> ProcessContext | None:
    """Start `fn(i, *args)` in `nprocs` processes on every host.

    Args:
        start_method: "spawn", or "forkserver": one interpreter per host imports what fn needs and becomes all ranks.
        hosts, given: as for `mnspawn.spawn`.

    Returns:
        None after a join, else the context. Without a join the others run on when one fails, until `join` is called.

    Raises:
        ProcessRaisedException, ProcessExitedException: from `join`; all others were stopped before.
    """
    asked = options.read(nprocs, hosts, {**given, "start_method": start_method}, "mnspawn.multiprocessing.spawn")
    context = start(
        fn,
        args,
        asked,
        wording=outcomes.TORCH,
        passes_rank=True,
        wants_result=False,
        stops_on_failure=join,
        daemon=daemon,
        grace=TORCH_GRACE,
    )
    context.wait_for_caller(joins=join)
    return None if join else context


@overload
def spawn(
    fn: Callable[..., Any],
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
def spawn(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
    hosts: Any = None,
    **given: Any,
) -> ProcessContext: ...
@overload
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
) -> ProcessContext | None: ...
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
) -> ProcessContext | None:
    """`start_processes` with a fresh interpreter for every rank; see there."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}). To use a different start_method use: "
            "mnspawn.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn", hosts=hosts, **given)
