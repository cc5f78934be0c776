"""Checks a plan against this host and holds what it needs: everything that can fail, before anything starts."""

import hashlib
import os
import shutil
import sys
from typing import Any, Dict, List, Optional

from . import ports, rundir

Message = Dict[str, Any]


class Preparation:
    """What PREPARE asked for and what came of it. `reasons` is not empty when the host refuses."""

    def __init__(self, message: Message, root: str) -> None:
        self.message = message
        self.run: str = message["run"]
        self.node_rank: int = message["node_rank"]
        self.ranks: List[int] = message["ranks"]
        self.reasons: List[str] = []
        self.held = ports.HeldPorts()
        self.ports: List[int] = []
        self.extra_ports: List[int] = []
        self.folder = rundir.RunDir(root, self.run, self.node_rank)
        self.workdir = self._find_workdir()
        self.python = self._find_python()
        self.script: Optional[str] = None
        self.needs_blob = False
        self._find_command()
        self._find_script()
        self._hold_ports()

    def _find_workdir(self) -> str:
        wanted = os.path.expanduser(self.message["workdir"])
        home = os.path.expanduser("~")
        if os.path.isdir(wanted) and os.access(wanted, os.X_OK):
            return wanted
        if self.message["is_workdir_required"]:
            self.reasons.append("no folder %s to work in" % wanted)
        return home if os.path.isdir(home) and os.access(home, os.X_OK) else "/"

    def _find_python(self) -> str:
        wanted: Optional[str] = self.message["python"]
        if wanted is None:
            return sys.executable or "python3"
        path = os.path.expanduser(wanted)
        path = os.path.join(self.workdir, path) if "/" in path else path
        found = shutil.which(path)
        if found is None:
            self.reasons.append("no Python at %s" % wanted)
        return found or str(path)

    def _find_command(self) -> None:
        command = self.message["command"]
        if command is not None:
            path = os.path.join(self.workdir, command) if "/" in command else command
            if shutil.which(path) is None:
                self.reasons.append("no command %s" % command)

    def _find_script(self) -> None:
        """The script where the controller has it when its content is the same, else a copy in the run folder."""
        script = self.message["script"]
        if script is None:
            return
        if not script["digest"]:  # the controller doesn't have it: it must be here
            path = os.path.expanduser(script["path"])
            self.script = path
            if not os.path.isfile(path):
                self.reasons.append("no script %s" % script["path"])
        elif digest_of(script["path"], script["size"]) == script["digest"]:
            self.script = script["path"]
        else:
            self.script = self.folder.join(os.path.join("code", script["name"]))
            self.needs_blob = True

    def store_script(self, content: bytes) -> None:
        """Take the script that came as a blob."""
        script = self.message["script"]
        if hashlib.sha256(content).hexdigest() != script["digest"]:
            self.reasons.append("script %s came damaged" % script["name"])
            return
        try:
            rundir.make_private(self.folder.join("code"))
            self.folder.write(os.path.join("code", script["name"]), content)
        except OSError as error:
            self.reasons.append("script %s can't be stored: %s" % (script["name"], error.strerror or error))
        self.needs_blob = False

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


def digest_of(path: str, size: int) -> str:
    """sha256 of a file of that size; "" when there is none."""
    try:
        if os.path.getsize(path) != size:
            return ""
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
