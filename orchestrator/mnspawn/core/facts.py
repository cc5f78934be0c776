"""Reads what a host says of itself into checked types. Pure.

Nothing of it is trusted: what our agent would not say is an error that names the field.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

from mnspawn_agent.protocol.checks import MAX_LINE, MAX_SECONDS, MAX_TIME, is_text, shown

T = TypeVar("T")

MOST_CPUS = 1 << 20  # the largest machines have some thousands
MOST_DEVICES = 4096  # as many as workers
MOST_INTERFACES = 1 << 14  # a host of ten thousand containers has two for each
MOST_VARIABLES = 256  # the agent looks at a handful
MOST_BYTES = 1 << 80  # file systems of 16 EiB and more say so in 64 bits of blocks
MOST_USERS = 1 << 32  # uid_t


class Nonsense(ValueError):
    """An answer that can't be; the text names the field, what was expected and what was found."""


class Reader:
    """Takes the fields of an object, each checked.

    Args:
        place: names the object in messages.
    """

    def __init__(self, answer: object, place: str = "") -> None:
        self._place = place
        if not isinstance(answer, dict):
            raise Nonsense(f"{place or 'it'}: expected an object, found {shown(answer)}")
        self._fields = answer

    def _fail(self, name: str, expected: str) -> Nonsense:
        found = f"found {shown(self._fields[name])}" if name in self._fields else "found none"
        return Nonsense(f"{self._path(name)}: expected {expected}, {found}")

    def _path(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def text(self, name: str, default: str | None = None, most: int = MAX_LINE) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str) or len(value) > most or not is_text(value):
            raise self._fail(name, "text")
        return value

    def flag(self, name: str) -> bool:
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._fail(name, "true or false")
        return value

    def whole(self, name: str, least: int = 0, most: int = MOST_BYTES, default: int | None = None) -> int:
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._fail(name, f"a whole number from {least}")
        return value

    def number(self, name: str, least: float, most: float) -> float:
        value = self._fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self._fail(name, "a number")
        return float(value)

    def items(self, name: str, most: int, read: Callable[["Reader"], T]) -> tuple[T, ...]:
        """Read a list; each item is the field "item" of a reader."""
        value = self._fields.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._fail(name, f"a list of at most {most}")
        return tuple(read(Reader({"item": item}, self._path(name))) for item in value)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        return self.items(name, most, lambda reader: reader.text("item"))

    def wholes(self, name: str, count: int, least: int = 0) -> tuple[int, ...]:
        return tuple(one.whole("item", least) for one in self.fixed(name, count))

    def fixed(self, name: str, count: int) -> tuple["Reader", ...]:
        """Return readers of a list of `count` items, each the field "item"."""
        found = self.items(name, count, lambda reader: reader)
        if len(found) != count:
            raise self._fail(name, f"{count} items")
        return found

    def part(self, name: str) -> "Reader":
        """Return a reader of a field that is an object."""
        if not isinstance(self._fields.get(name), dict):
            raise self._fail(name, "an object")
        return Reader(self._fields[name], self._path(name))

    def names(self) -> list[str]:
        """Return the names of all fields."""
        return list(self._fields)

    def has(self, name: str) -> bool:
        return name in self._fields

    def has_value(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, as the driver names it."""

    name: str
    uuid: str
    memory: int  # bytes

    @classmethod
    def read(cls, answer: Reader) -> Self:
        return cls(answer.text("name", ""), answer.text("uuid", ""), answer.whole("memory", default=0))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of HELLO, and of a checkup.

    Attributes:
        device_kind: "gpu", "xpu", ... or "cpu" where there are no devices.
        devices: those that work, in the driver's order.
        lost_devices: (index, reason) of those that don't; the driver's numbering counts them, too.
        device_problem: why devices that are there can't be used, "" for nothing.
        is_device_doubtful: the problem may be that there are no devices.
        interfaces: (interface, address) pairs.
        ssh_address: where sshd was reached, as the host sees it, "" without SSH.
        netid: the same for all who share a network stack.
        env: variables of the host's own environment that a contract minds.
        accelerator_nodes: device files of accelerators that `devices` does not count.
        root: folder for runs, "" where none can be written and `root_problem` says why; only runs ask for it. With a
            folder `root_problem` tells of better ones that are somebody else's.
    """

    python: str
    python_version: tuple[int, ...]
    cpus: int
    device_kind: str
    devices: tuple[Device, ...]
    device_problem: str
    interfaces: tuple[tuple[str, str], ...]
    ssh_address: str
    hostname: str
    netid: str
    user: int
    home: str
    pid: int
    monotonic: float
    time: float
    env: tuple[tuple[str, str], ...]
    root: str = ""
    root_problem: str = ""
    lost_devices: tuple[tuple[int, str], ...] = ()
    is_device_doubtful: bool = False
    accelerator_nodes: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: object) -> Self:
        """Raises Nonsense."""
        reader = Reader(answer)
        env = reader.part("env")
        names = env.names()
        if len(names) > MOST_VARIABLES or not all(name.isidentifier() for name in names):
            raise Nonsense(f"env: expected names of variables, found {shown(names)}")
        return cls(
            python=reader.text("python"),
            python_version=reader.wholes("python_version", 3),
            cpus=reader.whole("cpus", 1, MOST_CPUS),
            device_kind=_kind(reader),
            devices=reader.items("devices", MOST_DEVICES, lambda one: Device.read(one.part("item"))),
            device_problem=reader.text("device_problem"),
            interfaces=reader.items("interfaces", MOST_INTERFACES, _interface),
            ssh_address=reader.text("ssh_address"),
            hostname=reader.text("hostname"),
            netid=reader.text("netid"),
            user=reader.whole("user", 0, MOST_USERS),
            home=reader.text("home"),
            pid=reader.whole("pid"),
            monotonic=reader.number("monotonic", -MAX_SECONDS, MAX_SECONDS),
            time=reader.number("time", 0, MAX_TIME),
            env=tuple((name, env.text(name)) for name in names),
            root=reader.text("root", ""),
            root_problem=reader.text("root_problem", ""),
            lost_devices=_lost(reader),
            is_device_doubtful=reader.has("is_device_doubtful") and reader.flag("is_device_doubtful"),
            accelerator_nodes=reader.texts("accelerator_nodes", 8) if reader.has("accelerator_nodes") else (),
        )

    @property
    def working_devices(self) -> tuple[int, ...]:
        """Return the numbers of `devices` in the driver's numbering."""
        lost = {index for index, _ in self.lost_devices}
        return tuple(index for index in range(len(self.devices) + len(lost)) if index not in lost)

    def variable(self, name: str) -> str | None:
        """Return a variable of the host's own environment, if it is set and the agent reports it."""
        return dict(self.env).get(name)

    def describe(self) -> dict[str, Any]:
        """Return JSON-able values under the agent's names."""
        described = {**_plain(asdict(self)), "env": dict(self.env)}
        rare = ("lost_devices", "is_device_doubtful", "accelerator_nodes")
        return {name: value for name, value in described.items() if value or name not in rare}


def _kind(reader: Reader) -> str:
    kind = reader.text("device_kind")
    if not kind.isidentifier() or len(kind) > 32:  # it becomes a part of variables' names
        raise Nonsense(f"device_kind: expected a word such as gpu, found {shown(kind)}")
    return kind


def _lost(reader: Reader) -> tuple[tuple[int, str], ...]:
    if not reader.has("lost_devices"):
        return ()

    def pair(one: Reader) -> tuple[int, str]:
        index, reason = one.fixed("item", 2)
        return index.whole("item", 0, MOST_DEVICES - 1), reason.text("item")

    found = reader.items("lost_devices", MOST_DEVICES, pair)
    count = len(reader.items("devices", MOST_DEVICES, lambda one: one)) + len(found)
    if len({index for index, _ in found}) != len(found) or any(index >= count for index, _ in found):
        raise Nonsense(f"lost_devices: expected each once, below {count}, found {[index for index, _ in found][:8]}")
    return found


def _interface(reader: Reader) -> tuple[str, str]:
    name, address = (one.text("item") for one in reader.fixed("item", 2))
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise Nonsense(f"interfaces: expected an IP address, found {shown(address)}") from None
    return name, address


def _plain(value: Any) -> Any:
    """Return a value with lists for tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


# -- what only a checkup looks at


@dataclass(frozen=True, slots=True)
class Cache:
    """Where the agent is kept ("" for nowhere), and whether it was there already."""

    was_here: bool
    place: str
    preferred: str
    is_writable: bool


@dataclass(frozen=True, slots=True)
class Runs:
    """Where runs are kept ("" for nowhere), and what is free there; `free_files` is -1 where nobody knows."""

    place: str
    preferred: str
    problem: str
    free: int = 0
    total: int = 0
    free_files: int = -1


@dataclass(frozen=True, slots=True)
class Logind:
    """Whether logind ends what a user leaves running, and which file and line say so."""

    kills: bool
    place: str
    user: str


@dataclass(frozen=True, slots=True)
class OwnName:
    """What the host's own name resolves to."""

    name: str
    addresses: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class CheckupFacts:
    """The facts of a checkup that HostFacts does not have.

    Attributes:
        memory, available: bytes, None where the system does not tell.
        nofile, memlock: soft and hard limits, -1 for none.
        rehearsal: what kept a run from being made there when that was tried: "folder", "processes", "ports", and why.
    """

    cache: Cache
    runs: Runs
    memory: int | None
    available: int | None
    usable_cpus: float
    nofile: tuple[int, ...]
    memlock: tuple[int, ...]
    rdma: tuple[str, ...]
    logind: Logind
    own_name: OwnName
    rehearsal: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, answer: object) -> Self:
        """Raises Nonsense."""
        reader = Reader(answer)
        cache, runs, memory = reader.part("cache"), reader.part("runs"), reader.part("memory")
        limits, logind, own_name = reader.part("limits"), reader.part("logind"), reader.part("own_name")
        place = runs.text("place")
        free = {name: runs.whole(name) for name in ("free", "total")} if place else {}
        return cls(
            cache=Cache(
                cache.flag("was_here"), cache.text("place"), cache.text("preferred"), cache.flag("is_writable")
            ),
            runs=Runs(
                place, runs.text("preferred"), runs.text("problem"), **free,
                free_files=runs.whole("free_files", -1) if place else -1,
            ),
            memory=memory.whole("total") if memory.has("total") else None,
            available=memory.whole("available") if memory.has("available") else None,
            usable_cpus=reader.number("usable_cpus", 0, MOST_CPUS),
            nofile=limits.wholes("nofile", 2, -1),
            memlock=limits.wholes("memlock", 2, -1),
            rdma=reader.texts("rdma", MOST_DEVICES),
            logind=Logind(logind.flag("kills"), logind.text("place"), logind.text("user")),
            own_name=OwnName(own_name.text("name"), own_name.texts("addresses", 64), own_name.text("problem")),
            rehearsal=_rehearsal(reader.part("rehearsal")) if reader.has_value("rehearsal") else (),
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Return JSON-able values under the agent's names."""
        runs = asdict(self.runs)
        memory = {"total": self.memory, "available": self.available}
        return {
            "cache": asdict(self.cache),
            "runs": runs if self.runs.place else {name: runs[name] for name in ("place", "preferred", "problem")},
            "memory": {name: count for name, count in memory.items() if count is not None},
            "usable_cpus": self.usable_cpus,
            "limits": {"nofile": list(self.nofile), "memlock": list(self.memlock)},
            "rdma": list(self.rdma),
            "logind": asdict(self.logind),
            "own_name": _plain(asdict(self.own_name)),
            "rehearsal": dict(self.rehearsal),
        }


REHEARSED = ("folder", "processes", "ports")


def _rehearsal(answer: Reader) -> tuple[tuple[str, str], ...]:
    return tuple((name, answer.text(name)) for name in REHEARSED if answer.has_value(name))
