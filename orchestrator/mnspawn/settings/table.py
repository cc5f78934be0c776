"""Declares every option of a run once, and resolves them: defaults < settings file < environment < arguments.

A value that can't be used is a UsageError that names its place: the option, the variable, or file:line:column.
"""

# ruff: noqa: RUF009 - _option is dataclasses.field with this module's metadata

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mnspawn.errors import UsageError
from mnspawn.plan.contract import DEFAULT, REGISTRY
from mnspawn.plan.contract.ours import NAMES as CONTRACT_NAMES

from . import file as settings_file
from . import values

PREFIX = "MNSPAWN_"
# Of these groups, the highest layer that gives an option replaces all of the lower ones.
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
        is_for_calls: `mnspawn.launch` takes it by its name, too; not those about a terminal or a command's files.
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
    is_for_calls: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from.

    Attributes:
        layer: default, file, environment, argument, or positional (an argument that is no option).
        place: for messages.
    """

    layer: str
    place: str

    def __str__(self) -> str:
        return self.place


def _option(
    default: Any, parser: values.Parser, panel: str, metavar: str, text: str, short: str = "",
    repeatable: bool = False, for_agents: bool = False, for_calls: bool = True,
) -> Any:  # fmt: skip
    declared = {"parser": parser, "panel": panel, "metavar": metavar, "help": text, "is_repeatable": repeatable}
    declared |= {"is_for_agents": for_agents, "is_for_calls": for_calls, "short": short}
    return field(default=default, metadata=declared)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The checked values of one run, with their origins. None means not given: whoever uses it decides."""

    hosts: str | None = _option(
        None, values.host_list, "Hosts", "LIST",
        "Run on these hosts, separated by commas; a:4 gives host a four slots. With --hostfile or --inventory, choose"
        " among its hosts.", "-H")
    ips: str | None = _option(
        None, values.host_list, "Hosts", "LIST", "Run on these hosts: Paddle's name for --hosts.")
    hostfile: Path | None = _option(
        None, values.path, "Hosts", "FILE", "Read the hosts from FILE, one a line, with slots=N.")
    sandbox: int | None = _option(
        None, values.count, "Hosts", "N", "Run on N throw-away hosts on this machine, served by a built-in SSH server.")
    inventory: Path | None = _option(
        None, values.path, "Hosts", "FILE", "Look hosts up in this inventory.", "-i")
    include: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Use only these hosts, or only these devices of a host: a:0,1.")
    exclude: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Leave out these hosts or devices.")
    limit: str | None = _option(
        None, values.host_list, "Hosts", "HOSTS", "Use only these hosts.")

    nproc_per_node: int | str | None = _option(
        None, values.nproc, "Processes", "N|auto|gpu|cpu",
        "Start N workers per host. Default: the host's slots, else auto: one per accelerator, or per CPU without any.")
    module: bool = _option(
        False, values.switch, "Processes", "", "Treat SCRIPT as the name of a module, as python -m does.", "-m")
    no_python: bool = _option(
        False, values.switch, "Processes", "", "Treat SCRIPT as a command, not as a Python script.")
    python: str | None = _option(
        None, values.text, "Processes", "PATH", "Run workers with this Python of the hosts.")
    workdir: str | None = _option(
        None, values.text, "Processes", "PATH", "Start workers in this directory on the hosts.")
    prelude: str | None = _option(
        None, values.text, "Processes", "LINES",
        "Run these shell lines before each worker, in bash where a host has it: 'source ~/venv/bin/activate'.")
    start_port: int | None = _option(
        None, values.port, "Processes", "PORT",
        "Give workers endpoints at PORT + local rank on every host. Default: 6070 + local rank if free, else any.")
    master_port: int | None = _option(
        None, values.port, "Processes", "PORT", "Use this port of the first host as rendezvous. Default: a free one.")
    network: str | None = _option(
        None, values.network, "Processes", "CIDR|INTERFACE", "Let workers reach each other on this network.")
    contract: tuple[str, ...] = _option(
        DEFAULT, values.contracts, "Processes", "LIST",
        f"Set the environment that these frameworks expect: {', '.join(REGISTRY)}, default.")

    env: tuple[tuple[str, str], ...] = _option(
        (), values.variables, "Environment", "NAME[=VALUE]|@FILE",
        "Set a variable for every worker; NAME alone forwards its value here, @FILE sets those of an .env file."
        " Repeatable.",
        "-x", True)
    keep_proxy: bool = _option(
        False, values.switch, "Environment", "", "Leave http_proxy and https_proxy of the hosts to the workers.")

    output: str = _option(
        "prefix", values.choice("prefix", "plain", "fold", "json", "none"), "Output", "prefix|plain|fold|json|none",
        "Show the workers' lines after [host:rank], as they are, equal ones of many ranks once, as JSON, or not.")
    ranks: tuple[range, ...] | None = _option(
        None, values.ranks, "Output", "LIST", "Show only the lines of these ranks, such as 0,3-5.", for_calls=False)
    timestamps: bool = _option(
        False, values.switch, "Output", "", "Show when its host saw each line.", for_calls=False)
    color: str = _option(
        "auto", values.choice("auto", "always", "never"), "Output", "auto|always|never",
        "Colour each rank: on terminals (unless NO_COLOR is set), always, or never.", for_calls=False)
    sanitize: bool = _option(
        False, values.switch, "Output", "",
        "Let only colours of the workers' control sequences reach the console.", for_calls=False)
    log_dir: Path | None = _option(
        None, values.path, "Output", "DIR",
        "Copy what workers write, byte for byte, and a report to DIR/RUN.", for_calls=False)
    log_cap: int | None = _option(
        None, values.size, "Output", "SIZE",
        "Keep only the newest bytes of each stream on the hosts (10M, 2G); free the disk of older ones.",
        for_agents=True)
    events: Path | None = _option(
        None, values.path, "Output", "FILE|-", "Write every event as one line of JSON.", for_calls=False)
    dry_run: bool = _option(
        False, values.switch, "Output", "",
        "Ask the hosts and show what every rank would get; start nothing.", for_calls=False)
    json: bool = _option(
        False, values.switch, "Output", "", "Print the plan of --dry-run as JSON.", for_calls=False)
    verbose: int = _option(
        0, values.level, "Output", "", "Say more; give it twice for still more.", "-v", True, for_calls=False)

    name: str | None = _option(
        None, values.label, "Life", "LABEL", "Give the run a name.")
    detach: bool = _option(
        False, values.switch, "Life", "",
        "Return once all ranks run, and leave the run in the background; mnspawn attach returns to it.",
        for_calls=False)
    grace: float = _option(
        10.0, values.patience, "Life", "SECONDS", "Wait so long after TERM before KILL; 0 kills at once.")
    timeout: float | None = _option(
        None, values.seconds, "Life", "SECONDS", "Stop the run after this time.")
    connect_timeout: float = _option(
        15.0, values.seconds, "Life", "SECONDS",
        "Give up on each address of a host after this time, retries included.")
    orphan_grace: float = _option(
        20.0, values.seconds, "Life", "SECONDS", "Stop the workers of a host this long after it lost its link to us.")

    ssh_config: Path | None = _option(
        None, values.path, "SSH", "FILE", "Read FILE instead of ~/.ssh/config and /etc/ssh/ssh_config.")
    transport: str = _option(
        "asyncssh", values.choice("asyncssh", "paramiko", "openssh"), "SSH", "NAME",
        "Connect by asyncssh, paramiko or openssh.")
    host_key_check: str | None = _option(
        None, values.choice("strict", "accept-new"), "SSH", "strict|accept-new",
        "Refuse or accept hosts whose key is not known. Default: as ssh_config says, else strict.")

    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    # fmt: on

    def with_hosts(self, hosts: str) -> "Settings":
        """These settings with hosts that the command line names by position, not by --hosts."""
        return replace(self, hosts=hosts, origins={**self.origins, "hosts": Origin("positional", "HOSTS")})

    def origin(self, name: str) -> Origin:
        """Where the value of an option came from."""
        return self.origins.get(name, Origin("default", f"default of {OPTION[name].flags[0]}"))


def _declared(name: str, default: Any, metadata: Mapping[str, Any]) -> Option:
    declared = dict(metadata)
    short = declared.pop("short")
    flags = ("--" + name.replace("_", "-"), *([short] if short else []))
    return Option(name, default, flags=flags, is_flag=not declared["metavar"], **declared)


OPTIONS = tuple(_declared(one.name, one.default, one.metadata) for one in fields(Settings) if one.metadata)
OPTION = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class _Found:
    """A value before it is checked."""

    value: object
    origin: Origin


def resolve(arguments: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Merge the four layers and check every value.

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
