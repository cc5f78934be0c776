"""One run whose hosts are known: gives its machine what hosts say, does what the machine decides, tells listeners."""

import asyncio
import signal
import time
from collections.abc import Sequence

from mnspawn import events as seen
from mnspawn.core import actions
from mnspawn.core import agent_events as agent
from mnspawn.core.run import RunMachine, RunState
from mnspawn.engine.link.delivery import OUTPUT_STREAMS, Delivery
from mnspawn.engine.link.feed import HOPELESS
from mnspawn.engine.link.guard import guarded
from mnspawn.engine.link.link import HostLink, Verdict
from mnspawn.engine.link.sites import Reached
from mnspawn.engine.link.suspension import SuspensionDetector
from mnspawn.engine.look.emergency import Emergency
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.errors import ExitStatus, HostError, MnspawnError, NothingWritable
from mnspawn.plan.launch_plan import LaunchPlan
from mnspawn.system import interrupts
from mnspawn_agent.protocol import messages

from . import prepare
from .answers import Answers
from .detaching import Detaching
from .record import Record

BEFORE_START = (RunState.CONNECTING, RunState.PREPARING)
STARTED = (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)


class ActiveRun:
    """Takes facts by methods that are called in the loop, and sends orders to agents.

    Args:
        is_dry: stop when the plan is there.
        files: of the run, for hosts that lack them.

    Attributes:
        finished: set when there is nothing left to wait for.
        has_left: the user did not wait for the end.
        bug: what was raised where no task is.
        error: why the plan can't be carried out.
        plan: what the ranks were, or would be, started with.
    """

    def __init__(
        self,
        request: RunRequest,
        run: str,
        is_dry: bool,
        reached: Reached,
        files: Sequence[prepare.RunFile],
        listeners: Sequence[Listener],
        emergency: Emergency,
    ) -> None:
        names = [host.name for host in reached.hosts]
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._is_dry = is_dry
        self._hosts = reached.hosts
        self._files = files
        self._emergency = emergency
        self._preparation: prepare.Preparation | None = None
        self._skipped: frozenset[seen.Stream] = frozenset()
        self.finished = asyncio.Event()
        self.has_left = False
        self.bug: Exception | None = None
        self.error: MnspawnError | None = None
        self.plan: LaunchPlan | None = None
        self.links: list[HostLink] = []  # none while they are made: listeners may already ask for credit
        self.delivery = Delivery(listeners, self.note_bug)
        self.record = Record(request, run, is_dry, self.delivery.notice)
        self.answers = Answers(names, request.program.target)
        self.suspension = SuspensionDetector(request.orphan_grace)
        self.machine = RunMachine(
            run, names, request.grace, self._loop.time(), request.stops_on_failure, request.timeout,
            request.limits.proof,
        )  # fmt: skip
        self.links += [
            HostLink(reached, index, request, run, self._deliver, self.delivery.notice) for index in range(len(names))
        ]
        self.detaching = Detaching(self.machine, self.links, request, self.delivery.notice)

    def note_bug(self, error: Exception) -> None:
        """Note a bug raised where no task is: it would only be logged, and the run would wait for ever."""
        self.bug = self.bug or error
        self.finished.set()

    def leave(self) -> None:
        """Wait for nobody any more."""
        self.has_left = True
        self.finished.set()

    # -- the user --------------------------------------------------------------------------------------------------
    @guarded
    def interrupt(self, number: signal.Signals) -> None:
        if self._emergency.is_on:
            return self._emergency.urge()
        if self.machine.have_all_ended:
            interrupts.urge()
        self.machine.interrupt(self._loop.time(), interrupts.STATUS[number], number.name)
        self._act()

    def pass_signal(self, number: signal.Signals) -> None:
        self.signal_ranks(number.name, None)

    @guarded
    def detach(self) -> None:
        """Let go of the run as soon as all its ranks run: the agents go on without us. If all have ended, just go."""
        if self.machine.have_all_ended:
            return self.interrupt(signal.SIGTERM)
        self.detaching.want()
        self._act()

    @guarded
    def signal_ranks(self, name: str, ranks: Sequence[int] | None) -> None:
        """Send a signal to the process groups of ranks that run; None for all."""
        if self.machine.state in (RunState.STARTING, RunState.RUNNING):
            for link in self.links:
                link.send(messages.SIGNAL, signal=name, ranks=None if ranks is None else list(ranks))

    @guarded
    def stop(self, grace: float, reason: str) -> None:
        """End every rank, or give the run up when nothing was started yet."""
        now = self._loop.time()
        self.machine.give_up(now, ExitStatus.TERMINATED, reason)  # does nothing once workers start
        self.machine.stop_asked(now, grace, reason)
        self._act()

    def on_time(self) -> None:
        """Carry on after the machine was given the time."""
        self._act()

    # -- hosts and their links -------------------------------------------------------------------------------------
    def connected(self, index: int) -> None:
        self.machine.phase(index, "connected", self._loop.time())

    def fail(self, index: int, error: HostError) -> None:
        """Note that a host can't be used; the first reason counts."""
        if self.machine.state is RunState.DONE or self.answers.has_failed(index):
            return
        self.answers.failed(index, error)
        self.delivery.emit(seen.HostFailed(time.time(), self._hosts[index].name, error.message))
        self._look_for_answers()
        self._act()

    def is_over_for(self, link: HostLink) -> bool:
        return link.is_settled or self.machine.state is RunState.DONE

    @property
    def is_before_start(self) -> bool:
        return self._is_dry or self.machine.state in BEFORE_START

    def link_lost(self, link: HostLink, lost: agent.LinkLost) -> float:
        """Note that a link broke; return when its host was heard last."""
        now = self._loop.time()
        lost_at = now if lost.kind == "eof" or self.suspension.last() else lost.last_heard
        if lost.kind in HOPELESS:
            self.machine.announce_loss(link.index, lost.detail, lost_at, now)
            self._act()
        else:
            self.delivery.emit(seen.HostLinkLost(time.time(), link.name, lost.detail))
        self.machine.link_lost(link.index)
        return lost_at

    def link_back(self, link: HostLink, lost_at: float) -> None:
        now = self._loop.time()
        self.delivery.emit(seen.HostLinkBack(time.time(), link.name, now - lost_at))
        self.machine.link_back(link.index, now)

    def host_lost(self, link: HostLink, verdict: Verdict, lost_at: float) -> None:
        link.is_settled = True
        self.delivery.emit(seen.HostLost(time.time(), link.name, verdict.reason))
        now = self._loop.time()
        self.machine.lost(link.index, verdict.reason, lost_at, verdict.is_clean, now, verdict.survivors)
        self._act()

    # -- what agents say -------------------------------------------------------------------------------------------
    def _deliver(self, link: HostLink, events: Sequence[agent.SessionEvent]) -> None:
        for event in events:
            self._take(link, event)
            self.delivery.emit_of_agent(link.name, event, lambda rank: self._local_rank(link, rank), link)
        link.push_blobs()
        if self.machine.state in STARTED:
            self._skip_output(self.delivery.unwanted_streams)
        self._act()

    def _take(self, link: HostLink, event: agent.SessionEvent) -> None:
        machine, now = self.machine, self._loop.time()
        match event:
            case agent.Hello():
                self._take_hello(link, event)
            case agent.Need(blobs):
                for blob in blobs:
                    if blob < len(self._files):
                        link.send_blob(blob, self._files[blob].content)
            case agent.Prepared():
                machine.phase(link.index, "prepared", now)
                machine.prepared(link.index, now)
                self.answers.taken(link.index)
                self._look_for_answers()
            case agent.Refused(reasons):
                self.answers.refused(link.index, reasons)
                self._look_for_answers()
            case agent.Started(rank, pid, at):
                machine.phase(link.index, "started", at)
                machine.started(rank, pid)
            case agent.NotStarted(rank, at, error):
                machine.not_started(rank, at, error, now)
            case agent.Exited():
                machine.exited(event, now)
            case agent.Done(leftovers, swept, _, reasons):
                machine.phase(link.index, "ended", now)
                machine.done(link.index, leftovers, swept, reasons)
            case agent.Complete():
                link.finish(keep=self._request.keeps_folder)
                machine.settled(link.index, now)
            case agent.StopAsked(reason, grace, is_orphaned):
                why = self.suspension.reason_of_stop(f"{reason} on {link.name}", is_orphaned)
                machine.stop_asked(now, grace, why, is_orphaned)
            case agent.LetGo() if self._request.handle_signals:
                self.detach()
            case _:
                pass  # for listeners, or noted by the link

    def _take_hello(self, link: HostLink, hello: agent.Hello) -> None:
        facts = hello.facts
        if not facts.root:
            problem = f"no folder can hold a run: {facts.root_problem}"
            self.fail(link.index, NothingWritable(problem, host=link.name))
            link.send(messages.FINISH, keep=False)
            return
        if facts.root_problem:
            self.delivery.notice(f"runs are kept in {facts.root}: {facts.root_problem}", link.name)
        self.answers.usable(link.index)
        self.delivery.emit(seen.HostConnected(time.time(), link.name, facts.describe(), hello.is_cached))
        self.machine.phase(link.index, "ready", self._loop.time())
        self.machine.connected(link.index)
        self._look_for_answers()

    def _look_for_answers(self) -> None:
        """Report all bad hosts together: once every host has answered."""
        if self.answers.are_unusable:
            self.machine.give_up(self._loop.time(), ExitStatus.HOST_UNUSABLE, "hosts can't be used")
        elif self.answers.are_refusals:
            self.machine.give_up(self._loop.time(), ExitStatus.PLAN_REFUSED, "hosts refused the plan")

    def _local_rank(self, link: HostLink, rank: int) -> int:
        assert self._preparation is not None
        return self._preparation.ranks[link.index].index(rank)

    # -- what the machine decides ----------------------------------------------------------------------------------
    def _act(self) -> None:
        try:
            while due := self.machine.actions():
                for action in due:
                    self._do(action)
        except MnspawnError as exc:  # the plan can't be carried out: nothing was started
            self.error = exc
            self._dismiss()
            self.finished.set()
        if self.machine.state is RunState.DONE:
            self.finished.set()
        else:
            self.detaching.look()

    def _do(self, action: actions.Action) -> None:
        match action:
            case actions.PrepareAll():
                self._prepare_all()
            case actions.StartAll():
                self._start_all()
            case actions.StopAll(grace, reason, is_hurried):
                self.delivery.emit(seen.RunStopping(time.time(), reason, grace <= 0))
                if is_hurried:
                    self._skip_output(OUTPUT_STREAMS)  # a kill does not wait for gigabytes that are on the hosts
                for link in self.links:
                    if not link.is_settled:
                        link.send(messages.STOP, grace=grace)
            case actions.Dismiss():
                self._dismiss()
            case actions.GiveUpHost(index, reason):
                self.links[index].give_up(reason)
            case actions.Leave():
                self.leave()

    def _skip_output(self, streams: frozenset[seen.Stream]) -> None:
        """Leave streams on the hosts from now on."""
        if not streams <= self._skipped:
            self._skipped |= streams
            for link in self.links:
                link.send(messages.SKIP, streams=sorted(stream.value for stream in streams))

    def _prepare_all(self) -> None:
        hellos = [link.hello for link in self.links if link.hello is not None]
        notice = self.delivery.notice
        self._preparation = prepare.Preparation(self._request, self.machine.run, self._hosts, hellos, notice)
        self.machine.laid_out(self._preparation.ranks)
        for link in self.links:
            link.session.expect(self._preparation.ranks[link.index])
            link.send_message(self._preparation.message(link.index, self._files))

    def _start_all(self) -> None:
        assert self._preparation is not None
        answers = [link.prepared for link in self.links if link.prepared is not None]
        self.plan = self._preparation.complete(answers)
        if self._is_dry:
            self._dismiss()
            self.finished.set()
            return
        about = self._preparation.about()
        self.record.begin(self._hosts, about["world"], about["program"])
        world, shown = self.plan.layout.world_size, self.plan.describe(reveal=False)
        self.delivery.emit(seen.RunStarting(time.time(), self.machine.run, world, shown))
        for link, pod in zip(self.links, self.plan.pods, strict=True):
            link.start(prepare.start_message(pod, self._request.is_forked))

    def _dismiss(self) -> None:
        for link in self.links:
            link.finish(keep=False)
