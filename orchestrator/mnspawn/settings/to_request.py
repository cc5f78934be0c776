"""Turns settings into the program, hosts and request of a run, for the command line and Python alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from mnspawn.engine.request import RunRequest
from mnspawn.errors import UsageError
from mnspawn.plan.launch_plan import Program
from mnspawn.transport.base import SshOptions

from .table import OPTIONS, Settings

if TYPE_CHECKING:
    from mnspawn_inventory import Host

NARROWING = ("include", "exclude", "limit")  # options that choose among hosts
LISTS = ("hosts", "ips", "hostfile", "inventory", *NARROWING)  # options that the inventory reads


def request_of(settings: Settings, program: Program, hosts: "tuple[Host, ...]") -> RunRequest:
    """Return the request that the settings make, for the engine."""
    return RunRequest(
        program=program,
        hosts=hosts,
        sandbox=settings.sandbox or 0,
        nproc=settings.nproc_per_node,
        contracts=settings.contract,
        env=settings.env,
        keep_proxy=settings.keep_proxy,
        python=settings.python,
        workdir=settings.workdir,
        prelude=settings.prelude,
        start_port=settings.start_port,
        master_port=settings.master_port,
        network=settings.network,
        grace=settings.grace,
        timeout=settings.timeout,
        orphan_grace=settings.orphan_grace,
        transport=settings.transport,
        ssh=ssh_of(settings),
        for_agents={option.name: getattr(settings, option.name) for option in OPTIONS if option.is_for_agents},
        name=settings.name,
    )


def ssh_of(settings: Settings) -> SshOptions:
    """Return how hosts are reached."""
    return SshOptions(
        settings.ssh_config, settings.connect_timeout, settings.host_key_check, _options_to_reach(settings)
    )


def _options_to_reach(settings: Settings) -> str:
    """Return the options that other commands need to reach the same hosts, as one pastes them."""
    import shlex

    given = {name: getattr(settings, name) for name in ("ssh_config", "hostfile", "inventory")}
    words = [
        word
        for name, value in given.items()
        if value is not None and settings.origin(name).layer == "argument"
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return shlex.join(words)


def program_of(settings: Settings, words: Sequence[str]) -> Program:
    """Return what every rank runs.

    Args:
        words: a script, module or command, as the settings say, and its arguments.

    Raises:
        UsageError: there are no words.
    """
    if not words or not words[0]:
        found = "an empty word" if words else "nothing"
        raise UsageError(f"expected a script after the options, found {found}", hint="mnspawn --hosts a,b train.py")
    kind: Literal["script", "module", "command"] = "script"
    if settings.module:
        kind = "module"
    elif settings.no_python:
        kind = "command"
    return Program(kind, words[0], tuple(words[1:]))


def hosts_of(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    else_all: bool = False,
    on_note: Callable[[str], None] = lambda note: None,
) -> "tuple[Host, ...]":
    """Find the hosts that take part, by the options or the allocation that we run in.

    Args:
        else_all: if nothing says which, take all hosts of the user's own inventory.
        on_note: takes a line for people about where hosts come from.

    Returns:
        The hosts; none for a sandbox, whose hosts do not exist yet.

    Raises:
        UsageError: there are none (this machine is never the default), or an option can't be used.
    """
    if settings.sandbox:
        for name in NARROWING:
            if getattr(settings, name) is not None and settings.origin(name).layer == "argument":
                raise UsageError("expected hosts to choose from, found a sandbox", place=f"--{name}")
        return ()
    from mnspawn_inventory import InventoryError, Origin, resolve

    given = {name: str(value) for name in LISTS if (value := getattr(settings, name)) is not None}
    places = {name: Origin(settings.origin(name).place) for name in given}
    try:
        selection = resolve(**given, places=places, else_all=else_all, environ=environ)
    except InventoryError as exc:
        raise UsageError(exc.text, place=str(exc.place or "") or None, hint=exc.hint) from exc
    if not selection.hosts:
        from mnspawn_inventory.allocation import unread

        hint = unread(environ) or "name them with --hosts a,b or --hostfile FILE, or try --sandbox 2 on this machine"
        raise UsageError("expected hosts to run on, found none", hint=hint)
    for note in selection.notes:
        on_note(note)
    return selection.hosts


def this_machine(data_address: str | None = None) -> "Host":
    """Return this machine as a host that needs no SSH."""
    import socket

    from mnspawn_inventory import Host

    return Host(name=socket.gethostname(), data_address=data_address, transport="local")
