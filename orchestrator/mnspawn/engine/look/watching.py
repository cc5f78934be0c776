"""Looks at a run that others started, from anywhere: replays what happened, follows it, and can take charge of it.

Being in charge is what a controller does for a run of its own: the first failure anywhere stops all, Ctrl-C stops. The
agents of a run need nobody for anything else, so any number of people can look at once.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from functools import partial

from mnspawn import events as seen
from mnspawn.core import actions
from mnspawn.core import agent_events as agent
from mnspawn.core.message_check import Speaker
from mnspawn.core.run import RunMachine, RunState
from mnspawn.engine.link import join
from mnspawn.engine.link.delivery import Delivery
from mnspawn.engine.link.feed import HOPELESS
from mnspawn.engine.link.guard import guarded
from mnspawn.engine.link.link import watch_message
from mnspawn.engine.link.sites import Reached, reach_hosts
from mnspawn.engine.link.stuck_agents import wait_until_idle
from mnspawn.engine.link.suspension import keep_time
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.request import Listener
from mnspawn.errors import HostError
from mnspawn.system import interrupts
from mnspawn.transport.base import Connection
from mnspawn_agent.protocol import messages

from .ask import ask_on
from .emergency import order_stops_after
from .view import ViewOptions, ViewResult
from .viewed_host import ViewedHost

UNKNOWN = "it knows nothing of the run any more"
RETRY_LEAST = 1.0  # seconds that a try to connect has, however late it is


class RunUnknown(HostError):
    """The host has no folder of the run: it never had, or the folder was removed."""


async def view_run(known: KnownRun, listeners: Sequence[Listener], options: ViewOptions) -> ViewResult:
    """Look until there is nothing more to see.

    Raises:
        UsageError: the hosts can't be reached the way that was asked for; nobody is contacted.
    """
    async with reach_hosts(known.hosts, known.transport, known.ssh) as reached:
        return await View(reached, known, listeners, options).execute()


class View:
    """Follows one run that others started."""

    def __init__(self, reached: Reached, known: KnownRun, listeners: Sequence[Listener], options: ViewOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._reached = reached
        self._known = known
        self._options = options
        self._decides = options.is_in_charge or options.stop is not None
        self._limits = options.limits
        self._began_to_look = now = self._loop.time()
        self._errors: dict[str, HostError] = {}
        self._has_left = False
        self._bug: Exception | None = None
        self._finished = asyncio.Event()
        self._group = asyncio.TaskGroup()
        names = [host.name for host in known.hosts]
        began = now - max(0.0, time.time() - known.began) if known.began else now
        self._machine = RunMachine.adopt(known.run, names, known.ranks, known.grace, now, began, self._limits.proof)
        self._hosts = [ViewedHost(reached, index, known, self._limits, self._deliver) for index in range(len(names))]
        self._unsettled = set(range(len(names)))
        self._delivery = Delivery(listeners, self.note_bug)

    async def execute(self) -> ViewResult:
        """Look until there is nothing more to see."""
        with self._signals():
            try:
                await self._watch()
            except (Exception, BaseExceptionGroup) as exc:
                if self._options.is_in_charge and not self._has_ended:
                    await order_stops_after(exc, self._reached, self._known, self._who)
                raise
            report = self._machine.report()
            if self._has_ended:
                now = time.time()
                self._delivery.emit(seen.RunFinished(now, report.run, report.exit_status, report.describe()))
        return ViewResult(report, self._has_ended, self._has_left, self._errors)

    async def _watch(self) -> None:
        async with self._group as group:
            parts = self._serve(), keep_time(self._machine, self._act)
            tasks = [group.create_task(part) for part in parts]
            if self._options.stop is not None:
                self._machine.stop_asked(self._began_to_look, self._options.stop, "asked for by mnspawn stop")
                self._act()
            await self._finished.wait()
            if self._bug is not None:
                raise self._bug
            for task in tasks:
                task.cancel()

    @property
    def _has_ended(self) -> bool:
        return self._machine.state is RunState.DONE and all(host.has_ended for host in self._hosts)

    def note_bug(self, error: Exception) -> None:
        """Note a bug that was raised where no task is: there it would only be logged."""
        self._bug = self._bug or error
        self._finished.set()

    def _signals(self) -> contextlib.AbstractContextManager[None]:
        if not self._options.handle_signals:
            return contextlib.nullcontext()
        return interrupts.handled(self._interrupt, self._pass_signal, self._leave, lambda: self._has_ended)

    # -- hosts -----------------------------------------------------------------------------------------------------
    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            async for index, outcome in self._reached.dial(self._known.ssh.connect_timeout):
                host = self._hosts[index]
                group.create_task(self._serve_host(host, outcome), name=f"watch {host.name}")

    async def _serve_host(self, host: ViewedHost, outcome: Connection | HostError) -> None:
        """Look at one host until it has said everything, over as many connections as it takes."""
        host.unseen_since = self._loop.time()
        if self._options.stop is not None:  # connecting has taken its time already
            host.unseen_since -= min(self._known.ssh.connect_timeout, host.unseen_since - self._began_to_look)
        try:
            await host.persist(partial(self._attempt, host), partial(self._limit_of, host), first=outcome)
        finally:
            await host.close()

    async def _attempt(self, host: ViewedHost, outcome: Connection | HostError) -> bool:
        """Look at a host over one connection; return whether it needs no other one."""
        try:
            if isinstance(outcome, HostError):
                raise outcome
            lost = await self._look(host, outcome)
            if host.is_settled:
                return True
            if lost.kind in HOPELESS:
                await self._give_up(host, lost.detail)
                return True
            host.unseen_since = host.last_heard
        except RunUnknown as exc:
            self._errors[host.name] = exc
            host.is_unknown = True
            if self._options.stop is not None:
                await self._end_pod(host, UNKNOWN)
                return True
            if not self._options.is_in_charge or all(h.is_settled or h.is_unknown for h in self._hosts):
                self._settle(host)  # a removed folder does not come back
                return True
            # else the run goes on elsewhere: a host that has lost its part of it (a reboot) is lost for good
        except HostError as exc:
            self._errors[host.name] = exc
        finally:
            await host.close()
        return self._counts_as_lost(host)

    def _counts_as_lost(self, host: ViewedHost) -> bool:
        """Decide without a link whether the host is lost, or we are."""
        now = self._loop.time()
        if not self._options.is_following:
            if host.lost_at is not None and now - host.lost_at < self._limits.lost:
                return False  # what it began to tell shall be whole
            self._settle(host)
            return True
        is_seen_elsewhere = any(h.connection is not None for h in self._hosts if h is not host)
        counts = self._options.stop is not None or (self._options.is_in_charge and is_seen_elsewhere)
        unseen = now - host.unseen_since
        if not counts or unseen < self._patience(host):
            return False
        reason = UNKNOWN if host.is_unknown else f"no link for {unseen:.0f} s"
        if self._options.stop is not None and not host.was_seen and host.name in self._errors:
            reason = self._errors[host.name].message
        self._lose(host, reason, host.unseen_since, join.Reaped(is_clean=False))
        return True

    def _patience(self, host: ViewedHost) -> float:
        """Return the seconds without a link after which a host can count as lost."""
        is_new = not host.was_seen and not host.is_unknown
        return self._known.ssh.connect_timeout if self._options.stop is not None and is_new else self._limits.lost

    def _limit_of(self, host: ViewedHost) -> float:
        """Return the seconds for connecting again: few for a stop, which reports what it could not confirm."""
        if self._options.stop is None:
            return self._patience(host)
        return max(RETRY_LEAST, host.unseen_since + self._patience(host) - self._loop.time())

    async def _give_up(self, host: ViewedHost, reason: str) -> None:
        """Note a host that makes no sense or no progress: lost if we are in charge, else an error."""
        if self._decides:
            await self._end_pod(host, reason)
        else:
            self._errors[host.name] = HostError(reason, host=host.name)
            self._settle(host)

    async def _end_pod(self, host: ViewedHost, reason: str) -> None:
        """End a pod that can't be stopped by its agent."""
        reaped = await host.reap(self._known.run)
        self._lose(host, reason, self._loop.time(), reaped)

    def _lose(self, host: ViewedHost, reason: str, since: float, reaped: join.Reaped) -> None:
        self._delivery.emit(seen.HostLost(time.time(), host.name, reason))
        host.is_settled = host.has_ended = True
        self._unsettled.discard(host.index)
        self._errors.pop(host.name, None)  # the report says it
        self._machine.lost(host.index, reason, since, reaped.is_clean, self._loop.time(), reaped.survivors)
        self._act()

    async def _look(self, host: ViewedHost, connection: Connection) -> agent.LinkLost:
        """Serve one wire; return how it was lost."""
        options = self._options
        wire = await host.enter(connection, "watch", self._known.run, str(host.index))
        if wire is None:
            raise RunUnknown(f"knows nothing of run {self._known.run}", host=host.name)
        host.is_unknown, host.was_seen = False, True
        if host.lost_at is not None:
            self._delivery.emit(seen.HostLinkBack(time.time(), host.name, self._loop.time() - host.lost_at))
            host.lost_at = None
        offsets = host.session.offsets
        host.begin_session(Speaker.WATCHER, offsets)
        host.session.expect(host.ranks)
        host.send_message(
            watch_message(
                [stream.value for stream in options.streams], offsets, options.ranks, tail=options.tail,
                since=options.since, has_times=options.has_times, is_following=options.is_following,
            )
        )  # fmt: skip
        self._errors.pop(host.name, None)
        impatience = None if options.is_following else self._group.create_task(self._outwait(host))
        try:
            return await host.serve(wire)
        finally:
            if impatience is not None:
                impatience.cancel()
            await host.drop_wire()

    async def _outwait(self, host: ViewedHost) -> None:
        """Give a host up that should report what there is, and only sends heartbeats."""
        await wait_until_idle(host.session, lambda: bool(host.owed), self._limits)
        host.give_up("it answers, but does not say what it knows")

    # -- facts -----------------------------------------------------------------------------------------------------
    def _deliver(self, host: ViewedHost, events: Sequence[agent.SessionEvent]) -> None:
        for event in events:
            self._take(host, event)
            if isinstance(event, agent.Output | agent.Gap) or host.is_new(event):
                self._delivery.emit_of_agent(host.name, event, host.ranks.index, host)
        self._act()

    def _take(self, host: ViewedHost, event: agent.SessionEvent) -> None:
        machine, now = self._machine, self._loop.time()
        host.last_heard = now
        match event:
            case agent.Prepared():
                machine.phase(host.index, "prepared", event.at)
            case agent.Started(rank, pid, at):
                machine.phase(host.index, "started", at)
                machine.started(rank, pid)
            case agent.NotStarted(rank, at, error):
                machine.not_started(rank, at, error, now)
            case agent.Exited():
                machine.exited(event, now)
            case agent.StopAsked(reason, grace, is_orphaned):
                machine.stop_asked(now, grace, f"{reason} on {host.name}", is_orphaned)
            case agent.Done(leftovers, swept, at, reasons):
                machine.phase(host.index, "ended", at)
                host.has_ended = True
                machine.done(host.index, leftovers, swept, reasons)
            case agent.AgentGone(reason, leftovers, reasons):
                host.has_ended = True
                if host.is_new(event):
                    self._delivery.emit(seen.HostLost(time.time(), host.name, reason))
                machine.lost(host.index, reason, now, not leftovers, now, tuple(zip(leftovers, reasons, strict=True)))
            case agent.CaughtUp():
                self._settle(host)
            case agent.LinkLost(kind, detail, last_heard) if kind not in HOPELESS:
                host.last_heard = last_heard
                if not host.is_settled and host.lost_at is None:
                    host.lost_at = last_heard
                    self._delivery.emit(seen.HostLinkLost(time.time(), host.name, detail))
            case _:
                pass  # the rest is for those who start runs

    def _settle(self, host: ViewedHost) -> None:
        """The host has nothing more to say to us."""
        host.is_settled = True
        if not host.session.is_lost:
            host.send(messages.FINISH, keep=True)
        self._machine.settled(host.index, self._loop.time())
        self._unsettled.discard(host.index)
        if not self._unsettled:
            self._finished.set()

    @property
    def _who(self) -> str:
        """Return who stops the run, for those who ask its hosts why it ended."""
        if self._options.stop is not None:
            return "mnspawn stop"
        return "mnspawn attach" if self._options.handle_signals else "the keeper"

    # -- actions ---------------------------------------------------------------------------------------------------
    def _act(self) -> None:
        for action in self._machine.actions():
            match action:
                case actions.Leave():
                    self._leave()
                case actions.GiveUpHost(index, reason) if self._decides:
                    self._group.create_task(self._end_stuck(self._hosts[index], reason), name="reap")
                case actions.StopAll(grace, reason) if self._decides:
                    self._delivery.emit(seen.RunStopping(time.time(), reason, grace <= 0))
                    self._order_all("stop", f"{grace:g}", self._who)
        if self._machine.state is RunState.DONE and not self._unsettled:
            self._finished.set()

    def _order_all(self, verb: str, *words: str) -> None:
        for host in self._hosts:
            self._group.create_task(self._order(host, verb, *words), name="order")

    async def _order(self, host: ViewedHost, verb: str, *words: str) -> None:
        """Give an order to one agent, as soon as the host is there; a pod that has ended needs none."""
        unanswered_since = None
        while not host.has_ended:
            connection = host.connection
            if connection is not None:
                order = ("order", self._known.run, str(host.index), verb, *words)
                with contextlib.suppress(HostError):  # the link broke: again over the next one
                    answer = await ask_on(connection, host.name, order, host.python, self._limits.lost)
                    if verb != "stop" or answer.ok or answer.is_gone:
                        return
                    unanswered_since = unanswered_since or self._loop.time()  # its agent is frozen
                    if words[0] == "0" or self._loop.time() - unanswered_since >= self._limits.lost:
                        return await self._end_stuck(host, "its agent does not answer")
            if self._finished.is_set():
                return
            await asyncio.sleep(self._limits.retry_first)

    async def _end_stuck(self, host: ViewedHost, reason: str) -> None:
        """End an agent that does not do what it should, and all it has. Its watcher reports the end, or lies."""
        connection = host.connection
        if connection is None:
            return  # the link broke: then its loss says what there is to say
        reaped = await host.reap(self._known.run)
        deadline = self._loop.time() + self._limits.last_words
        while not host.has_ended and self._loop.time() < deadline:  # noqa: ASYNC110 - hosts have no event for it
            await asyncio.sleep(self._limits.retry_first)
        if not host.has_ended and host.connection is connection:
            self._lose(host, reason, self._loop.time(), reaped)

    # -- the user --------------------------------------------------------------------------------------------------
    @guarded
    def _interrupt(self, number: signal.Signals) -> None:
        if not self._options.is_in_charge or number == signal.SIGHUP:
            self._leave()  # looking ends; a terminal that closes takes nothing with it
            return
        if self._machine.have_all_ended:
            interrupts.urge()
        self._machine.interrupt(self._loop.time(), interrupts.STATUS[number], number.name)
        self._act()

    def _pass_signal(self, number: signal.Signals) -> None:
        if self._options.is_in_charge:
            self._order_all("signal", number.name)

    def _leave(self) -> None:
        self._has_left = True
        self._finished.set()
