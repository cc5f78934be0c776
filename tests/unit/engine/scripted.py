"""Agents that exist in memory only and do what they are told, or what a test wants: for tests of the whole drive."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from mnspawn.engine.request import Listener, RunRequest
from mnspawn.engine.run.drive import Drive
from mnspawn.events import Event
from mnspawn.plan.launch_plan import Program
from mnspawn.transport.inbox import Inbox
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Received
from mnspawn_agent.protocol.version import PROTOCOL
from mnspawn_inventory import Host

DEADLINE = 30.0


class ScriptedAgent:
    """A RemoteProcess: an agent of one rank, which ends when it is told to stop.

    Args:
        number: of its host, from 0; its rank is the same.
        silent: kinds of messages that it takes and never acts on; HELLO: it says none.
    """

    def __init__(self, number: int, silent: Sequence[str] = ()) -> None:
        self.number = number
        self.heard: list[dict[str, Any]] = []
        self._silent = silent
        self._channel = Channel(time.monotonic())
        self._out = Inbox(lambda: None, lambda: None)
        self._over = asyncio.Event()
        self._beat = asyncio.get_running_loop().create_task(self._keep_beating())
        address = f"10.0.0.{number + 1}"
        facts = {
            "root": "/state", "interfaces": [["eth0", address]], "netid": f"net{number}", "cpus": 4, "env": {},
            "python": "/usr/bin/python3", "python_version": [3, 11, 2], "device_kind": "cpu", "devices": [],
            "device_problem": "", "ssh_address": address, "hostname": f"h{number}", "user": 0, "home": "/root",
            "pid": 7, "monotonic": 1.0, "time": 1.0, "root_problem": "",
        }  # fmt: skip
        if messages.HELLO in silent:
            self._channel.beat()
            self._flush()
        else:
            self.say(messages.HELLO, protocol=PROTOCOL, version="0", facts=facts, cached=True)

    @property
    def kinds(self) -> list[str]:
        return [message["type"] for message in self.heard]

    def say(self, kind: str, **fields: Any) -> None:
        self._channel.send(messages.make(kind, **fields))
        self._flush()

    def end_rank(self, code: int, stopped: bool = False) -> None:
        self.say(
            messages.EXITED, rank=self.number, pid=40 + self.number, code=code, at=time.monotonic(), seconds=1.0,
            stopped=stopped, killed=False, outlived_term=False, is_disk_full=False, sizes=[], tail=[],
            raised=None,
        )  # fmt: skip

    def write_out(self, chunk: bytes, offset: int = 0) -> None:
        """Its rank's stdout."""
        self._channel.send_output(self.number, 1, offset, chunk, time.time())
        self._flush()

    def prove(self, sizes: Sequence[Sequence[int]] = ()) -> None:
        self.say(messages.DONE, leftovers=[], swept=0, sizes=list(sizes), at=time.monotonic())

    def _obey(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        self.heard.append(message)
        if kind in self._silent:
            return
        if kind == messages.PREPARE:
            extra_ports = [29500, 29501][: message["extra_ports"]]
            self.say(
                messages.PREPARED, ports=[6070], extra_ports=extra_ports, run_dir="/state/r", workdir="/",
                python="/usr/bin/python3", files=[], reach=[], at=time.monotonic(),
            )  # fmt: skip
        elif kind == messages.START:
            self.say(messages.STARTED, rank=self.number, pid=40 + self.number, at=time.monotonic())
        elif kind == messages.STOP:
            self.end_rank(-15, stopped=True)
            self.prove()
        elif kind == messages.FINISH:
            self._out.end()

    def _flush(self) -> None:
        self._out.put(self._channel.data_to_send(time.monotonic()))

    async def _keep_beating(self) -> None:
        while not self._over.is_set():
            self._channel.on_time(time.monotonic())
            self._flush()
            await asyncio.sleep(0.1)

    # -- a RemoteProcess
    async def read(self) -> bytes:
        return await self._out.get()

    async def read_diagnostics(self) -> bytes:
        await self._over.wait()
        return b""

    async def write(self, chunk: bytes) -> None:
        self._channel.receive(chunk, time.monotonic())
        for event in self._channel.events():
            if isinstance(event, Received):
                self._obey(event.message)
        self._flush()

    async def write_eof(self) -> None:
        self._out.end()

    async def wait(self) -> int | None:
        await self._over.wait()
        return 0

    async def close(self) -> None:
        self._over.set()
        self._out.end()
        self._beat.cancel()


class Witness:
    """A Listener that remembers, and calls `on` with every event."""

    backlog = 0

    def __init__(self, on: Callable[[Event], None] = lambda event: None) -> None:
        self.events: list[Event] = []
        self._on = on
        self.wake: Callable[[], None] = lambda: None

    def bind(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        self._on(event)

    async def aclose(self) -> None:
        pass


def drive(agents: Sequence[ScriptedAgent], *listeners: Listener, control: Any = None, **options: Any) -> Drive:
    """A run of one rank on each of these agents' hosts, h0, h1, ..."""
    waiting = iter(agents)
    fields = {
        "program": Program("command", "train", ()),
        "hosts": tuple(Host(name=f"h{number}") for number in range(len(agents))),
        "nproc": 1,
        "contracts": (),
        "transport": "local",
        "agent": lambda: next(waiting),
        "grace": 0.2,
        **options,
    }
    return Drive(RunRequest(**fields), listeners, is_dry=False, control=control)


async def ended(run: Drive) -> Any:
    """What a run ends in."""
    async with asyncio.timeout(DEADLINE):
        return await run.execute()
