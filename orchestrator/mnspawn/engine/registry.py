"""Remembers the runs that were started here: how to reach them, which process is in charge, how they ended.

One folder a run below `$XDG_STATE_HOME/mnspawn/known`. Nothing here is needed to find a run from its hosts.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mnspawn.core.pods import Pod
from mnspawn.errors import UsageError
from mnspawn.plan.layout import ranks_of
from mnspawn.report import RunReport, known_fields
from mnspawn.transport.base import SshOptions
from mnspawn_agent import ours
from mnspawn_inventory import Host

KEEP = 200  # finished runs; the hosts keep their own folders by age and size
UNBORN = 3600.0  # seconds after which a folder without a run is what a killed controller has left
RUN_FILE, REPORT_FILE = "run.json", "report.json"
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST_FIELDS = {f.name for f in fields(Host)} - {
    "env",
    "secrets",
    "origins",
    "labels",
    "groups",
    "problem",
}  # what reaching needs


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run and the way to its hosts.

    Attributes:
        hosts: in the order of their node ranks.
        world: the number of workers of each host.
        began: wall-clock seconds since the epoch.
        grace: seconds between TERM and KILL.
    """

    run: str
    hosts: tuple[Host, ...]
    world: tuple[int, ...]
    name: str | None = None
    program: Mapping[str, Any] = field(default_factory=dict)
    began: float = 0.0
    grace: float = 10.0
    python: str | None = None
    transport: str = "asyncssh"
    ssh: SshOptions = field(default_factory=SshOptions)

    @property
    def ranks(self) -> list[range]:
        """The ranks of each host."""
        return ranks_of(self.world)

    @property
    def command_line(self) -> str:
        """Return what runs, for people."""
        words = [str(self.program.get("target", "?")), *map(str, self.program.get("args", ()))]
        return " ".join(words)


class Registry:
    """The folder of known runs.

    Args:
        root: usually `default_root(os.environ)`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, run: str) -> Path:
        return self.root / run

    def _make(self, run: str) -> Path:
        return Path(ours.make(str(self.root.parent), self.root.name, run))

    def _secure(self, *run: str) -> Path:
        """Return the folder of a run, or of all; raises OSError when it is missing or others may have written in it."""
        return Path(ours.secure(str(self.root.parent), self.root.name, *run))

    def remember(self, known: KnownRun) -> None:
        """Write a run down; raises OSError."""
        folder = self._make(known.run)
        host_fields = [{name: getattr(host, name) for name in _HOST_FIELDS} for host in known.hosts]
        content = {f.name: getattr(known, f.name) for f in fields(known)}
        _write(folder / RUN_FILE, content | {"hosts": host_fields, "ssh": asdict(known.ssh)})
        with contextlib.suppress(OSError):  # its order among the others, nothing more
            os.utime(folder / RUN_FILE, (known.began, known.began))

    def read(self, run: str) -> KnownRun:
        """Return a run; what a newer version wrote down besides is ignored.

        Raises:
            OSError, ValueError: it is not there, or half written.
        """
        content = (self._secure(run) / RUN_FILE).read_bytes()
        try:
            known = self._read(json.loads(content))
        except (TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise ValueError(f"{run}: no record of a run") from exc
        if known.run != run or not RUN_ID.fullmatch(run):
            raise ValueError(f"{run}: the record of another run")
        return known

    def _read(self, content: dict[str, Any]) -> KnownRun:
        hosts = tuple(
            Host(**{name: raw[name] for name in _HOST_FIELDS if name in raw} | {"devices": _tuple(raw.get("devices"))})
            for raw in content["hosts"]
        )
        ssh = known_fields(SshOptions, content["ssh"])
        options = SshOptions(**ssh | {"config": Path(ssh["config"]) if ssh["config"] else None})
        found = known_fields(KnownRun, content)
        return KnownRun(**found | {"hosts": hosts, "world": tuple(content["world"]), "ssh": options})

    def knows(self, run: str) -> bool:
        """Whether a run was remembered under this id."""
        return (self.folder(run) / RUN_FILE).exists()

    def ids(self) -> list[str]:
        """Return the ids of the runs, newest first, without reading any.

        Raises:
            UsageError: others may have written in the folder.
        """
        try:
            return self._in_order()
        except ours.NotOurs as exc:
            hint = "remove it, or make it this account's own (chown, chmod 700)"
            raise UsageError(f"{exc.strerror}: what it says of runs can't be trusted", hint=hint) from exc

    def known(self, runs: Iterable[str] | None = None) -> Iterator[KnownRun]:
        """Yield those of `ids`, or of the runs given, that can be read; each is read when it is needed.

        Raises:
            UsageError: as `ids`.
        """
        for run in self.ids() if runs is None else runs:
            with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or half written
                yield self.read(run)

    def _in_order(self) -> list[str]:
        """Return the ids of the runs, newest first, by names and times of files alone; raises NotOurs."""
        found = []
        for name in self._names():
            with contextlib.suppress(OSError):  # removed meanwhile, or not yet written
                found.append((os.stat(self.root / name / RUN_FILE).st_mtime, name))
        return [name for _, name in sorted(found, reverse=True)]

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._secure())
        except FileNotFoundError:
            return []  # nothing was remembered yet

    def find(self, word: str) -> KnownRun:
        """Return the run that `word` means: its id, the beginning of its id, or its name (the newest of that name).

        Raises:
            UsageError: none, or several.
        """
        hint = "mnspawn ps lists them; for a run started elsewhere, name its hosts with --hosts"
        if RUN_ID.fullmatch(word):
            with contextlib.suppress(OSError, ValueError):  # it is something else than an id
                return self.read(word)
        return pick(list(self.known()), word, "a run known here", hint)

    # -- which process is in charge of a run -----------------------------------------------------------------------
    @contextlib.contextmanager
    def hold(self, run: str) -> Iterator[bool]:
        """Take charge of a run while the context lasts; False when another process on this machine has."""
        folder = self._make(run)
        fd = os.open(folder / "tender", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            os.truncate(fd, 0)
            os.write(fd, str(os.getpid()).encode("ascii"))
            yield True
        finally:
            os.close(fd)

    def holder(self, run: str) -> int | None:
        """Return the pid of the controller or keeper that is in charge of a run; None when none is."""
        try:
            fd = os.open(self._secure(run) / "tender", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(fd, 32, 0)
            return int(text) if text.isdigit() else None
        finally:
            os.close(fd)
        return None

    # -- how it ended ----------------------------------------------------------------------------------------------
    def write_report(self, run: str, report: Mapping[str, Any]) -> None:
        """Raises OSError."""
        _write(self.folder(run) / REPORT_FILE, report)

    def has_ended(self, run: str) -> bool:
        """Whether this machine has seen the end of a run."""
        return (self.folder(run) / REPORT_FILE).exists()

    def report(self, run: str) -> dict[str, Any] | None:
        """Return the report of a run that has ended, as far as this machine saw it."""
        try:
            content = json.loads((self._secure(run) / REPORT_FILE).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def add_news(self, run: str, later: RunReport) -> None:
        """Add what was seen later of hosts that were lost when the run ended; raises OSError."""
        content = self.report(run)
        with contextlib.suppress(TypeError, KeyError, ValueError):  # written by another version
            before = None if content is None else RunReport.read(content)
            if before is not None and not all(host.is_confirmed for host in before.hosts):
                self.write_report(run, before.with_news(later).describe())

    def forget(self, run: str) -> None:
        with contextlib.suppress(OSError):  # it is not there, or not ours
            shutil.rmtree(self._secure(run), ignore_errors=True)

    def forget_unborn(self, run: str) -> None:
        """Remove the folder of a run that could not be remembered."""
        if not self.knows(run):
            self.forget(run)

    def prune(self) -> None:
        """Remove the oldest runs beyond KEEP, and what controllers that were killed have left; reads no run.

        Never a run that a process is in charge of, nor a folder that may just be being made.
        """
        try:
            runs = self._in_order()
        except OSError:
            return  # it can't be read, or is not ours alone: whoever uses it is told
        for run in [*runs[KEEP:], *self._unborn(set(runs))]:
            if self.holder(run) is None:
                self.forget(run)

    def _unborn(self, runs: set[str]) -> Iterator[str]:
        for name in self._names():
            if name not in runs and RUN_ID.fullmatch(name):
                with contextlib.suppress(OSError):  # removed meanwhile
                    if time.time() - os.lstat(self.root / name).st_mtime > UNBORN:
                        yield name


def pick(runs: Sequence[KnownRun], word: str, expected: str, hint: str) -> KnownRun:
    """Return the run that `word` means: its id, the beginning of its id, or its name (the first of that name).

    Raises:
        UsageError: none, or several.
    """
    exact = [known for known in runs if known.run == word]
    named = [known for known in runs if known.name == word]
    begun = [known for known in runs if known.run.startswith(word)] if RUN_ID.fullmatch(word) else []
    if exact or named:
        return (exact or named)[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        listed = ", ".join(known.run for known in begun[:5])
        raise UsageError(f"expected the beginning of one run's id, found {word!r}, which fits {listed}", place="RUN")
    raise UsageError(f"expected {expected}, found {word!r}", place="RUN", hint=hint)


def default_root(environ: Mapping[str, str]) -> Path:
    """Return where runs are remembered (XDG Base Directory Specification)."""
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    return base / "mnspawn" / "known"


def from_pods(pods: Sequence[Pod], hosts: Sequence[Host], ssh: SshOptions, transport: str) -> KnownRun:
    """Make a known run from its pods, for a controller that knows only the hosts.

    Args:
        pods: one of each host, in the order of the node ranks.
        hosts: the hosts that the pods are on.
    """
    first = pods[0]
    return KnownRun(
        run=first.run,
        hosts=tuple(hosts),
        world=first.world,
        name=first.name,
        program=first.program,
        began=first.began or time.time(),
        grace=first.grace,
        transport=transport,
        ssh=ssh,
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(f".tmp-{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w") as file:
            file.write(json.dumps(content, default=str))  # str: of paths
        os.replace(temporary, path)
    except OSError:  # a full disk: nothing of ours shall take up what is left of it
        temporary.unlink(missing_ok=True)
        raise


def _tuple(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)
