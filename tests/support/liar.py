"""A host in memory whose agent says whatever a test wants it to: to see what becomes of the other hosts."""

import re
import time
from collections.abc import Callable
from typing import Any

from mnspawn_agent.posix.host import facts
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Lost, Received
from tests.support.memory_transport import MemoryHost, Stdio
from tests.support.waiting import wait_until_async

Lie = Callable[[Channel], object]


class Liar:
    """An agent that goes along up to one message of the controller's, and then tells its lie instead of the answer.

    Args:
        after: "connect", or the type of the message.
        lie: says what it wants to, or returns bytes to put on the wire as they are.
        reaped: what the host says when it is asked to end what is left.
        mode: of the agent that lies.
        reaps_after: what has to be so before it ends what is left.
        attached: what is found on every new wire to it; None where it has gone when its wire breaks.
    """

    def __init__(
        self,
        after: str,
        lie: Lie,
        reaped: bytes = b"left \n",
        mode: str = "serve",
        attached: bytes | None = None,
        reaps_after: Callable[[], object] | None = None,
    ) -> None:
        self._after = after
        self._lie = lie
        self._reaped = reaped
        self._reaps_after = reaps_after
        self._mode = mode
        self._attached = attached
        self._ranks: list[int] = []
        self.heard: list[str] = []  # messages of the controller's
        self.modes: list[str] = []  # in which agents were started
        self._channel = Channel(time.monotonic())
        self._raw = b""

    @property
    def host(self) -> MemoryHost:
        return MemoryHost(self._talk)

    async def _talk(self, stdio: Stdio, command: str) -> int:
        found = re.search(r" '([0-9a-f]{16})' '[0-9a-f]{64}' '\d+' '[^']+' '(\w+)'", command)
        assert found is not None
        self.modes.append(found[2])
        await stdio.stdout.write(b"\nMNSPAWN %s have\n" % found[1].encode())
        if found[2] == "reap":
            if self._reaps_after is not None:
                await wait_until_async(self._reaps_after)
            await stdio.stdout.write(self._reaped)
            return 0
        if found[2] == "attach" and self._attached is not None:
            await stdio.stdout.write(b"here\n" + self._attached)
            while await stdio.stdin.read():
                pass
            return 0
        if found[2] != self._mode:
            await stdio.stdout.write(b"gone\n")
            return 1
        self._answer("connect", {})
        while True:
            if chunk := self._channel.data_to_send(time.monotonic()) + self._raw:
                await stdio.stdout.write(chunk)
            self._raw = b""
            heard = await stdio.stdin.read()
            self._channel.receive(heard, time.monotonic())
            for event in self._channel.events():
                if isinstance(event, Received):
                    self.heard.append(event.message["type"])
                    self._answer(event.message["type"], event.message)
                    if event.message["type"] == messages.FINISH:
                        return 0
                elif isinstance(event, Lost):
                    return 0

    def _answer(self, heard: str, message: dict[str, Any]) -> None:
        if heard == self._after:
            raw = self._lie(self._channel)
            self._raw = raw if isinstance(raw, bytes) else b""
        elif heard == "connect":
            self._channel.send(hello())
        elif heard == messages.PREPARE:
            self._channel.send(prepared(message))
        elif heard == messages.START:
            self._ranks = [worker["rank"] for worker in message["workers"]]
            for rank in self._ranks:
                self._channel.send(started(rank))
        elif heard == messages.STOP:
            for rank in self._ranks:
                self._channel.send(exited(rank, code=-15, stopped=True))
            self._ranks = []
            done = {"leftovers": [], "swept": 0, "sizes": [], "at": time.monotonic()}
            self._channel.send({"type": messages.DONE, **done})


def hello(**changed: Any) -> dict[str, Any]:
    """HELLO of an honest agent on this machine, with some facts changed."""
    own = {**facts.collect(), "root": "/tmp/liar", "root_problem": "", **changed}
    return {"type": messages.HELLO, "protocol": 1, "version": "x", "facts": own, "cached": True}


def prepared(asked: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The answer of an honest agent to PREPARE, with some fields changed."""
    said = {
        "type": messages.PREPARED, "ports": list(range(7001, 7001 + len(asked["ranks"]))),
        "extra_ports": [7500, 7501][: asked["extra_ports"]], "run_dir": "/tmp/liar/r", "workdir": "/",
        "python": "/usr/bin/python3", "files": ["/x"] * len(asked["files"]), "reach": [], "at": time.monotonic(),
    }  # fmt: skip
    return {**said, **changed}


def started(rank: int, **changed: Any) -> dict[str, Any]:
    return {"type": messages.STARTED, "rank": rank, "pid": 42, "at": time.monotonic(), **changed}


def exited(rank: int, **changed: Any) -> dict[str, Any]:
    said = {
        "type": messages.EXITED, "rank": rank, "pid": 42, "code": 0, "at": time.monotonic(), "seconds": 1.0,
        "stopped": False, "killed": False, "outlived_term": False, "is_disk_full": False, "sizes": [], "tail": [],
        "raised": None,
    }  # fmt: skip
    return {**said, **changed}
