"""What a spawn was asked for: Paddle's options and ours, checked before any host is touched."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mnspawn.api import arguments
from mnspawn.errors import ArgumentTypeError, OptionError
from mnspawn.settings import table
from mnspawn.settings.values import MOST_WORKERS

from . import devices

PADDLE = ("start_method", "ips", "gpus", "xpus", "print_config", "backend")
DEPRECATED = ("selected_devices", "started_port", "cluster_node_ips", "node_ip", "use_paddlecloud")
OTHER_WORDS = ("ips", "nproc_per_node", "module", "no_python")  # a spawn has its own words for these
OURS = tuple(name for name in arguments.OPTIONS if name not in OTHER_WORDS)
KNOWN = (*PADDLE, *DEPRECATED, *OURS)
KEYWORDS = "functools.partial(func, name=value) takes keyword arguments along"
START_METHODS = ("spawn", "forkserver", "fork")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NO_FORK = "fork copies the caller's memory, which other machines do not have; forkserver saves the same imports"


@dataclass(frozen=True, slots=True)
class SpawnOptions:
    """All decisions that can be made without asking a host.

    Attributes:
        nprocs: per host, or -1 for as many as the host is good for.
        selected: absolute ids of devices; () where none were named.
    """

    place: arguments.Place
    nprocs: int
    start_method: str
    backend: str
    selected: tuple[str, ...]
    print_config: bool

    @property
    def is_fork(self) -> bool:
        return self.start_method == "fork"


def read(nprocs: object, hosts: object, given: Mapping[str, Any], caller: str = "mnspawn.spawn") -> SpawnOptions:
    """Check everything.

    Raises:
        OptionError, ArgumentTypeError: for the first thing that can't be used.
    """
    given = {name: value for name, value in given.items() if value is not None or name not in KNOWN}
    for name in given:
        if name not in KNOWN:
            hint = KEYWORDS if name == "kwargs" else None
            raise OptionError(f"The config option ({name}) of `{caller}` is not supported", hint=hint)
    for name in DEPRECATED:
        if name in given:
            arguments.warn(f"the config option ({name}) of `{caller}` is deprecated", DeprecationWarning)
    count = _check_nprocs(nprocs)
    method = given.get("start_method", "spawn")
    if method not in START_METHODS:
        raise OptionError(f"cannot find context for {method!r}; there are {', '.join(START_METHODS)}")
    backend = given.get("backend", "auto")
    if not isinstance(backend, str):
        raise ArgumentTypeError(f"expected text, found {backend!r}", place="backend")
    backend = devices.check_backend(backend or "auto")
    selected = _selected(given, backend, count)
    named = _named_hosts(hosts, given)
    is_here = not named and "sandbox" not in given and not given.get("use_paddlecloud")
    if method == "fork":
        _check_fork(given, is_here)
    ours = {name: given[name] for name in OURS if name in given}
    if "started_port" in given:
        ours.setdefault("start_port", given["started_port"])
    place = arguments.resolve(
        {**ours, **named}, is_here=is_here, address=given.get("node_ip"), ignored=("nproc_per_node",)
    )
    return SpawnOptions(place, count, method, backend, selected, bool(given.get("print_config")))


def _check_nprocs(nprocs: object) -> int:
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


def _check_fork(given: Mapping[str, Any], is_here: bool) -> None:
    if not is_here:
        raise OptionError(f"expected spawn or forkserver across hosts, found fork: {NO_FORK}", place="start_method")
    for name, found in (("python", "interpreter"), ("prelude", "prelude")):
        if name in given:
            text = f"expected no {found} for start method fork: ranks are copies of this process"
            raise OptionError(text, place=name)


def _named_hosts(hosts: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that name hosts; none for this machine."""
    ips = given.get("ips", given.get("cluster_node_ips"))
    words = {"hosts": hosts, "ips": ips, "hostfile": given.get("hostfile"), "inventory": given.get("inventory")}
    found = {name: value for name, value in words.items() if value is not None}
    if "hosts" in found and "ips" in found:
        raise OptionError("expected hosts or ips, which mean the same, found both", place="ips")
    if "sandbox" in given and found:
        raise OptionError(f"expected a sandbox or {next(iter(found))}, found both", place="sandbox")
    for name in ("hosts", "ips"):
        if name in found:
            found[name] = _host_list(name, found[name])
    if tuple(found) == ("ips",) and found["ips"].strip() in LOOPBACK:
        return {}  # Paddle's own default: this machine
    return found


def _host_list(name: str, value: object) -> str:
    """Hosts as one text. Raises ArgumentTypeError: something is no text. OptionError: there are none."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    listed: list[Any] = list(value) if is_list else [value]  # type: ignore[call-overload]
    for host in listed:
        if not isinstance(host, str):
            raise ArgumentTypeError(f"expected text such as 'a,b' or a list of texts, found {host!r}", place=name)
    text = ",".join(listed)
    if not text.strip():
        raise OptionError("expected one host or more, found none", place=name)
    return text


def _selected(given: Mapping[str, Any], backend: str, nprocs: int) -> tuple[str, ...]:
    option = "xpus" if backend == "bkcl" else "gpus"
    found = given.get(option, given.get("selected_devices"))
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


def config_lines(options: SpawnOptions) -> list[str]:
    """What `print_config` shows: every decision, sorted by name, between two lines."""
    place = options.place
    shown: dict[str, object] = {option.name: getattr(place.settings, option.name) for option in table.OPTIONS}
    shown.pop("env")  # values may be secrets
    shown |= {
        "hosts": ",".join(host.name for host in place.hosts) or f"sandbox of {place.settings.sandbox}",
        "nprocs": options.nprocs,
        "start_method": options.start_method,
        "backend": options.backend,
        "selected_devices": ",".join(options.selected) or None,
        "output": place.output,
    }
    lines = [f"{name}: {value}" for name, value in sorted(shown.items())]
    return ["-----------  Configuration Arguments -----------", *lines, "-" * 48]
