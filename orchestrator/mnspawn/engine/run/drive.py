"""Drives one run: dials, feeds the run's machine with what hosts say, does what it decides, tells the listeners."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Sequence
from functools import partial

from mnspawn import events as seen
from mnspawn.core import actions
from mnspawn.core import run as policy
from mnspawn.core import session as said
from mnspawn.engine.link.clock import keep_time
from mnspawn.engine.link.delivery import OUTPUT_STREAMS, Audience
from mnspawn.engine.link.guard import guarded
from mnspawn.engine.link.link import HOPELESS, HostLink, Verdict
from mnspawn.engine.link.sites import Reached, reach
from mnspawn.engine.link.stuck_agents import Vigil
from mnspawn.engine.look.emergency import Emergency
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.errors import ExitStatus, HostError, MnspawnError, NothingWritable, UsageError
from mnspawn.plan.launch_plan import LaunchPlan
from mnspawn.report import RunReport
from mnspawn.system import interrupts
from mnspawn.transport.base import Connection
from mnspawn_agent.protocol import messages

from . import missing_modules, prepare
from .answers import Answers
from .control import Control
from .detaching import Detached, Detaching
from .record import Record

log = logging.getLogger(__name__)

STARTED = (policy.RunState.STARTING, policy.RunState.RUNNING, policy.RunState.STOPPING)
LINGER = 3.0  # seconds for agents to go when all is known


class Drive:
    """One run, from the first dial to the report.

    Args:
        is_dry: stop before the start and give the plan.
        control: takes orders for this run.
    """

    def __init__(
        self, request: RunRequest, listeners: Sequence[Listener], is_dry: bool, control: Control | None = None
    ) -> None:
        self._request = request
        self._listeners = listeners
        self._is_dry = is_dry
        self._control = control or Control()
        self._run = request.run or prepare.make_run_id()
        self._links: list[HostLink] = []  # none while hosts are looked for: listeners may already ask for credit
        self._error: MnspawnError | None = None
        self._plan: LaunchPlan | None = None
        self._preparation: prepare.Preparation | None = None
        self._finished = asyncio.Event()
        self._has_left = False
        self._has_result = False
        self._bug: Exception | None = None
        self._emergency = Emergency(request.grace)
        self._skipped: frozenset[seen.Stream] = frozenset()

    async def execute(self) -> RunReport | LaunchPlan | Detached:
        """Do it all; raises as `api.run` says."""
        prepare.check_request(self._request, self._run)
        self._files = prepare.load_files(self._request)
        self._loop = asyncio.get_running_loop()
        self._audience = Audience(self._listeners, self.note_bug)
        if self._request.is_detached and self._request.sandbox:
            raise UsageError("expected hosts that outlive this command, found a sandbox", place="--detach")
        async with reach(self._request) as reached:
            self._hosts = reached.hosts
            self._record = Record(self._request, self._run, self._is_dry, self._audience.notice)
            with self._record.kept():
                return await self._execute(reached)

    async def _execute(self, reached: Reached) -> RunReport | LaunchPlan | Detached:
        request, names = self._request, [host.name for host in self._hosts]
        self._answers = Answers(names, request.program.target)
        self._machine = policy.RunMachine(
            self._run, names, request.grace, self._loop.time(), request.stops_on_failure, request.timeout
        )
        self._links = [
            HostLink(index, name, reached, request, self._run, partial(self._deliver, index), self._audience.notice)
            for index, name in enumerate(names)
        ]
        self._vigil = Vigil(self._machine, self._links, request.orphan_grace)
        self._detaching = Detaching(self._machine, self._links, request, self._audience.notice)
        calls = self._interrupt, self._pass_signal, self._detach, lambda: self._has_result
        with interrupts.handled(*calls) if request.handle_signals else contextlib.nullcontext():
            try:
                await self._drive(reached)
                return self._conclude()
            except BaseException as exc:
                await self._emergency.stop_after(exc, self._links)
                raise
            finally:
                async with asyncio.TaskGroup() as closing:
                    for link in self._links:
                        closing.create_task(link.close())

    async def _drive(self, reached: Reached) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            parts = self._serve(reached), keep_time(self._machine, self._act), self._vigil.keep()
            tasks = [group.create_task(part) for part in parts]
            self._control.bind(self)
            await self._finished.wait()
            self._control.release()
            if self._bug is not None:
                raise self._bug
            if not self._has_left:
                await self._let_agents_go()
            for task in tasks:
                task.cancel()

    def note_bug(self, error: Exception) -> None:
        """It was raised where no task is: there it would only be logged, and the run would wait for ever."""
        self._bug = self._bug or error
        self._finished.set()

    def _conclude(self) -> RunReport | LaunchPlan | Detached:
        if self._error is not None:
            raise self._error
        if self._plan is not None and self._is_dry:
            return self._plan
        if self._detaching.outcome is not None:
            return self._detaching.outcome
        report = missing_modules.with_hint(self._machine.report(), self._request.program, self._plan)
        if report.exit_status == ExitStatus.HOST_UNUSABLE and (error := self._answers.unusable()) is not None:
            raise error
        if report.exit_status == ExitStatus.PLAN_REFUSED and (error := self._answers.refusal()) is not None:
            raise error
        self._audience.tell(seen.RunFinished(time.time(), self._run, report.exit_status, report.describe()))
        self._record.end(report)
        self._has_result = True
        return report

    # -- tasks -----------------------------------------------------------------------------------------------------
    async def _serve(self, reached: Reached) -> None:
        async with asyncio.TaskGroup() as group:
            async for index, outcome in reached.dial(self._request.ssh.connect_timeout):
                link = self._links[index]
                if isinstance(outcome, HostError):
                    self._fail(index, outcome)
                else:
                    self._machine.phase(index, "connected", self._loop.time())
                    link.task = group.create_task(self._serve_host(link, outcome), name=f"link {link.name}")

    async def _serve_host(self, link: HostLink, connection: Connection) -> None:
        try:
            await link.bring_up(connection)
            while True:
                lost = self._vigil.awake.explain(await link.pump())
                if link.is_settled or self._machine.state is policy.RunState.DONE:
                    break
                if self._machine.state in (policy.RunState.CONNECTING, policy.RunState.PREPARING) or self._is_dry:
                    self._fail(link.index, await link.explain(lost))
                    await link.give_up(lost)
                    break
                if not await self._come_back(link, lost):
                    break
        except HostError as exc:
            self._fail(link.index, exc)
        await link.close()  # not after anything else: who stops the run then needs it

    async def _come_back(self, link: HostLink, lost: said.LinkLost) -> bool:
        """Redial a host whose link broke; False when it counts as lost."""
        began = self._loop.time()
        lost_at = began if lost.kind == "eof" or self._vigil.awake.pause() else lost.last_heard
        if lost.kind in HOPELESS:
            self._machine.announce_loss(link.index, lost.detail, lost_at, began)
            self._act()
        else:
            self._audience.tell(seen.HostLinkLost(time.time(), link.name, lost.detail))
        self._machine.link_lost(link.index)
        verdict = await link.find_again(lost, lost_at + self._request.orphan_grace)
        now = self._loop.time()
        if verdict is None:
            self._audience.tell(seen.HostLinkBack(time.time(), link.name, now - lost_at))
            self._machine.link_back(link.index, now)
            return True
        self._lose(link, verdict, lost_at)
        return False

    def _lose(self, link: HostLink, verdict: Verdict, lost_at: float) -> None:
        link.is_settled = True
        self._audience.tell(seen.HostLost(time.time(), link.name, verdict.reason))
        self._machine.lost(link.index, verdict.reason, lost_at, verdict.is_clean, self._loop.time(), verdict.survivors)
        self._act()

    async def _let_agents_go(self) -> None:
        """Agents end by themselves once they were told; wait for that, but not for ever."""
        tasks = [link.task for link in self._links if link.task is not None and not link.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=LINGER)

    def _leave(self) -> None:
        self._has_left = True
        self._finished.set()

    # -- facts -----------------------------------------------------------------------------------------------------
    @guarded
    def _interrupt(self, number: signal.Signals) -> None:
        if self._emergency.is_on:
            return self._emergency.urge()
        if self._machine.have_all_ended:
            interrupts.urge()
        self._machine.interrupt(self._loop.time(), interrupts.STATUS[number], number.name)
        self._act()

    def _pass_signal(self, number: signal.Signals) -> None:
        self.signal_ranks(number.name, None)

    @guarded
    def _detach(self) -> None:
        """Let go of the run as soon as all its ranks run: the agents go on without us. Of one that has run, go."""
        if self._machine.have_all_ended:
            return self._interrupt(signal.SIGTERM)
        self._detaching.want()
        self._act()

    @guarded
    def signal_ranks(self, name: str, ranks: Sequence[int] | None) -> None:
        """Send a signal to the groups of ranks that run; None for all."""
        if self._machine.state in (policy.RunState.STARTING, policy.RunState.RUNNING):
            for link in self._links:
                link.send(messages.SIGNAL, signal=name, ranks=None if ranks is None else list(ranks))

    @guarded
    def stop(self, grace: float, reason: str) -> None:
        """End every rank, or give the run up when nothing was started yet."""
        self._machine.give_up(self._loop.time(), ExitStatus.TERMINATED, reason)  # says nothing once workers start
        self._machine.stop_asked(self._loop.time(), grace, reason)
        self._act()

    def _fail(self, index: int, error: HostError) -> None:
        if self._machine.state is policy.RunState.DONE or self._answers.has_failed(index):
            return  # it was given up before, and the first reason is the one that counts
        self._answers.failed(index, error)
        self._audience.tell(seen.HostFailed(time.time(), self._hosts[index].name, error.message))
        self._look_for_answers()
        self._act()

    def _look_for_answers(self) -> None:
        """All bad hosts are reported together: once every host has answered."""
        if self._answers.are_unusable:
            self._machine.give_up(self._loop.time(), ExitStatus.HOST_UNUSABLE, "hosts can't be used")
        elif self._answers.are_refusals:
            self._machine.give_up(self._loop.time(), ExitStatus.PLAN_REFUSED, "hosts refused the plan")

    def _deliver(self, index: int) -> None:
        link = self._links[index]
        for event in link.session.events():
            self._take(link, event)
            self._audience.pass_on(link.name, event, partial(self._local_rank, link), link)
        link.push_blobs()
        if self._machine.state in STARTED:
            self._skip_output(self._audience.unwanted)
        self._act()

    def _take(self, link: HostLink, event: said.SessionEvent) -> None:
        machine, now = self._machine, self._loop.time()
        match event:
            case said.Hello():
                self._take_hello(link, event)
            case said.Need(blobs):
                for blob in blobs:
                    if blob < len(self._files):
                        link.send_blob(blob, self._files[blob].content)
            case said.Prepared():
                link.prepared = event
                machine.phase(link.index, "prepared", now)
                machine.prepared(link.index, now)
                self._answers.taken(link.index)
                self._look_for_answers()
            case said.Refused(reasons):
                self._answers.refused(link.index, reasons)
                self._look_for_answers()
            case said.Started(rank, pid, at):
                machine.phase(link.index, "started", at)
                machine.started(rank, pid)
            case said.NotStarted(rank, at, error):
                machine.not_started(rank, at, error, now)
            case said.Exited():
                machine.exited(event, now)
            case said.Done(leftovers, swept, _, reasons):
                machine.phase(link.index, "ended", now)
                machine.done(link.index, leftovers, swept, reasons)
            case said.Complete():
                link.is_settled = True
                link.send(messages.FINISH, keep=self._request.keeps_folder)
                machine.settled(link.index, now)
            case said.StopAsked(reason, grace, is_orphaned):
                why = self._vigil.awake.reason_of_stop(f"{reason} on {link.name}", is_orphaned)
                machine.stop_asked(now, grace, why, is_orphaned)
            case said.LetGo() if self._request.handle_signals:
                self._detach()
            case said.LinkLost():
                link.lost = event

    def _take_hello(self, link: HostLink, hello: said.Hello) -> None:
        if not hello.facts.root:
            problem = f"no folder can hold a run: {hello.facts.root_problem}"
            self._fail(link.index, NothingWritable(problem, host=link.name))
            link.send(messages.FINISH, keep=False)
            return
        if hello.facts.root_problem:
            self._audience.notice(f"runs are kept in {hello.facts.root}: {hello.facts.root_problem}", link.name)
        link.hello = hello
        self._answers.usable(link.index)
        self._audience.tell(seen.HostConnected(time.time(), link.name, hello.facts.describe(), hello.is_cached))
        self._machine.phase(link.index, "ready", self._loop.time())
        self._machine.connected(link.index)
        self._look_for_answers()

    def _local_rank(self, link: HostLink, rank: int) -> int:
        assert self._preparation is not None
        return self._preparation.ranks[link.index].index(rank)

    # -- actions ---------------------------------------------------------------------------------------------------
    def _act(self) -> None:
        try:
            while due := self._machine.actions():
                for action in due:
                    self._do(action)
        except MnspawnError as exc:
            self._abort(exc)
        if self._machine.state is policy.RunState.DONE:
            self._finished.set()
        elif self._detaching.is_due and not self._detaching.has_begun:
            self._detaching.has_begun = True
            self._group.create_task(self._detaching.perform(self._leave), name="detach")

    def _do(self, action: actions.Action) -> None:
        match action:
            case actions.PrepareAll():
                hellos, notice = [link.hello for link in self._links if link.hello is not None], self._audience.notice
                self._preparation = prepare.Preparation(self._request, self._run, self._hosts, hellos, notice)
                self._machine.laid_out(self._preparation.ranks)
                for link in self._links:
                    link.session.expect(self._preparation.ranks[link.index])
                    link.send_message(self._preparation.message(link.index, self._files))
            case actions.StartAll():
                self._start_all()
            case actions.StopAll(grace, reason, is_hurried):
                self._audience.tell(seen.RunStopping(time.time(), reason, grace <= 0))
                if is_hurried:
                    self._skip_output(OUTPUT_STREAMS)  # who kills does not wait for gigabytes that are on the hosts
                for link in self._links:
                    if not link.is_settled:
                        link.send(messages.STOP, grace=grace)
            case actions.Dismiss():
                self._dismiss()
            case actions.GiveUpHost(index, reason):
                self._links[index].lose_patience(reason)
            case actions.Leave():
                self._leave()

    def _skip_output(self, streams: frozenset[seen.Stream]) -> None:
        """Leave streams on the hosts from now on."""
        if not streams <= self._skipped:
            self._skipped |= streams
            for link in self._links:
                link.send(messages.SKIP, streams=sorted(stream.value for stream in streams))

    def _start_all(self) -> None:
        assert self._preparation is not None
        answers = [link.prepared for link in self._links if link.prepared is not None]
        self._plan = self._preparation.complete(answers)
        if self._is_dry:
            self._dismiss()
            self._finished.set()
            return
        about = self._preparation.about()
        self._record.begin(self._hosts, about["world"], about["program"])
        world, shown = self._plan.layout.world_size, self._plan.describe(reveal=False)
        self._audience.tell(seen.RunStarting(time.time(), self._run, world, shown))
        for link, pod in zip(self._links, self._plan.pods, strict=True):
            link.is_started = True
            link.send_message(prepare.start_message(pod, self._request.is_forked))

    def _abort(self, error: MnspawnError) -> None:
        """The plan can't be carried out: nothing was started."""
        self._error = error
        self._dismiss()
        self._finished.set()

    def _dismiss(self) -> None:
        for link in self._links:
            link.is_settled = True
            link.send(messages.FINISH, keep=False)
            if link.task is not None and link.hello is None:
                link.task.cancel()
