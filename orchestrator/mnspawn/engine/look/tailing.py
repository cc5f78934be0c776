"""Follows files on hosts, over as many connections as it takes: `mnspawn tail HOSTS:PATTERN`. No run is involved."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mnspawn import events as seen
from mnspawn.core import session as said
from mnspawn.engine.link import join
from mnspawn.engine.link.delivery import Audience
from mnspawn.engine.link.link import RETRY_FIRST, RETRY_MOST, WINDOW_LEAST, WINDOW_MOST, WINDOW_TOTAL
from mnspawn.engine.link.pump import pump
from mnspawn.engine.link.sites import Reached, reach_hosts
from mnspawn.engine.request import Listener
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


@dataclass(slots=True)
class _Source:
    """One host on its way.

    Attributes:
        numbers: of ours, by path.
        files: what the agent's numbers of this wire mean.
    """

    index: int
    name: str
    session: said.HostSession | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    owed: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    files: dict[int, said.FileOpened] = field(default_factory=dict)
    lost: said.LinkLost | None = None

    def pay(self) -> None:
        """Give credit for what was passed on."""
        if self.owed and self.session is not None:
            self.session.consumed(self.owed)
            self.owed = 0
            self.wake.set()

    def positions(self) -> list[list[object]]:
        """How far each file was read: path, inode, position."""
        if self.session is None:
            return []
        offsets = self.session.offsets
        return [
            [file.path, file.inode, file.at + max(0, offsets.get((number, 1), 0) - file.offset)]
            for number, file in self.files.items()
        ]


class Tail:
    """Files of many hosts, until the user goes. Bytes are events: WorkerOutput with a file's number for a rank.

    Args:
        lines: of each file that is there, the last so many come first; None for all.
        on_file: told of each file before its first bytes.
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
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self._sources = [_Source(index, one.host.name) for index, one in enumerate(self._followed)]
        self._audience = Audience(self._listeners)
        hosts = tuple(one.host for one in self._followed)
        with interrupts.handled(lambda number: self._finished.set(), lambda number: None, self._finished.set):
            async with reach_hosts(hosts, self._transport, self._ssh) as reached, asyncio.TaskGroup() as group:
                task = group.create_task(self._serve(reached), name="tail")
                left = group.create_task(self._finished.wait(), name="leave")
                await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
                task.cancel()
                left.cancel()
        if len(self._errors) == len(self._sources):
            raise HostsUnusable([self._errors[index] for index in sorted(self._errors)])

    async def _serve(self, reached: Reached) -> None:
        async with asyncio.TaskGroup() as group:
            async for index, outcome in reached.dial(self._ssh.connect_timeout):
                group.create_task(self._serve_host(reached, self._sources[index], outcome), name=f"tail {index}")

    async def _serve_host(self, reached: Reached, source: _Source, outcome: Connection | HostError) -> None:
        """Follow one host; one that was never reached or says nonsense is given up, one that was lost never."""
        delay, was_reached = RETRY_FIRST, False
        while True:
            try:
                if isinstance(outcome, HostError):
                    raise outcome
                try:
                    await self._follow(source, outcome, is_back=was_reached)
                finally:
                    await outcome.close()
                if source.lost is not None and source.lost.kind == "nonsense":
                    was_reached = False  # it is not worth another try
                    raise HostError(source.lost.detail, host=source.name)
                was_reached, delay = True, RETRY_FIRST
            except HostError as exc:
                if not was_reached:
                    self._errors[source.index] = exc
                    if len(self._errors) < len(self._sources):
                        self._audience.notice(exc.message, source.name)
                    return
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST)
            try:
                outcome = await reached.connect(source.index)  # minds the connect timeout itself
            except HostError as exc:
                outcome = exc

    async def _follow(self, source: _Source, connection: Connection, *, is_back: bool) -> None:
        """Serve one wire until it is lost."""
        one = self._followed[source.index]
        timeout = self._ssh.connect_timeout
        process, diagnostics, first, _ = await join.join(connection, source.name, ("tail",), one.host.python, timeout)
        if is_back:
            self._audience.notice("link is back", source.name)
        resume = source.positions()
        window = min(WINDOW_MOST, max(WINDOW_LEAST, WINDOW_TOTAL // len(self._sources)))
        session = source.session = said.HostSession(self._loop.time(), window, speaker=said.Speaker.TAILER)
        source.files, source.owed, source.lost = {}, 0, None
        session.send(messages.make(messages.TAIL, patterns=list(one.patterns), lines=self._lines, resume=resume))
        try:
            await pump(process, session, first, partial(self._deliver, source), source.wake)
        finally:
            await join.abandon(process, diagnostics)
        if source.lost is not None and source.lost.kind != "nonsense":
            self._audience.notice(f"link lost: {source.lost.detail}; trying to get it back", source.name)

    def _deliver(self, source: _Source) -> None:
        assert source.session is not None
        for event in source.session.events():
            match event:
                case said.FileOpened(number, path):
                    source.files[number] = event
                    if path not in source.numbers:
                        source.numbers[path] = self._count
                        self._count += 1
                        self._on_file(source.numbers[path], source.name, path)
                case said.Output(number, stream, offset, chunk, at) if number in source.files:
                    ours = source.numbers[source.files[number].path]
                    self._audience.tell(seen.WorkerOutput(at, source.name, ours, seen.Stream(stream), offset, chunk))
                    self._audience.owe(source, len(chunk))
                case said.Remark(text):
                    self._audience.notice(text, source.name)
                case said.LinkLost():
                    source.lost = event
                case _:
                    pass  # hello, and what only runs say
