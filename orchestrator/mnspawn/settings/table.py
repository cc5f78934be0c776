"""Every option of a run, declared once: defaults < settings file < environment < arguments.

`resolve` gives a Settings whose attributes are checked values and which knows where each of them came from. A value
that can't be used is a UsageError that names its place: the option, the variable, or file:line:column.
"""

# ruff: noqa: RUF009 - _option is dataclasses.field with this module's metadata

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mnspawn.errors import UsageError
from mnspawn.plan.contract import DEFAULT, REGISTRY
from mnspawn.plan.contract.ours import NAMES as CONTRACT_NAMES

from . import file as settings_file
from . import values

PREFIX = "MNSPAWN_"
# What a higher layer says of a group replaces all that a lower one says of it.
REPLACED = (("hosts", "ips", "hostfile", "sandbox"), ("module", "no_python"))
# Within a layer at most one of each group; hosts, or ips, with a hostfile chooses among its hosts.
EXCLUSIVE = (("hosts", "ips", "sandbox"), ("hostfile", "sandbox"), ("module", "no_python"))


@dataclass(frozen=True, slots=True)
class Option:
    """How one option is spelt, checked and explained.

    Attributes:
        flags: its spellings on the command line, the long one first.
        metavar: what --help shows for its value ("" for a flag).
        panel: the heading under which --help shows it.
        is_flag: takes no value on the command line.
        is_repeatable: may be given several times.
        is_for_agents: goes to every agent as it is, as a field of PREPARE (messages.OPTIONS).
    """

    name: str
    default: Any
    parser: values.Parser
    panel: str
    metavar: str
    help: str
    flags: tuple[str, ...]
    is_flag: bool
    is_repeatable: bool
    is_for_agents: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from. `layer` is default, file, environment or argument; `place` is for messages."""

    layer: str
    place: str

    def __str__(self) -> str:
        return self.place


def _option(
    default: Any, parser: values.Parser, panel: str, metavar: str, text: str, short: str = "",
    repeatable: bool = False, for_agents: bool = False,
) -> Any:  # fmt: skip
    declared = {"parser": parser, "panel": panel, "metavar": metavar, "help": text, "is_for_agents": for_agents}
    return field(default=default, metadata=declared | {"short": short, "repeatable": repeatable})


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of one run, checked. None means that nothing was said: whoever uses it decides."""

    hosts: str | None = _option(
        None, values.host_list, "Hosts", "LIST",
        "Hosts, separated by commas; a:4 gives host a four slots. With --hostfile or --inventory: of its hosts.", "-H")
    ips: str | None = _option(
        None, values.host_list, "Hosts", "LIST", "The same as --hosts, in Paddle's word.")
    hostfile: Path | None = _option(
        None, values.path, "Hosts", "FILE", "Hosts, one a line, with slots=N.")
    sandbox: int | None = _option(
        None, values.count, "Hosts", "N", "N throw-away hosts on this machine, behind a built-in SSH server.")
    inventory: Path | None = _option(
        None, values.path, "Hosts", "FILE", "The inventory that knows the hosts.", "-i")
    include: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Of the hosts only these, and of a host only devices: a:0,1.")
    exclude: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Without these hosts or devices.")
    limit: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Of the hosts only these.")

    nproc_per_node: int | str | None = _option(
        None, values.nproc, "Processes", "N|auto|gpu|cpu",
        "Workers per host. Else the host's slots; else auto: one per accelerator, or per CPU where there is none.")
    module: bool = _option(
        False, values.switch, "Processes", "", "SCRIPT is the name of a module, as in python -m.", "-m")
    no_python: bool = _option(
        False, values.switch, "Processes", "", "SCRIPT is a command of its own, not a Python script.")
    python: str | None = _option(
        None, values.text, "Processes", "PATH", "The Python on the hosts that runs the workers.")
    workdir: str | None = _option(
        None, values.text, "Processes", "PATH", "The directory on the hosts that workers start in.")
    prelude: str | None = _option(
        None, values.text, "Processes", "LINES",
        "Shell lines to run before each worker, in bash where a host has it: 'source ~/venv/bin/activate'.")
    start_port: int | None = _option(
        None, values.port, "Processes", "PORT",
        "Workers' endpoints get PORT + local rank on every host. Else 6070 + local rank where free, else free ports.")
    master_port: int | None = _option(
        None, values.port, "Processes", "PORT", "The port of the rendezvous on the first host. Else a free one.")
    network: str | None = _option(
        None, values.network, "Processes", "CIDR|INTERFACE", "The network on which workers reach each other.")
    contract: tuple[str, ...] = _option(
        DEFAULT, values.contracts, "Processes", "LIST",
        f"What workers find in their environment: {', '.join(REGISTRY)}, default.")

    env: tuple[tuple[str, str], ...] = _option(
        (), values.variables, "Environment", "NAME[=VALUE]|@FILE",
        "A variable for every worker; NAME alone takes the value from here, @FILE those of an .env file. Repeatable.",
        "-x", True)
    keep_proxy: bool = _option(
        False, values.switch, "Environment", "", "Leave http_proxy and https_proxy of the hosts to the workers.")

    output: str = _option(
        "prefix", values.choice("prefix", "plain", "fold", "json", "none"), "Output", "prefix|plain|fold|json|none",
        "How the workers' lines show: after [host:rank], as they are, equal ones of many ranks once, as JSON, or not.")
    ranks: tuple[range, ...] | None = _option(
        None, values.ranks, "Output", "LIST", "Show the lines of these ranks only, such as 0,3-5.")
    timestamps: bool = _option(
        False, values.switch, "Output", "", "Every line says when its host saw it.")
    color: str = _option(
        "auto", values.choice("auto", "always", "never"), "Output", "auto|always|never",
        "A colour per rank: on terminals (unless NO_COLOR is set), always, never.")
    sanitize: bool = _option(
        False, values.switch, "Output", "", "Of the workers' control sequences only colours reach the console.")
    log_dir: Path | None = _option(
        None, values.path, "Output", "DIR", "Copies of what workers write, byte for byte, and a report, in DIR/RUN.")
    log_cap: int | None = _option(
        None, values.size, "Output", "SIZE",
        "Of each stream, hosts keep the newest bytes only (10M, 2G); older ones go back to the disk.", for_agents=True)
    events: Path | None = _option(
        None, values.path, "Output", "FILE|-", "Write every event as one line of JSON.")
    dry_run: bool = _option(
        False, values.switch, "Output", "", "Ask the hosts, show what every rank would get, start nothing.")
    json: bool = _option(
        False, values.switch, "Output", "", "With --dry-run: for machines.")
    verbose: int = _option(
        0, values.level, "Output", "", "Say more; twice: still more.", "-v", True)

    name: str | None = _option(
        None, values.label, "Life", "LABEL", "What people call the run.")
    detach: bool = _option(
        False, values.switch, "Life", "", "Leave when all ranks run; the run goes on. mnspawn attach takes it over.")
    grace: float = _option(
        10.0, values.patience, "Life", "SECONDS",
        "From the request to stop (TERM) to the end of patience (KILL); 0 kills at once.")
    timeout: float | None = _option(
        None, values.seconds, "Life", "SECONDS", "Stop the run after this time.")
    connect_timeout: float = _option(
        15.0, values.seconds, "Life", "SECONDS", "For reaching a host: for each of its addresses, retries included.")
    orphan_grace: float = _option(
        20.0, values.seconds, "Life", "SECONDS", "A host that lost us stops its workers after this time.")

    ssh_config: Path | None = _option(
        None, values.path, "SSH", "FILE", "Used in place of ~/.ssh/config and /etc/ssh/ssh_config.")
    transport: str = _option(
        "asyncssh", values.choice("asyncssh", "paramiko", "openssh"), "SSH", "NAME", "asyncssh, paramiko or openssh.")
    host_key_check: str | None = _option(
        None, values.choice("strict", "accept-new"), "SSH", "strict|accept-new",
        "What to do about hosts whose key is not known. Else as ssh_config says, else strict.")

    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    # fmt: on

    def origin(self, name: str) -> Origin:
        """Where the value of an option came from."""
        return self.origins.get(name, Origin("default", f"default of {OPTION[name].flags[0]}"))


def _declared(name: str, default: Any, metadata: Mapping[str, Any]) -> Option:
    said = dict(metadata)
    short, is_repeatable = said.pop("short"), said.pop("repeatable")
    flags = ("--" + name.replace("_", "-"), *([short] if short else []))
    return Option(name, default, flags=flags, is_flag=not said["metavar"], is_repeatable=is_repeatable, **said)


OPTIONS = tuple(_declared(one.name, one.default, one.metadata) for one in fields(Settings) if one.metadata)
OPTION = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class _Found:
    """A value before it is checked."""

    value: object
    origin: Origin


def resolve(arguments: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Lay the four layers over each other and check every value.

    Args:
        arguments: by option name; None and empty lists count as not given. Texts and typed values will both do.
        environ: the environment. MNSPAWN_<OPTION> gives an option, MNSPAWN_SETTINGS names the settings file.
        file: the settings file, in place of the one that `environ` leads to.

    Raises:
        UsageError: a value can't be used, an option is unknown, or two options exclude each other.
    """
    path, is_required = (file, True) if file else settings_file.find(environ)
    content = settings_file.read(path, is_required) if path else None
    in_file = _of_file(content, path) if path and content is not None else {}
    here = values.Context(environ)
    at_file = values.Context(environ, path.parent if path else None)
    resolved: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for layer, context in ((in_file, at_file), (_of_environment(environ), here), (_of_arguments(arguments), here)):
        _exclude(layer, resolved, origins)
        for name, found in layer.items():
            try:
                value: Any = OPTION[name].parser(found.value, context)
            except values.BadValue as bad:
                raise UsageError(str(bad), place=found.origin.place) from None
            if name == "env":  # adds up over the layers; of one name the highest layer's value
                value = tuple((dict(resolved.get(name, ())) | dict(value)).items())
            resolved[name], origins[name] = value, found.origin
    return Settings(**resolved, origins=origins)


def _exclude(layer: Mapping[str, _Found], resolved: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Check the groups within a layer; take out of the lower ones what this one replaces."""
    for group in EXCLUSIVE:
        given = [name for name in group if name in layer]
        if len(given) > 1:
            first, second = (layer[name].origin.place for name in given[:2])
            raise UsageError(f"expected one of these at most, found {first} as well", place=second)
    for names in REPLACED:
        for name in names if any(name in layer for name in names) else ():
            resolved.pop(name, None)
            origins.pop(name, None)


def _of_arguments(arguments: Mapping[str, object]) -> dict[str, _Found]:
    for name in arguments:
        if name not in OPTION:
            raise _unknown(name, "arguments")
    return {
        name: _Found(value, Origin("argument", OPTION[name].flags[0]))
        for name, value in arguments.items()
        if value is not None and value != [] and value != ()
    }


def _of_environment(environ: Mapping[str, str]) -> dict[str, _Found]:
    # Inside a worker some variables of these names are facts about the outer run, set by our own contract.
    facts = CONTRACT_NAMES if "MNSPAWN_RUN_ID" in environ else ()
    return {
        option.name: _Found(environ[option.variable], Origin("environment", option.variable))
        for option in OPTIONS
        if option.variable in environ and option.variable not in facts
    }


def _of_file(content: str, path: Path) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    for entry in settings_file.parse(content, path):
        name = entry.key.replace("-", "_")
        if name not in OPTION:
            raise _unknown(entry.key, entry.key_place)
        if name in found:
            raise UsageError(f"expected {name} once, found it twice", place=entry.key_place)
        found[name] = _Found(entry.value, Origin("file", entry.value_place))
    return found


def _unknown(name: str, place: str) -> UsageError:
    near = difflib.get_close_matches(name.replace("-", "_"), OPTION, n=1)
    hint = f"did you mean {near[0]}?" if near else None
    return UsageError(f"expected the name of an option, found {name!r}", place=place, hint=hint)
