"""What a spawn was asked for: option names of Paddle and of ours, checked, before anything is sent anywhere."""

import contextlib
import operator
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mnspawn.errors import UsageError
from mnspawn.settings import table as settings
from mnspawn.settings import to_request
from mnspawn.settings.values import MOST_WORKERS

from . import devices
from .errors import ArgumentTypeError, OptionError

if TYPE_CHECKING:
    from mnspawn_inventory import Host

PADDLE = ("start_method", "ips", "gpus", "xpus", "print_config", "backend")
DEPRECATED = ("selected_devices", "started_port", "cluster_node_ips", "node_ip", "use_paddlecloud")
OURS = (
    *(
        "hostfile",
        "inventory",
        "sandbox",
        *to_request.NARROWING,
        "name",
        "log_cap",
        "python",
        "workdir",
        "prelude",
        "start_port",
        "master_port",
        "network",
        "contract",
    ),
    *("env", "keep_proxy", "output", "grace", "timeout", "connect_timeout", "orphan_grace", "ssh_config", "transport"),
    "host_key_check",
)
KNOWN = (*PADDLE, *DEPRECATED, *OURS)
KEYWORDS = "functools.partial(func, name=value) takes keyword arguments along"
START_METHODS = ("spawn", "forkserver", "fork")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NO_FORK = "fork copies the caller's memory, which other machines do not have; forkserver saves the same imports"


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything decided that can be decided without asking a host.

    Attributes:
        nprocs: per host, or -1 for as many as the host is good for.
        is_here: on this machine, without SSH.
        output: how the ranks' output is shown.
    """

    settings: settings.Settings
    hosts: "tuple[Host, ...]"
    nprocs: int
    is_here: bool
    start_method: str
    backend: str
    selected: tuple[str, ...]
    output: str
    print_config: bool


def check_nprocs(nprocs: object) -> int:
    """A number of processes per host, or -1.

    Raises:
        ArgumentTypeError: it is no whole number.
        OptionError: it is less than 1, or more than a host takes.
    """
    try:
        if isinstance(nprocs, bool):
            raise TypeError
        number = operator.index(nprocs)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"expected a whole number, found {nprocs!r}", place="nprocs") from None
    if number < 1 and number != -1:
        raise OptionError(f"expected at least 1, or -1 for one per device or CPU, found {number}", place="nprocs")
    if number > MOST_WORKERS:
        raise OptionError(f"expected at most {MOST_WORKERS} on a host, found {number}", place="nprocs")
    return number


def check_start_method(method: object) -> str:
    """Raises OptionError (a ValueError): unknown."""
    if method is None:
        return "spawn"
    if method not in START_METHODS:
        raise OptionError(f"cannot find context for {method!r}; there are {', '.join(START_METHODS)}")
    return str(method)


def read(nprocs: object, hosts: object, given: Mapping[str, Any], caller: str = "mnspawn.spawn") -> Asked:
    """Check everything.

    Raises:
        OptionError, ArgumentTypeError: the first thing that can't be used.
    """
    for name in given:
        if name not in KNOWN:
            hint = KEYWORDS if name == "kwargs" else None
            raise OptionError(f"The config option ({name}) of `{caller}` is not supported", hint=hint)
    for name in DEPRECATED:
        if given.get(name) is not None:
            text = f"the config option ({name}) of `{caller}` is deprecated"
            warnings.warn(text, DeprecationWarning, stacklevel=level_of_caller())
    count = check_nprocs(nprocs)
    method = check_start_method(given.get("start_method"))
    backend = given.get("backend")
    if backend is not None and not isinstance(backend, str):
        raise ArgumentTypeError(f"expected text, found {backend!r}", place="backend")
    backend = devices.check_backend(backend or "auto")
    selected = _selected(given, backend, count)
    chosen = _host_options(hosts, given)
    ours = {name: given[name] for name in OURS if given.get(name) is not None}
    if given.get("started_port") is not None:
        ours.setdefault("start_port", given["started_port"])
    with _as_option_errors():
        resolved = settings.resolve({**ours, **chosen}, _without_hosts(os.environ))
    is_here = not chosen and not resolved.sandbox and not given.get("use_paddlecloud")
    if method == "fork" and not is_here:
        raise OptionError(f"expected spawn or forkserver across hosts, found fork: {NO_FORK}", place="start_method")
    if method == "fork" and given.get("python") is not None:
        raise OptionError("expected no interpreter for start method fork: ranks are copies of this one", place="python")
    if method == "fork" and given.get("prelude") is not None:
        raise OptionError(
            "expected no prelude for start method fork: ranks are copies of this process", place="prelude"
        )
    if (is_here or resolved.sandbox) and any(given.get(name) is not None for name in to_request.NARROWING):
        raise OptionError("expected hosts to choose from, found none", place="hosts")
    if resolved.sandbox:
        found: tuple[Host, ...] = ()
    elif is_here:
        found = (to_request.this_machine(given.get("node_ip")),)
    else:
        with _as_option_errors():
            found = to_request.hosts_of(resolved, os.environ)
    return Asked(
        settings=resolved,
        hosts=found,
        nprocs=count,
        is_here=is_here,
        start_method=method,
        backend=backend,
        selected=selected,
        output=resolved.output if resolved.origin("output").layer != "default" or not is_here else "plain",
        print_config=bool(given.get("print_config")),
    )


def level_of_caller() -> int:
    """The `stacklevel` for a warning of our caller's that makes it one of the line that called a spawn.

    What is not of a line of the main script is not shown unasked.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("mnspawn.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


@contextlib.contextmanager
def _as_option_errors() -> Iterator[None]:
    """What the command line calls bad usage is a ValueError, too, to those who call a spawn."""
    try:
        yield
    except UsageError as exc:
        raise OptionError(exc.message, place=exc.place, hint=exc.hint) from exc.__cause__


def _without_hosts(environ: Mapping[str, str]) -> dict[str, str]:
    """No variable turns a call that names no hosts into one that goes elsewhere."""
    names = ("MNSPAWN_HOSTS", "MNSPAWN_IPS", "MNSPAWN_HOSTFILE", "MNSPAWN_SANDBOX", "MNSPAWN_NPROC_PER_NODE")
    return {name: value for name, value in environ.items() if name not in names}


def _host_options(hosts: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """Which of the options name hosts: at most one, and none for this machine."""
    ips = given.get("ips") if given.get("ips") is not None else given.get("cluster_node_ips")
    named = {"hosts": hosts, "ips": ips, "hostfile": given.get("hostfile"), "inventory": given.get("inventory")}
    found = {name: value for name, value in named.items() if value is not None}
    if "hosts" in found and "ips" in found:
        raise OptionError("expected hosts or ips, which mean the same, found both", place="ips")
    if given.get("sandbox") is not None and found:
        raise OptionError(f"expected a sandbox or {next(iter(found))}, found both", place="sandbox")
    for name in ("hosts", "ips"):
        if name in found:
            found[name] = _host_list(name, found[name])
    if tuple(found) == ("ips",) and str(found["ips"]).strip() in LOOPBACK:
        return {}  # Paddle's own default: this machine
    return found


def _host_list(name: str, value: object) -> str:
    """Raises ArgumentTypeError: something that is no text."""
    if isinstance(value, str):
        if not value.strip():
            raise OptionError("expected one host or more, found none", place=name)
        return value
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        listed = list(value)
        if listed and all(isinstance(host, str) for host in listed):
            return ",".join(listed)
        if not listed:
            raise OptionError("expected one host or more, found none", place=name)
        value = next(host for host in listed if not isinstance(host, str))
    raise ArgumentTypeError(f"expected text such as 'a,b' or a list of texts, found {value!r}", place=name)


def _selected(given: Mapping[str, Any], backend: str, nprocs: int) -> tuple[str, ...]:
    """Absolute ids of the devices that were named."""
    option = "xpus" if backend == "bkcl" else "gpus"
    found = given.get(option) if given.get(option) is not None else given.get("selected_devices")
    if found is None:
        return ()
    if isinstance(found, list | tuple):
        found = ",".join(map(str, found))
    if not isinstance(found, str):
        raise ArgumentTypeError(f"expected ids such as '0,1', found {found!r}", place=option)
    selected = tuple(card.strip() for card in found.split(","))
    if not all(selected):
        raise OptionError(f"expected ids such as '0,1', found {found!r}", place=option)
    if backend == "gloo":
        return ()  # as Paddle: it looks at them for devices only
    devices.check_selected(option, selected, nprocs)
    return selected


def print_all(asked: Asked) -> list[str]:
    """What `print_config` shows: every decision, sorted by name, between two lines."""
    shown: dict[str, object] = {option.name: getattr(asked.settings, option.name) for option in settings.OPTIONS}
    shown.pop("env")  # values may be secrets
    shown |= {
        "hosts": ",".join(host.name for host in asked.hosts) or f"sandbox of {asked.settings.sandbox}",
        "nprocs": asked.nprocs,
        "start_method": asked.start_method,
        "backend": asked.backend,
        "selected_devices": ",".join(asked.selected) or None,
        "output": asked.output,
    }
    lines = [f"{name}: {value}" for name, value in sorted(shown.items())]
    return ["-----------  Configuration Arguments -----------", *lines, "-" * 48]
