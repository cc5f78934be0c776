"""Carries out one run, from the first dial to the report: the tasks for its hosts, signals, and how it comes out."""

import asyncio
import contextlib
import time
from collections.abc import Sequence

from mnspawn import events as seen
from mnspawn.engine.link.link import HostLink, Verdict
from mnspawn.engine.link.sites import Reached, reach_place
from mnspawn.engine.link.stuck_agents import StuckAgentCheck
from mnspawn.engine.link.suspension import keep_time
from mnspawn.engine.look.emergency import Emergency
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.errors import ExitStatus, HostError, UsageError
from mnspawn.plan.launch_plan import LaunchPlan
from mnspawn.report import RunReport
from mnspawn.system import interrupts
from mnspawn.transport.base import Connection

from . import missing_modules, prepare
from .active_run import ActiveRun
from .control import Control
from .detaching import Detached


class Drive:
    """One run.

    Args:
        is_dry: stop before the start and return the plan.
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
        self._emergency = Emergency(request.grace, request.limits)
        self._has_result = False

    async def execute(self) -> RunReport | LaunchPlan | Detached:
        """Do it all; raises as `api.run` says."""
        request = self._request
        prepare.check_request(request, self._run)
        files = prepare.load_files(request)
        if request.is_detached and request.sandbox:
            raise UsageError("expected hosts that outlive this command, found a sandbox", place="--detach")
        async with reach_place(request.hosts, request.sandbox, request.transport, request.ssh) as reached:
            active = ActiveRun(request, self._run, self._is_dry, reached, files, self._listeners, self._emergency)
            with active.record.kept(), self._signals(active):
                try:
                    await self._drive(active, reached)
                    return self._conclude(active)
                except BaseException as exc:
                    await self._emergency.stop_after(exc, active.links)
                    raise
                finally:
                    async with asyncio.TaskGroup() as closing:
                        for link in active.links:
                            closing.create_task(link.close())

    def _signals(self, active: ActiveRun) -> contextlib.AbstractContextManager[None]:
        if not self._request.handle_signals:
            return contextlib.nullcontext()
        return interrupts.handled(active.interrupt, active.pass_signal, active.detach, lambda: self._has_result)

    async def _drive(self, active: ActiveRun, reached: Reached) -> None:
        serving: dict[int, asyncio.Task[None]] = {}
        stuck = StuckAgentCheck(active.machine, active.links, active.suspension, self._request.limits)
        async with asyncio.TaskGroup() as group:
            parts = (
                self._serve(active, reached, serving),
                keep_time(active.machine, active.on_time),
                stuck.run(),
                active.detaching.run(active.leave),
            )
            tasks = [group.create_task(part) for part in parts]
            self._control.bind(active)
            await active.finished.wait()
            self._control.release()
            if active.bug is not None:
                raise active.bug
            if not active.has_left:
                await self._let_agents_go(active.links, serving)
            for task in tasks:
                task.cancel()

    async def _let_agents_go(self, links: Sequence[HostLink], serving: dict[int, asyncio.Task[None]]) -> None:
        """Wait for agents to end, as they were told to, but not for ever."""
        for index, task in serving.items():
            if links[index].hello is None:
                task.cancel()
        waiting = [task for task in serving.values() if not task.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=self._request.limits.linger)

    async def _serve(self, active: ActiveRun, reached: Reached, serving: dict[int, asyncio.Task[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            async for index, outcome in reached.dial(self._request.ssh.connect_timeout):
                if isinstance(outcome, HostError):
                    active.fail(index, outcome)
                else:
                    active.connected(index)
                    link = active.links[index]
                    serving[index] = group.create_task(
                        self._serve_host(active, link, outcome), name=f"link {link.name}"
                    )

    async def _serve_host(self, active: ActiveRun, link: HostLink, connection: Connection) -> None:
        try:
            wire = await link.bring_up(connection)
            while True:
                lost = active.suspension.explain(await link.serve(wire))
                if active.is_over_for(link):
                    break
                if active.is_before_start:
                    active.fail(link.index, await link.explain(lost))
                    await link.give_up_before_start(lost)
                    break
                lost_at = active.link_lost(link, lost)
                found = await link.find_again(lost, lost_at + self._request.orphan_grace)
                if isinstance(found, Verdict):
                    active.host_lost(link, found, lost_at)
                    break
                active.link_back(link, lost_at)
                wire = found
        except HostError as exc:
            active.fail(link.index, exc)
        await link.close()  # not after anything else: an emergency needs it

    def _conclude(self, active: ActiveRun) -> RunReport | LaunchPlan | Detached:
        if active.error is not None:
            raise active.error
        if active.plan is not None and self._is_dry:
            return active.plan
        if active.detaching.outcome is not None:
            return active.detaching.outcome
        report = missing_modules.with_hint(active.machine.report(), self._request.program, active.plan)
        if report.exit_status == ExitStatus.HOST_UNUSABLE and (error := active.answers.unusable()) is not None:
            raise error
        if report.exit_status == ExitStatus.PLAN_REFUSED and (error := active.answers.refusal()) is not None:
            raise error
        active.delivery.emit(seen.RunFinished(time.time(), self._run, report.exit_status, report.describe()))
        active.record.end(report)
        self._has_result = True
        return report
