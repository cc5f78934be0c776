"""Looks at a run that others started, from anywhere: replays what happened, follows it, and can look after it.

Looking after (`is_in_charge`) is what a controller does for a run of its own: the first failure anywhere stops all,
Ctrl-C stops. The agents of a run need nobody for anything else, so any number of people can look at once.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from functools import partial

from mnspawn import events as seen
from mnspawn.core import actions
from mnspawn.core import run as policy
from mnspawn.core import session as said
from mnspawn.engine.link import join
from mnspawn.engine.link.clock import keep_time
from mnspawn.engine.link.delivery import Audience
from mnspawn.engine.link.guard import guarded
from mnspawn.engine.link.link import RETRY_FIRST, RETRY_MOST, WINDOW_LEAST, WINDOW_MOST, WINDOW_TOTAL
from mnspawn.engine.link.pump import pump
from mnspawn.engine.link.sites import reach_hosts
from mnspawn.engine.link.stuck_agents import outwait
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.request import Listener
from mnspawn.errors import HostError
from mnspawn.system import interrupts
from mnspawn.transport.base import Connection
from mnspawn_agent.protocol import messages

from .ask import ask_on
from .emergency import order_stops_after
from .view import ViewOptions, ViewResult
from .viewed_host import Glance

UNKNOWN = "it knows nothing of the run any more"
RETRY_LEAST = 1.0  # seconds that a try to connect has, however late it is
LAST_WORDS = 5.0  # seconds for a watcher to say that the agent is gone
LOST_AFTER = 20.0  # seconds without a host that others still reach; what a run in the foreground allows by default


class View:
    """One look at one run."""

    def __init__(self, known: KnownRun, listeners: Sequence[Listener], options: ViewOptions) -> None:
        self._known = known
        self._listeners = listeners
        self._options = options
        self._errors: dict[str, HostError] = {}
        self._has_left = False
        self._bug: Exception | None = None

    async def execute(self) -> ViewResult:
        """Look until there is nothing more to see; raises UsageError for a transport that is none."""
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        now = self._began_to_look = self._loop.time()
        known = self._known
        began = now - max(0.0, time.time() - known.began) if known.began else now
        names = [host.name for host in known.hosts]
        ranks = known.ranks
        self._machine = policy.RunMachine.adopt(known.run, names, ranks, known.grace, now, began)
        self._glances = [Glance(index, name, ranks[index]) for index, name in enumerate(names)]
        self._unsettled = set(range(len(names)))
        self._audience = Audience(self._listeners, self.note_bug)
        with self._signals():
            async with reach_hosts(known.hosts, known.transport, known.ssh) as self._reached:
                try:
                    await self._watch(now)
                except (Exception, BaseExceptionGroup) as exc:
                    if self._options.is_in_charge and not self._has_ended:
                        await order_stops_after(exc, self._reached, known, self._who)
                    raise
            report = self._machine.report()
            if self._has_ended:
                self._audience.tell(seen.RunFinished(time.time(), known.run, report.exit_status, report.describe()))
        return ViewResult(report, self._has_ended, self._has_left, self._errors)

    async def _watch(self, now: float) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks = [group.create_task(part) for part in (self._serve(), keep_time(self._machine, self._act))]
            if self._options.stop is not None:
                self._machine.stop_asked(now, self._options.stop, "asked for by mnspawn stop")
                self._act()
            await self._finished.wait()
            if self._bug is not None:
                raise self._bug
            for task in tasks:
                task.cancel()
            for glance in self._glances:
                glance.cancel()

    @property
    def _has_ended(self) -> bool:
        return self._machine.state is policy.RunState.DONE and all(g.has_ended for g in self._glances)

    def note_bug(self, error: Exception) -> None:
        """It was raised where no task is: there it would only be logged."""
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
                glance = self._glances[index]
                glance.task = group.create_task(self._serve_host(glance, outcome), name=f"watch {glance.name}")

    async def _serve_host(self, glance: Glance, outcome: Connection | HostError) -> None:
        """Look at one host until it has said everything, over as many connections as it takes."""
        delay = RETRY_FIRST
        unseen_since = self._loop.time()
        if self._options.stop is not None:  # connecting has taken its time already
            unseen_since -= min(self._known.ssh.connect_timeout, unseen_since - self._began_to_look)
        while True:
            connection = outcome if not isinstance(outcome, HostError) else None
            try:
                if isinstance(outcome, HostError):
                    raise outcome
                heard = await self._look(glance, outcome)
                if glance.is_settled:
                    return
                if glance.nonsense is not None:
                    await self._give_up(glance, outcome, glance.nonsense)
                    return
                unseen_since, delay = heard, RETRY_FIRST
            except RunUnknown as exc:
                self._errors[glance.name] = exc
                glance.is_unknown = True
                if self._options.stop is not None:
                    assert connection is not None  # it has answered
                    await self._bury(glance, connection, UNKNOWN)
                    return
                if not self._options.is_in_charge or all(g.is_settled or g.is_unknown for g in self._glances):
                    self._settle(glance)  # a removed folder does not come back
                    return
                # else the run goes on elsewhere: a host that has lost its part of it (a reboot) is lost for good
            except HostError as exc:
                self._errors[glance.name] = exc
            finally:
                glance.connection = None
                if connection is not None:
                    await connection.close()
            if self._counts_as_lost(glance, unseen_since):
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST)
            patience = self._patience(glance)
            if self._options.stop is not None:  # whoever waits for a stop shall know soon what is not known
                patience = max(RETRY_LEAST, unseen_since + patience - self._loop.time())
            try:
                async with asyncio.timeout(patience):
                    outcome = await self._reached.connect(glance.index)
            except HostError as exc:
                outcome = exc
            except TimeoutError:
                outcome = HostError("no answer", host=glance.name)

    def _counts_as_lost(self, glance: Glance, unseen_since: float) -> bool:
        """Without a link: is the host lost, or are we?"""
        now = self._loop.time()
        if not self._options.is_following:
            if glance.lost_at is not None and now - glance.lost_at < LOST_AFTER:
                return False  # what it began to tell shall be whole
            self._settle(glance)
            return True
        is_seen_elsewhere = any(g.connection is not None for g in self._glances if g is not glance)
        counts = self._options.stop is not None or (self._options.is_in_charge and is_seen_elsewhere)
        if not counts or now - unseen_since < self._patience(glance):
            return False
        reason = UNKNOWN if glance.is_unknown else f"no link for {now - unseen_since:.0f} s"
        if self._options.stop is not None and glance.session is None and glance.name in self._errors:
            reason = self._errors[glance.name].message
        self._lose(glance, reason, unseen_since, False)
        return True

    def _patience(self, glance: Glance) -> float:
        """Seconds without a link after which a host can count as lost."""
        is_new = glance.session is None and not glance.is_unknown
        return self._known.ssh.connect_timeout if self._options.stop is not None and is_new else LOST_AFTER

    async def _give_up(self, glance: Glance, connection: Connection, reason: str) -> None:
        """A host that says what makes no sense: whoever looks after the run loses it, whoever only looks is told."""
        if self._options.is_in_charge or self._options.stop is not None:
            await self._bury(glance, connection, reason)
        else:
            self._errors[glance.name] = HostError(reason, host=glance.name)
            self._settle(glance)

    async def _bury(self, glance: Glance, connection: Connection, reason: str) -> None:
        """End what still carries the mark of a pod that can't be stopped by its agent."""
        is_clean, survivors = False, list[tuple[int, str]]()
        run, limit = self._known.run, self._known.ssh.connect_timeout
        with contextlib.suppress(HostError):  # then nobody can say that nothing is left, and the report says so
            where = connection, glance.name, run, glance.index, self._python(glance), limit
            is_clean = await join.reap(*where, survivors.extend)
        self._lose(glance, reason, self._loop.time(), is_clean, survivors)

    def _lose(self, glance: Glance, reason: str, since: float, is_clean: bool, survivors: join.Survivors = ()) -> None:
        self._audience.tell(seen.HostLost(time.time(), glance.name, reason))
        glance.is_settled = glance.has_ended = True
        self._unsettled.discard(glance.index)
        self._errors.pop(glance.name, None)  # the report says it
        self._machine.lost(glance.index, reason, since, is_clean, self._loop.time(), survivors)
        self._act()

    async def _look(self, glance: Glance, connection: Connection) -> float:
        """Serve one wire; gives when the host was last heard."""
        known, options = self._known, self._options
        glance.connection = connection
        words = ("watch", known.run, str(glance.index))
        found = await join.enter(connection, glance.name, words, self._python(glance), known.ssh.connect_timeout)
        if found is None:
            raise RunUnknown(f"knows nothing of run {known.run}", host=glance.name)
        glance.is_unknown = False
        if glance.lost_at is not None:
            self._audience.tell(seen.HostLinkBack(time.time(), glance.name, self._loop.time() - glance.lost_at))
            glance.lost_at = None
        process, diagnostics, first = found
        window = min(WINDOW_MOST, max(WINDOW_LEAST, WINDOW_TOTAL // len(self._glances)))
        offsets = glance.session.offsets if glance.session is not None else {}
        session = said.HostSession(self._loop.time(), window, offsets=offsets, speaker=said.Speaker.WATCHER)
        session.expect(glance.ranks)
        glance.session = session
        session.send(
            messages.make(
                messages.WATCH,
                streams=[stream.value for stream in options.streams],
                ranks=None if options.ranks is None else list(options.ranks),
                offsets=[[rank, stream, offset] for (rank, stream), offset in offsets.items()],
                tail=options.tail,
                since=options.since,
                has_times=options.has_times,
                is_following=options.is_following,
            )
        )
        self._errors.pop(glance.name, None)
        impatience = None if options.is_following else self._group.create_task(self._outwait(glance, session))
        try:
            await pump(process, session, first, partial(self._deliver, glance), glance.wake)
        finally:
            if impatience is not None:
                impatience.cancel()
            await join.abandon(process, diagnostics)
        return glance.last_heard

    async def _outwait(self, glance: Glance, session: said.HostSession) -> None:
        """Who is to tell what there is, and only beats, is heard no longer."""
        await outwait(session, lambda: bool(glance.owed))
        glance.nonsense = "it answers, but does not say what it knows"
        session.receive(b"", self._loop.time())
        glance.wake.set()

    def _python(self, glance: Glance) -> str | None:
        return self._known.hosts[glance.index].python or self._known.python

    # -- facts -----------------------------------------------------------------------------------------------------
    def _deliver(self, glance: Glance) -> None:
        assert glance.session is not None
        for event in glance.session.events():
            self._take(glance, event)
            if isinstance(event, said.Output | said.Gap) or glance.is_new(event):
                self._audience.pass_on(glance.name, event, glance.ranks.index, glance)
        self._act()

    def _take(self, glance: Glance, event: said.SessionEvent) -> None:
        machine, now = self._machine, self._loop.time()
        glance.last_heard = now
        match event:
            case said.Prepared():
                machine.phase(glance.index, "prepared", event.at)
            case said.Started(rank, pid, at):
                machine.phase(glance.index, "started", at)
                machine.started(rank, pid)
            case said.NotStarted(rank, at, error):
                machine.not_started(rank, at, error, now)
            case said.Exited():
                machine.exited(event, now)
            case said.StopAsked(reason, grace, is_orphaned):
                machine.stop_asked(now, grace, f"{reason} on {glance.name}", is_orphaned)
            case said.Done(leftovers, swept, at, reasons):
                machine.phase(glance.index, "ended", at)
                glance.has_ended = True
                machine.done(glance.index, leftovers, swept, reasons)
            case said.AgentGone(reason, leftovers, reasons):
                glance.has_ended = True
                if glance.is_new(event):
                    self._audience.tell(seen.HostLost(time.time(), glance.name, reason))
                machine.lost(glance.index, reason, now, not leftovers, now, tuple(zip(leftovers, reasons, strict=True)))
            case said.CaughtUp():
                self._settle(glance)
            case said.LinkLost("nonsense", detail):
                glance.nonsense = detail
            case said.LinkLost(_, detail, last_heard):
                glance.last_heard = last_heard
                if not glance.is_settled and glance.lost_at is None:
                    glance.lost_at = last_heard
                    self._audience.tell(seen.HostLinkLost(time.time(), glance.name, detail))
            case _:
                pass  # the rest is said to those who start runs

    def _settle(self, glance: Glance) -> None:
        """The host has nothing more to say to us."""
        glance.is_settled = True
        if glance.session is not None and not glance.session.is_lost:
            glance.session.send(messages.make(messages.FINISH, keep=True))
            glance.wake.set()
        self._machine.settled(glance.index, self._loop.time())
        self._unsettled.discard(glance.index)
        if not self._unsettled:
            self._finished.set()

    @property
    def _who(self) -> str:
        """Who stops the run, for those who ask its hosts why it ended."""
        if self._options.stop is not None:
            return "mnspawn stop"
        return "mnspawn attach" if self._options.handle_signals else "the keeper"

    # -- actions ---------------------------------------------------------------------------------------------------
    def _act(self) -> None:
        decides = self._options.is_in_charge or self._options.stop is not None
        for action in self._machine.actions():
            if isinstance(action, actions.Leave):
                self._leave()
            elif isinstance(action, actions.GiveUpHost) and decides:
                self._group.create_task(self._end_stuck(self._glances[action.host], action.reason), name="reap")
            elif isinstance(action, actions.StopAll) and decides:
                self._audience.tell(seen.RunStopping(time.time(), action.reason, action.grace <= 0))
                for glance in self._glances:
                    self._group.create_task(self._order(glance, "stop", f"{action.grace:g}", self._who), name="order")
        if self._machine.state is policy.RunState.DONE and not self._unsettled:
            self._finished.set()

    async def _order(self, glance: Glance, verb: str, *words: str) -> None:
        """Give an order to one agent, as soon as the host is there; a pod that has ended needs none."""
        unanswered_since = None
        while not glance.has_ended:
            connection = glance.connection
            if connection is not None:
                order = ("order", self._known.run, str(glance.index), verb, *words)
                with contextlib.suppress(HostError):  # the link broke: again over the next one
                    answer = await ask_on(connection, glance.name, order, self._python(glance), LOST_AFTER)
                    if verb != "stop" or answer.ok or answer.is_gone:
                        return
                    unanswered_since = unanswered_since or self._loop.time()  # its agent is frozen
                    if words[0] == "0" or self._loop.time() - unanswered_since >= LOST_AFTER:
                        return await self._end_stuck(glance, "its agent does not answer")
            if self._finished.is_set():
                return
            await asyncio.sleep(RETRY_FIRST)

    async def _end_stuck(self, glance: Glance, reason: str) -> None:
        """End an agent that does not do what it should, and what it has: the watcher says that it is gone, or lies."""
        connection, is_clean, survivors = glance.connection, False, list[tuple[int, str]]()
        if connection is None:
            return  # the link broke: then its loss says what there is to say
        run, limit = self._known.run, self._known.ssh.connect_timeout
        with contextlib.suppress(HostError):  # as above, or the host does not answer
            where = connection, glance.name, run, glance.index, self._python(glance), limit
            is_clean = await join.reap(*where, survivors.extend)
        deadline = self._loop.time() + LAST_WORDS
        while not glance.has_ended and self._loop.time() < deadline:  # noqa: ASYNC110 - as elsewhere: no event for it
            await asyncio.sleep(RETRY_FIRST)
        if not glance.has_ended and glance.connection is connection:
            self._lose(glance, reason, self._loop.time(), is_clean, survivors)

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
            for glance in self._glances:
                self._group.create_task(self._order(glance, "signal", number.name), name="order")

    def _leave(self) -> None:
        self._has_left = True
        self._finished.set()


class RunUnknown(HostError):
    """The host has no folder of the run: it never had, or the folder was removed."""
