"""Runs a script, module or command on many hosts, from Python: `mnspawn.launch` and `mnspawn.alaunch`."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mnspawn.engine.run.prepare import foresee
from mnspawn.errors import ArgumentTypeError, OptionError
from mnspawn.report import RunReport
from mnspawn.settings import to_request

from . import arguments, echo
from .background import Background


def launch(argv: str | os.PathLike[str] | Iterable[str], *, hosts: Any = None, **given: Any) -> RunReport:
    """Run a program on every host and wait for its end.

        report = mnspawn.launch(["train.py", "--lr", "0.1"], hosts="gpu-01,gpu-02", nproc_per_node=4)
        if report.exit_status:
            print(report.reason)

    Args:
        argv: a script, or a list of a script and its arguments. With `module=True` the name of a module, with
            `no_python=True` any command.
        hosts: "a,b" or a list of names, as for --hosts. None runs on this machine, without SSH, unless one of
            `hostfile`, `inventory`, `sandbox` or `ips` names hosts.
        given: options of the command line by name: nproc_per_node, env, python, contract, output, timeout, ...

    Returns:
        The report of the run, whether it failed or not. Its `exit_status` is what the command line would end with.

    Raises:
        UsageError: an argument or option can't be used; no host was touched. A TypeError or ValueError, too.
        HostsUnusable, PlanRefused: nothing was started.
        KeyboardInterrupt: after all ranks were stopped.
    """
    return _start(argv, hosts, given).wait_stopping()


async def alaunch(argv: str | os.PathLike[str] | Iterable[str], *, hosts: Any = None, **given: Any) -> RunReport:
    """`launch` for asyncio: the caller's loop goes on meanwhile.

    Takes, returns and raises what `launch` does. A cancellation stops all ranks before it is raised.
    """
    return await _start(argv, hosts, given).ended()


def _start(argv: Any, hosts: Any, given: dict[str, Any]) -> Background:
    words = _words(argv)
    for name in given:
        if name not in arguments.OPTIONS:
            known = ", ".join(arguments.OPTIONS)
            raise OptionError(f"expected one of the options {known}, found {name!r}", place="launch")
    named = [hosts, *(given.get(name) for name in ("ips", "hostfile", "inventory", "sandbox"))]
    place = arguments.resolve({**given, "hosts": hosts}, is_here=all(value is None for value in named))
    program = to_request.program_of(place.settings, words)
    request = replace(to_request.request_of(place.settings, program, place.hosts), ends_with_us=place.is_here)
    for note in foresee(request):
        arguments.warn(note)
    shown = echo.listener_of(place.output)
    run = Background(request, [] if shown is None else [shown])
    run.start()
    return run


def _words(argv: Any) -> tuple[str, ...]:
    given = (argv,) if isinstance(argv, str | bytes | os.PathLike) or not isinstance(argv, Iterable) else tuple(argv)
    for word in given:
        if not isinstance(word, str | os.PathLike):
            raise ArgumentTypeError(f"expected a script, or a list of texts and paths, found {word!r}", place="argv")
    return tuple(os.fspath(word) for word in given)
