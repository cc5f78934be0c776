"""Stops a run after a bug of ours, over the links that there are.

It uses neither the run's machine nor its listeners nor its hosts' sessions: one of them has just raised.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from mnspawn.engine.link.link import HostLink
from mnspawn.engine.link.sites import Reached
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.request import Limits
from mnspawn.transport.base import RemoteProcess
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel, Lost, Received

from .ask import ask_all

FLUSH = 0.5  # seconds between two looks for something to send, a heartbeat most of the time


class Emergency:
    """The last thing that is done for a run.

    Args:
        grace: seconds between TERM and KILL.
    """

    def __init__(self, grace: float, limits: Limits) -> None:
        self._grace = grace
        self._limits = limits
        self._channels: list[Channel] = []
        self._urged = asyncio.Event()
        self._urgings = 0
        self._is_on = False

    def urge(self) -> None:
        """The user asks for the end: once kills, twice leaves."""
        self._urgings += 1
        if self._urgings == 1:
            for channel in self._channels:
                channel.send(messages.make(messages.STOP, grace=0.0))
        else:
            self._urged.set()

    @property
    def is_on(self) -> bool:
        return self._is_on

    async def stop_after(self, error: BaseException, links: Sequence[HostLink]) -> None:
        """Stop every host after a bug of ours, or when our caller cancels; note in the error which did not confirm."""
        self._is_on = True
        left = await self.stop([link for link in links if link.is_started and not link.is_settled])
        if left:
            error.add_note(f"not confirmed stopped: {', '.join(left)}")

    async def stop(self, links: Sequence[HostLink]) -> tuple[str, ...]:
        """Send every host its STOP and wait for proofs; return the names of hosts that gave none."""
        tasks = {asyncio.create_task(self._stop_host(link), name=f"stop {link.name}"): link for link in links}
        leaving = asyncio.create_task(self._urged.wait(), name="urged")
        try:
            async with asyncio.timeout(self._grace + self._limits.emergency):
                waiting = {*tasks}
                while waiting and not leaving.done():
                    done, _ = await asyncio.wait({*waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    waiting -= done
        except TimeoutError:
            pass  # those that are not done are named
        finally:
            for task in (*tasks, leaving):
                task.cancel()
            await asyncio.wait({*tasks, leaving})
        return tuple(link.name for task, link in tasks.items() if not _is_true(task))

    async def _stop_host(self, link: HostLink) -> bool:
        is_clean: bool | None = True if link.session.is_proved else None
        wire = link.seize()
        if wire is None:
            return bool(is_clean)  # its link is away: the agent stops when its orphan grace is over
        process, channel = wire
        self._channels.append(channel)
        channel.send(messages.make(messages.STOP, grace=self._grace))
        flusher = asyncio.create_task(_flush(process, channel))
        try:
            if is_clean is None:
                is_clean = await _read_proof(process, channel)
            if is_clean is not None:
                await _let_go(process, channel, self._limits.linger)
            return bool(is_clean)
        except Exception:  # reading may be what is broken: the order goes out all the same
            await asyncio.wait([flusher], timeout=FLUSH)
            raise
        finally:
            flusher.cancel()
            await asyncio.wait([flusher])


def _is_true(task: asyncio.Task[bool]) -> bool:
    """A task that raised has confirmed nothing: what a host says can be what broke us."""
    return not task.cancelled() and task.exception() is None and task.result()


async def _flush(process: RemoteProcess, channel: Channel) -> None:
    now = asyncio.get_running_loop().time
    while not channel.is_lost:
        channel.on_time(now())
        if chunk := channel.data_to_send(now()):
            await process.write(chunk)
        await asyncio.sleep(FLUSH)


async def _let_go(process: RemoteProcess, channel: Channel, limit: float) -> None:
    """Let the agent end; a link that ends before would leave it waiting for us."""
    channel.send(messages.make(messages.FINISH, keep=True))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await process.write(channel.data_to_send(asyncio.get_running_loop().time()))
            while await process.read():
                pass


async def _read_proof(process: RemoteProcess, channel: Channel) -> bool | None:
    """Return whether nothing is left on the host, as it says; None when the link ends before it says so."""
    now = asyncio.get_running_loop().time
    while chunk := await process.read():
        channel.receive(chunk, now())
        for event in channel.events():
            if isinstance(event, Lost):
                return None
            if isinstance(event, Received) and event.message.get("type") == messages.DONE:
                return not event.message.get("leftovers")
    return None


async def order_stops_after(error: BaseException, reached: Reached, known: KnownRun, who: str) -> None:
    """Do the same for a run that others started: order its agents to stop, over new links.

    Hosts whose agents did not take the order are noted in the error.
    """
    words = [("order", known.run, str(index), "stop", f"{known.grace:g}", who) for index in range(len(known.hosts))]
    answers = await ask_all(reached, words, known.ssh.connect_timeout)
    answered = [(answer.host, answer.content) for answer in answers if answer.content is not None]
    ordered = {host for host, content in answered if content.ok or content.is_gone}
    left = [host.name for host in known.hosts if host.name not in ordered]
    if left:
        error.add_note(f"not told to stop: {', '.join(left)}; mnspawn stop {known.run} tells them")
