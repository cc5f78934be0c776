"""`torch.multiprocessing`'s spawn, across hosts: `fn(i, *args)` where i is the rank among all hosts' processes."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, overload

from mnspawn.spawning import options
from mnspawn.spawning.context import SpawnContext as ProcessContext
from mnspawn.spawning.errors import ArgumentTypeError, ProcessException, ProcessExitedException, ProcessRaisedException
from mnspawn.spawning.process import SpawnedProcess
from mnspawn.spawning.results import outcomes
from mnspawn.spawning.start import TORCH_GRACE, start

P = ParamSpec("P")

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
    fn: Callable[P, object],
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
    fn: Callable[P, object],
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
def start_processes(
    fn: Callable[P, object],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    hosts: Any = None,
    **given: Any,
) -> ProcessContext[None] | None: ...
def start_processes(
    fn: Callable[P, object],
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
        start_method: "spawn", or "forkserver": one interpreter per host imports what fn needs and becomes all ranks.
        hosts, given: as for `mnspawn.spawn`.

    Returns:
        None after a join, else the context. Without a join the others run on when one fails, until `join` is called.

    Raises:
        ProcessRaisedException, ProcessExitedException: from `join`; all others were stopped before.
    """
    _check_names("start_processes", given)
    asked = options.read(nprocs, hosts, {**given, "start_method": start_method}, "mnspawn.multiprocessing.spawn")
    call: Callable[..., Any] = fn  # what it returns is dropped
    context: ProcessContext[None] = start(
        call,
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
    fn: Callable[P, object],
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
    fn: Callable[P, object],
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
def spawn(
    fn: Callable[P, object],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    hosts: Any = None,
    **given: Any,
) -> ProcessContext[None] | None: ...
def spawn(
    fn: Callable[P, object],
    args: Iterable[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    hosts: Any = None,
    **given: Any,
) -> ProcessContext[None] | None:
    """`start_processes` with a fresh interpreter for every rank; see there."""
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
    """Raises ArgumentTypeError: an option that there is not, in the words that torch's own function has for it."""
    for name in given:
        if name not in options.KNOWN:
            raise ArgumentTypeError(
                f"{function}() got an unexpected keyword argument {name!r}",
                hint=options.KEYWORDS if name == "kwargs" else "docs/spawn.md lists the options",
            )
