"""Follows files on hosts, over as many connections as it takes: `mnspawn tail HOSTS:PATTERN`. No run is involved."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mnspawn import events as seen
from mnspawn.core import agent_events as agent
from mnspawn.core.message_check import Speaker
from mnspawn.engine.link import join
from mnspawn.engine.link.delivery import Delivery
from mnspawn.engine.link.feed import HOPELESS, Feed
from mnspawn.engine.link.sites import Reached, reach_hosts
from mnspawn.engine.request import Limits, Listener
from mnspawn.errors import HostError, HostsUnusable
from mnspawn.system import interrupts
from mnspawn.transport.base import Connection, SshOptions
from mnspawn_agent.protocol import messages
from mnspawn_inventory import Host

OnFile = Callable[[int, str, str], None]  # a number of ours, the host, the path


@dataclass(frozen=True, slots=True)
class Followed:
    """Files of one host."""

    host: Host
    patterns: tuple[str, ...]


class _FileHost(Feed):
    """One host.

    Attributes:
        was_reached: its files were followed once.
        numbers: of ours, by path.
        files: what the agent's numbers of this wire mean.
    """

    def __init__(
        self, reached: Reached, index: int, timeout: float, limits: Limits,
        on_events: Callable[["_FileHost", list[agent.SessionEvent]], None],
    ) -> None:  # fmt: skip
        super().__init__(reached, index, None, timeout, limits, partial(on_events, self))
        self.was_reached = False
        self.numbers: dict[str, int] = {}
        self.files: dict[int, agent.FileOpened] = {}

    def positions(self) -> list[list[object]]:
        """How far each file was read: path, inode, position."""
        offsets = self.session.offsets
        return [
            [file.path, file.inode, file.at + max(0, offsets.get((number, 1), 0) - file.offset)]
            for number, file in self.files.items()
        ]


class Tail:
    """Files of many hosts, until the user goes. Bytes are events: WorkerOutput with a file's number for a rank.

    Args:
        lines: of each file that is there, the last so many come first; None for all.
        on_file: called for each file before its first bytes.
    """

    def __init__(
        self,
        followed: Sequence[Followed],
        lines: int | None,
        listeners: Sequence[Listener],
        on_file: OnFile,
        *,
        transport: str,
        ssh: SshOptions,
    ) -> None:
        self._followed = followed
        self._lines = lines
        self._listeners = listeners
        self._on_file = on_file
        self._transport = transport
        self._ssh = ssh
        self._count = 0
        self._errors: dict[int, HostError] = {}

    async def execute(self) -> None:
        """Follow until a signal.

        Raises:
            UsageError: the transport is none.
            HostsUnusable: no host can be followed.
        """
        finished = asyncio.Event()
        delivery = Delivery(self._listeners)
        hosts = tuple(one.host for one in self._followed)
        with interrupts.handled(lambda number: finished.set(), lambda number: None, finished.set):
            async with reach_hosts(hosts, self._transport, self._ssh) as reached, asyncio.TaskGroup() as group:
                task = group.create_task(self._serve(reached, delivery), name="tail")
                left = group.create_task(finished.wait(), name="leave")
                await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
                task.cancel()
                left.cancel()
        if len(self._errors) == len(self._followed):
            raise HostsUnusable([self._errors[index] for index in sorted(self._errors)])

    async def _serve(self, reached: Reached, delivery: Delivery) -> None:
        async with asyncio.TaskGroup() as group:
            async for index, outcome in reached.dial(self._ssh.connect_timeout):
                host = _FileHost(reached, index, self._ssh.connect_timeout, Limits(), partial(self._deliver, delivery))
                group.create_task(self._serve_host(host, delivery, outcome), name=f"tail {index}")

    async def _serve_host(self, host: _FileHost, delivery: Delivery, first: Connection | HostError) -> None:
        """Follow one host; one that was never reached or makes no sense is given up, one that was lost never is."""

        async def attempt(outcome: Connection | HostError) -> bool:
            is_given_up = not host.was_reached
            try:
                if isinstance(outcome, HostError):
                    raise outcome
                lost = await self._follow(host, delivery, outcome)
                if lost.kind in HOPELESS:
                    is_given_up = True
                    raise HostError(lost.detail, host=host.name)
                delivery.notice(f"link lost: {lost.detail}; trying to get it back", host.name)
            except HostError as exc:
                if is_given_up:
                    self._errors[host.index] = exc
                    if len(self._errors) < len(self._followed):
                        delivery.notice(exc.message, host.name)
                    return True
            finally:
                await host.close()
            return False

        await host.persist(attempt, first=first)

    async def _follow(self, host: _FileHost, delivery: Delivery, connection: Connection) -> agent.LinkLost:
        """Serve one wire; return how it was lost."""
        wire = await join.join(connection, host.name, ("tail",), host.python, self._ssh.connect_timeout)
        if host.was_reached:
            delivery.notice("link is back", host.name)
        host.was_reached = True
        patterns, resume = self._followed[host.index].patterns, host.positions()
        host.begin_session(Speaker.TAILER)
        host.files = {}
        host.send(messages.TAIL, patterns=list(patterns), lines=self._lines, resume=resume)
        return await host.serve(wire)

    def _deliver(self, delivery: Delivery, host: _FileHost, events: Sequence[agent.SessionEvent]) -> None:
        for event in events:
            match event:
                case agent.FileOpened(number, path):
                    host.files[number] = event
                    if path not in host.numbers:
                        host.numbers[path] = self._count
                        self._count += 1
                        self._on_file(host.numbers[path], host.name, path)
                case agent.Output(number, stream, offset, chunk, at) if number in host.files:
                    ours = host.numbers[host.files[number].path]
                    delivery.emit(seen.WorkerOutput(at, host.name, ours, seen.Stream(stream), offset, chunk))
                    delivery.owe(host, len(chunk))
                case agent.Remark(text):
                    delivery.notice(text, host.name)
                case _:
                    pass  # hello, and what only runs say
