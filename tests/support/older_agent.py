"""A run of version 0.1.0: its agent is checked in as an archive."""

import os
import select
import subprocess
from typing import Any

from mnspawn_agent.protocol import channel
from tests.support.controller import REPOSITORY
from tests.support.waiting import PATIENCE

AGENT = REPOSITORY / "tests" / "agent" / "samples" / "mnspawn_agent-0.1.0.zip"
ENTRY = "import sys; from mnspawn_agent.main import main; sys.exit(main(['serve'], '0.1.0', True))"
PROGRAM = 'trap "echo told; exit 9" TERM; trap "echo signalled" USR1; echo up; while :; do sleep 0.02; done'


class OlderAgent:
    """An agent of version 0.1.0 with a run of one rank, and a controller of that version, which speaks by hand.

    Arguments:
        process: `python -c ENTRY` with AGENT in its PYTHONPATH, unbuffered pipes as stdin and stdout.
        run: the id of its run, which is named old.
        host: the name of its host.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", run: str, host: str) -> None:
        self._process = process
        self._channel = channel.Channel(0.0)
        self._channel.grant(1 << 20)
        self.said: list[dict[str, Any]] = []
        self._send(
            "prepare", run=run, node_rank=0, ranks=[0], python=None, command="/bin/sh", files=[], has_results=False,
            workdir="/", is_workdir_required=False, start_port=None, master_port=None, extra_ports=0, probes=[],
            grace=60.0, orphan_grace=None, log_cap=None, python_version=None, stops_on_failure=True,
            about={"name": "old", "program": {"kind": "command", "target": "/bin/sh", "args": []}, "hosts": [host],
                   "world": [1]},
        )  # fmt: skip
        self._until("prepared")
        self._send(
            "start", unset=[], env={}, files=[], argv=["/bin/sh", "-c", PROGRAM], is_forked=False,
            trainers=[{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}}],
        )  # fmt: skip
        self.worker = int(self._until("started")["pid"])

    def _send(self, kind: str, **fields: Any) -> None:
        self._channel.send(dict(fields, type=kind))
        assert self._process.stdin is not None
        self._process.stdin.write(self._channel.data_to_send(0.0))

    def _until(self, kind: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        while not [message for message in self.said if message["type"] == kind]:
            assert select.select([self._process.stdout], [], [], PATIENCE)[0], self.said
            chunk = os.read(self._process.stdout.fileno(), 65536)
            assert chunk, self.said
            self._channel.receive(chunk, 0.0)
            self.said += [event.message for event in self._channel.events() if isinstance(event, channel.Received)]
        return next(message for message in self.said if message["type"] == kind)

    def leave(self) -> None:
        """The controller goes; the run goes on, since it has no orphan grace."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)
