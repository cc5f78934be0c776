"""A script, module or command on many hosts, from Python: `mnspawn.launch` and `mnspawn.alaunch`."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mnspawn.api import echo
from mnspawn.api.background import Background
from mnspawn.engine.request import RunRequest
from mnspawn.engine.run.prepare import foresee
from mnspawn.errors import UsageError
from mnspawn.report import RunReport
from mnspawn.settings import table as settings
from mnspawn.settings import to_request
from mnspawn.spawning.errors import ArgumentTypeError
from mnspawn.spawning.options import level_of_caller

if TYPE_CHECKING:
    from mnspawn_inventory import Host

OPTIONS = (
    *(
        "ips",
        "hostfile",
        "inventory",
        "sandbox",
        "include",
        "exclude",
        "limit",
        "nproc_per_node",
        "module",
        "no_python",
    ),
    *(
        "python",
        "workdir",
        "prelude",
        "start_port",
        "master_port",
        "network",
        "contract",
        "env",
        "keep_proxy",
        "output",
        "log_cap",
    ),
    *("name", "grace", "timeout", "connect_timeout", "orphan_grace", "ssh_config", "transport", "host_key_check"),
)


def launch(argv: str | os.PathLike[str] | Iterable[str], *, hosts: Any = None, **given: Any) -> RunReport:
    """Run a program on every host and wait for its end, whatever it is.

    Args:
        argv: a script, or a list of a script and its arguments; with `module=True` a module's name, with
            `no_python=True` any command.
        hosts: "a,b" or a list of texts, as --hosts takes them; None for this machine, without SSH, unless another
            option (hostfile, inventory, sandbox, ips) says where.
        given: the command line's options by name: nproc_per_node, env, python, contract, output, timeout, ...

    Returns:
        The report; its `exit_status` is what the command line would have ended with.

    Raises:
        UsageError: what was given can't be used; for words of a wrong type a TypeError, too.
        HostsUnusable, PlanRefused: nothing was started.
        KeyboardInterrupt: after all ranks were stopped.
    """
    run = _background(argv, hosts, given)
    run.start()
    return run.wait_stopping()


async def alaunch(argv: str | os.PathLike[str] | Iterable[str], *, hosts: Any = None, **given: Any) -> RunReport:
    """`launch` for asyncio: the caller's loop runs on. A cancellation stops all ranks, then goes on its way."""
    run = _background(argv, hosts, given)
    run.start()
    return await run.ended()


def _background(argv: Any, hosts: Any, given: dict[str, Any]) -> Background:
    request, output = _request(argv, hosts, given)
    for note in foresee(request):
        warnings.warn(note, UserWarning, stacklevel=level_of_caller())
    shown = echo.listener_of(output)
    return Background(request, [] if shown is None else [shown])


def _request(argv: Any, hosts: Any, given: dict[str, Any]) -> tuple[RunRequest, str]:
    words = _words(argv)
    for name in given:
        if name not in OPTIONS:
            raise UsageError(f"expected one of the options {', '.join(OPTIONS)}, found {name!r}", place="launch")
    places = {"hosts": hosts, **{name: given.get(name) for name in ("ips", "hostfile", "inventory", "sandbox")}}
    is_here = all(value is None for value in places.values())
    if is_here and any(given.get(name) is not None for name in to_request.NARROWING):
        raise UsageError("expected hosts to choose from, found none", place="hosts")
    environ = {name: value for name, value in os.environ.items() if name not in _PLACES}
    resolved = settings.resolve({**given, "hosts": hosts}, environ)
    program = to_request.program_of(resolved, words)
    found: tuple[Host, ...] = ()
    if is_here:
        found = (to_request.this_machine(),)
    elif not resolved.sandbox:
        found = to_request.hosts_of(resolved, os.environ)
    is_plain = is_here and resolved.origin("output").layer == "default"
    request = replace(to_request.request_of(resolved, program, found), ends_with_us=is_here)
    return request, "plain" if is_plain else resolved.output


def _words(argv: Any) -> tuple[str, ...]:
    given = (argv,) if isinstance(argv, str | bytes | os.PathLike) or not isinstance(argv, Iterable) else tuple(argv)
    for word in given:
        if not isinstance(word, str | os.PathLike):
            raise ArgumentTypeError(f"expected a script, or a list of texts and paths, found {word!r}", place="argv")
    return tuple(os.fspath(word) for word in given)


_PLACES = ("MNSPAWN_HOSTS", "MNSPAWN_IPS", "MNSPAWN_HOSTFILE", "MNSPAWN_SANDBOX")  # a call says itself where it goes
