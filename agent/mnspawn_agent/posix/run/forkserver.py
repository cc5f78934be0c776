"""One interpreter per pod that imports what the workers need and becomes all of them. Starts it, never waits for it.

The server is `worker_main.py fork`. Its stdin is an unlinked file: first our requests (one JSON line), then, appended
by the server, a line "rank pid" for each worker that it made. It makes them by forking twice, so that the agent, the
nearest subreaper, adopts and reaps them, and then ends. Only then is the file read: no pipe can fill up.
"""

import json
import os
from typing import Any, Dict, List, Tuple

from ...protocol.exits import from_wait_status, signal_name
from ..streams import write_all
from . import spawner

ARGUMENT = "fork"  # of worker_main.py


class ForkServer:
    """The server of one pod. `pid` is 0 until it was started."""

    def __init__(self, folder: str) -> None:
        self.pid = 0
        self._folder = folder
        self._workers: List[Dict[str, Any]] = []
        self._fd = -1
        self._answers_at = 0
        self._ended: Dict[int, int] = {}

    def add(self, rank: int, env: Dict[str, str], paths: List[str]) -> None:
        """A worker to be made: what differs in its environment, and its stdout and stderr."""
        self._workers.append({"rank": rank, "env": env, "stdout": paths[0], "stderr": paths[1]})

    def start(self, argv: List[str], env: Dict[str, str], workdir: str, stdout: int, stderr: int) -> None:
        """Start it; argv ends in ARGUMENT. Raises OSError, spawner.SpawnError."""
        requests = json.dumps({"parent": os.getpid(), "workers": self._workers}).encode("ascii") + b"\n"
        path = os.path.join(self._folder, ".fork-%s" % os.urandom(6).hex())
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        write_all(self._fd, requests)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._answers_at = len(requests)
        self.pid = spawner.spawn(argv, env, workdir, stdout, stderr, self._fd)

    def take(self, ended: Dict[int, int]) -> bool:
        """Keep the ends of children, which may be ranks whose pids are not known yet; True once the server ended."""
        self._ended.update(ended)
        return self.pid in self._ended

    def collect(self) -> Tuple[List[Tuple[int, int]], str, Dict[int, int]]:
        """After its end: (rank, pid) of every worker that it made, how it ended, and the kept ends."""
        code = from_wait_status(self._ended.pop(self.pid))
        answers = os.pread(self._fd, os.fstat(self._fd).st_size, self._answers_at).decode("ascii", "replace")
        self.close()
        made = []
        for line in answers.splitlines():
            rank, _, pid = line.partition(" ")
            if rank.isdigit() and pid.isdigit():
                made.append((int(rank), int(pid)))
        return made, signal_name(code) or "status %d" % code, self._ended

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
