"""Checks a plan against this host and holds what it needs: everything that can fail, before anything starts."""

import hashlib
import os
import sys
import time
from typing import IO, Any, Callable, Dict, List, Optional, Set, Tuple

from ... import ours
from .. import native
from ..files import rundir
from . import limits, ports, prelude, programs, reaper

Message = Dict[str, Any]

SLOW = 3.0  # seconds; what takes longer is reported
BLOCK = 1 << 20


class Incoming:
    """A file on its way: written under a temporary name, named only when it is whole and right."""

    def __init__(self, path: str, size: int, digest: str) -> None:
        self.path = path
        self._size = size
        self._digest = digest
        self._hash = hashlib.sha256()
        self._count = 0
        self._file: Optional[IO[bytes]] = None

    def take(self, chunk: bytes) -> bool:
        """Append; True when the file is there. Raises OSError, ValueError (it came damaged)."""
        if self._file is None:
            ours.make(os.path.dirname(self.path))
            fd = os.open(self.path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._file = open(fd, "wb")
        self._file.write(chunk)
        self._hash.update(chunk)
        self._count += len(chunk)
        if self._count < self._size:
            return False
        self.close()
        if self._hash.hexdigest() != self._digest:
            raise ValueError("it came damaged")
        os.replace(self.path + ".part", self.path)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Preparation:
    """What PREPARE asked for and what came of it. `reasons` is not empty when the host refuses.

    Args:
        spare: pids that a sweep spares: the guardian's.
    """

    def __init__(self, message: Message, root: str, meanwhile: Callable[[], object], spare: Set[int]) -> None:
        texts = ("workdir", "python", "command", "files", "unset", "env", "prelude")
        named = {name: native.inward(message[name]) for name in texts}
        self.message = message = dict(message, **named)
        self.run: str = message["run"]
        self.node_rank: int = message["node_rank"]
        self.ranks: List[int] = message["ranks"]
        self.reasons: List[str] = []
        self.notices: List[str] = []  # what took long
        self._meanwhile = meanwhile
        self.held = ports.HeldPorts()
        self.ports: List[int] = []
        self.extra_ports: List[int] = []
        self.folder = rundir.RunDir(root, self.run, self.node_rank)
        self.workdir = self._find_workdir()
        self.environ = self._draft_environment()
        self.start_folder = self.workdir  # where programs begin: a prelude may go elsewhere
        self.python = sys.executable or "python3"
        self.files: List[str] = []
        self.missing: Dict[int, Incoming] = {}
        if self._run_prelude(spare):  # else the rest would be checked in the wrong environment
            self.python = self._find_python()
            self._find_command()
            problem = limits.problem_with(message["argument_bytes"], self.environ)
            if problem:
                self.reasons.append(problem)
        self._find_files()
        self._hold_ports()

    def _find_workdir(self) -> str:
        wanted: str = os.path.expanduser(self.message["workdir"])
        home = os.path.expanduser("~")
        if os.path.isdir(wanted) and os.access(wanted, os.X_OK):
            return wanted
        if self.message["is_workdir_required"]:
            self.reasons.append("no folder %s to work in" % wanted)
        return home if os.path.isdir(home) and os.access(home, os.X_OK) else "/"

    def _draft_environment(self) -> Dict[str, str]:
        """A worker's environment as far as it is known by now: ports and addresses may still change."""
        environ = without(os.environ, self.message["unset"])
        environ.update(self.message["env"])
        environ.update(reaper.tags_of(self.run, self.node_rank))
        return environ

    def _run_prelude(self, spare: Set[int]) -> bool:
        """See what the prelude leaves, if there is one; False when it failed."""
        lines: Optional[str] = self.message["prelude"]
        if lines is None:
            return True
        began = time.monotonic()

        def end_all() -> None:
            reaper.kill_all(self.run, self.node_rank, spare)

        try:
            left = prelude.rehearse(lines, self.environ, self.workdir, self._meanwhile, end_all)
        except prelude.PreludeFailed as error:
            self.reasons.append(str(error))
            return False
        self._note_slow("the prelude", time.monotonic() - began, "took %.1f s")
        self.environ = left.environ
        if os.path.realpath(self.workdir) != left.folder:
            self.start_folder = left.folder
        return True

    def command_of(self, argv: List[str], env: Dict[str, str]) -> Tuple[List[str], Dict[str, str], str]:
        """argv, environment and folder to execute so that a program finds what the prelude leaves."""
        lines: Optional[str] = self.message["prelude"]
        argv, env = (argv, env) if lines is None else prelude.wrap(lines, argv, env)
        return argv, env, self.workdir

    def _find_python(self) -> str:
        wanted: Optional[str] = self.message["python"]
        found: Optional[str] = sys.executable or "python3"
        if wanted is not None:
            found = programs.find(os.path.expanduser(wanted), self._path, self.start_folder)
            if found is None:
                self.reasons.append("no Python at %s%s" % (wanted, self._after_prelude()))
                return wanted
        elif self.message["prelude"] is not None:
            before = self._draft_environment()
            found = programs.of_environment(before, self.environ, self.start_folder, self._meanwhile)
        version = self.message["python_version"]
        began = time.monotonic()
        problem = programs.problem_with(str(found), version, self._meanwhile, self.environ) if version else None
        self._note_slow(str(found), time.monotonic() - began, "took %.1f s to start")
        if problem:
            self.reasons.append(problem)
        return str(found)

    @property
    def _path(self) -> str:
        return self.environ.get("PATH", os.defpath)

    def _after_prelude(self) -> str:
        return "" if self.message["prelude"] is None else " after the prelude"

    def _note_slow(self, what: str, seconds: float, text: str) -> None:
        if seconds >= SLOW:
            self.notices.append("%s %s" % (what, text % seconds))

    def _find_command(self) -> None:
        command = self.message["command"]
        if command is not None and programs.find(command, self._path, self.start_folder) is None:
            is_relative = "/" in command and not os.path.isabs(command)
            where = " in %s" % self.start_folder if is_relative else self._after_prelude()
            is_there = "/" in command and os.path.exists(os.path.join(self.start_folder, command))
            self.reasons.append(("%s%s can't be executed" if is_there else "no command %s%s") % (command, where))

    def _find_files(self) -> None:
        """Files where the controller has them when their content is the same, else copies in the run folder."""
        for file in self.message["files"]:
            path: Optional[str] = file["path"]
            if path is not None and not file["digest"]:  # the controller doesn't have it: it must be here
                path = os.path.expanduser(path)
                if not os.path.isfile(path):
                    self.reasons.append("no script %s" % file["path"])
                self.files.append(path)
            elif path is not None and digest_of(path, file["size"], self._meanwhile) == file["digest"]:
                self.files.append(path)
            else:
                target = self.folder.join(os.path.join("code", file["name"]))
                self.files.append(target)
                self.missing[file["blob"]] = Incoming(target, file["size"], file["digest"])

    def take_blob(self, blob: int, chunk: bytes) -> None:
        """A piece of a missing file; `missing` shrinks as they become whole."""
        incoming = self.missing.get(blob)
        if incoming is None:
            return
        try:
            if incoming.take(chunk):
                del self.missing[blob]
        except (OSError, ValueError) as error:
            self.reasons.append("%s can't be stored: %s" % (os.path.basename(incoming.path), error))
            incoming.close()
            del self.missing[blob]

    def _hold_ports(self) -> None:
        first = self.message["start_port"]
        try:
            if self.message["master_port"] is not None:
                self.extra_ports.append(self.held.hold_exactly(self.message["master_port"]))
            self.ports = self.held.hold_row(first or DEFAULT_START_PORT, len(self.ranks), first is not None)
            while len(self.extra_ports) < self.message["extra_ports"]:
                self.extra_ports.append(self.held.hold_free())
        except ports.PortTaken as error:
            self.reasons.append(str(error))
        except OSError as error:  # descriptors
            self.reasons.append("ports can't be held: %s" % (error.strerror or error))


DEFAULT_START_PORT = 6070  # Paddle's, on several nodes


def digest_of(path: str, size: int, meanwhile: Callable[[], object]) -> str:
    """sha256 of a file of that size; "" when there is none. `meanwhile` is called now and then."""
    digest = hashlib.sha256()
    try:
        if os.path.getsize(path) != size:
            return ""
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                digest.update(block)
                meanwhile()
    except OSError:
        return ""
    return digest.hexdigest()


def without(environ: "os._Environ[str]", unset: List[str]) -> Dict[str, str]:
    """The environment less the names, and PREFIX* less the names that begin so."""
    prefixes = tuple(name[:-1] for name in unset if name.endswith("*"))
    exact = set(unset)
    return {k: v for k, v in environ.items() if k not in exact and not (prefixes and k.startswith(prefixes))}
