"""The run's policy: barriers, first failure stops all, interrupts, lost hosts, exit status. No I/O and no clock."""

from collections.abc import Sequence
from enum import Enum

from mnspawn.errors import ExitStatus
from mnspawn.report import RankEnd, RankOutcome, RunReport

from .actions import Action, Dismiss, GiveUpHost, Leave, PrepareAll, StartAll, StopAll
from .agent_events import Exited
from .ledger import Cause, HostEntry, RankEntry
from .patience import PROOF_LIMIT, Patience

LEAVING = 3  # interrupts: the first stops, the second kills
EOF_SLACK = 0.25  # a dying agent's link can be seen to end a little after its workers' peers have noticed


class RunState(Enum):
    CONNECTING = "connecting"  # until every host said hello or failed
    PREPARING = "preparing"  # until every host is prepared or refused: nothing starts before
    STARTING = "starting"  # until every rank has started
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


class Awaited(Enum):
    """What a host has to say next, where the run can't go on without it; in words for people."""

    HELLO = "its first word"
    PREPARED = "its word that it is prepared"
    STARTED = "the start of its ranks"
    OUTPUT = "the rest of the output"


R = RunState
MOVES: dict[RunState, dict[str, RunState]] = {
    R.CONNECTING: {"all_connected": R.PREPARING, "give_up": R.DONE},
    R.PREPARING: {"all_prepared": R.STARTING, "give_up": R.DONE},
    R.STARTING: {"all_started": R.RUNNING, "stop": R.STOPPING, "all_ended": R.DONE},
    R.RUNNING: {"stop": R.STOPPING, "all_ended": R.DONE},
    R.STOPPING: {"stop": R.STOPPING, "all_ended": R.DONE},
    R.DONE: {"stop": R.DONE},
}


class RunMachine:
    """Facts in, actions out; `report` once the state is DONE.

    Args:
        hosts: names, in order; facts name a host by its index.
        grace: seconds between TERM and KILL.
        stops_on_failure: False lets the other ranks run on when one fails; somebody else decides then.
        timeout: seconds from `now` after which the run is stopped.
        proof_limit: seconds, after the grace, for an agent to prove that nothing is left.
    """

    def __init__(
        self,
        run: str,
        hosts: Sequence[str],
        grace: float,
        now: float,
        stops_on_failure: bool = True,
        timeout: float | None = None,
        proof_limit: float = PROOF_LIMIT,
    ) -> None:
        self.state = R.CONNECTING
        self.run = run
        self._grace = grace
        self._stops_on_failure = stops_on_failure
        self._hosts = [HostEntry(name) for name in hosts]
        self._ranks: dict[int, RankEntry] = {}
        # who is still waited for: looking at all of them for each fact would cost a big run seconds
        self._connecting = set(range(len(hosts)))
        self._preparing = set(range(len(hosts)))
        self._starting: set[int] = set()  # ranks
        self._unsettled = set(range(len(hosts)))  # more news will come
        self._first: dict[str, float] = {}  # when the first host reached each phase
        self._actions: list[Action] = []
        self._began = now
        self._started_at: float | None = None
        self._ended = now
        self._cause: Cause | None = None  # the first that is no rank's failure
        self._interrupts = 0
        self._is_adopted = False
        self._is_hurried = False
        self._grace_given: float | None = None  # with the last order to stop
        self._patience = Patience(proof_limit)
        self._timeout = timeout

    def _move(self, fact: str) -> None:
        try:
            self.state = MOVES[self.state][fact]
        except KeyError:
            raise AssertionError(f"run: {fact} in state {self.state.value}") from None

    def actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    @classmethod
    def adopt(
        cls, run: str, hosts: Sequence[str], ranks: Sequence[Sequence[int]], grace: float, now: float, began: float,
        proof_limit: float = PROOF_LIMIT,
    ) -> "RunMachine":  # fmt: skip
        """Make the machine of a run that others started: the facts of its past are still to come.

        Args:
            began: when it began, on the clock of `now`, as far as wall clocks say; what hosts report counts for more.
        """
        machine = cls(run, hosts, grace, began, proof_limit=proof_limit)
        machine.laid_out(ranks)
        machine.state = R.RUNNING
        machine._started_at = began
        machine._is_adopted = True
        machine._ended = now
        return machine

    def phase(self, host: int, name: str, at: float) -> None:
        """Note that a host reached one of report.PHASES; only the first time counts."""
        phases = self._hosts[host].phases
        if name in phases:
            return
        phases[name] = at
        self._first[name] = min(at, self._first.get(name, at))
        if self._is_adopted:  # nobody here saw it begin
            self._began = min(self._first.values())
            self._started_at = self._first.get("started", at)

    # -- before the start ------------------------------------------------------------------------------------------
    def connected(self, host: int) -> None:
        self._connecting.discard(host)
        if self.state is R.CONNECTING and not self._connecting:
            self._move("all_connected")
            self._actions.append(PrepareAll())

    def give_up(self, now: float, exit_status: int, reason: str) -> None:
        """End a run of which nothing was started: hosts can't be used, or refused, or the user asked."""
        if self.state in (R.CONNECTING, R.PREPARING):
            self._cause = self._cause or Cause(now, exit_status, reason)
            self._move("give_up")
            self._ended = now
            self._actions.append(Dismiss())

    def laid_out(self, ranks: Sequence[Sequence[int]]) -> None:
        """Note which ranks each host has, in host order; local ranks count from 0."""
        for index, (host, own) in enumerate(zip(self._hosts, ranks, strict=True)):
            host.ranks = tuple(own)
            host.running = set(own)
            for local_rank, rank in enumerate(own):
                self._ranks[rank] = RankEntry(rank, local_rank, index)
        self._starting = set(self._ranks)

    def prepared(self, host: int, now: float) -> None:
        self._preparing.discard(host)
        if self.state is R.PREPARING and not self._preparing:
            self._move("all_prepared")
            self._started_at = now
            self._actions.append(StartAll())

    # -- workers --------------------------------------------------------------------------------------------------
    def started(self, rank: int, pid: int) -> None:
        if rank in self._ranks:
            self._ranks[rank].end = RankEnd(pid=pid)
            self._starting.discard(rank)
        if self.state is R.STARTING and not self._starting:
            self._move("all_started")

    def not_started(self, rank: int, at: float, error: str, now: float) -> None:
        if rank in self._ranks:
            entry = self._ranks[rank]
            entry.end, entry.ended_at = RankEnd(error=error), at
            self._note_end(entry, now)
            self._stop(now, self._grace, f"rank {rank} could not be started")

    def exited(self, exited: Exited, now: float) -> None:
        """Note that a worker ended. Reporting it again changes nothing."""
        rank, end = exited.rank, exited.end
        if rank not in self._ranks:
            return
        entry = self._ranks[rank]
        self._starting.discard(rank)
        entry.end, entry.ended_at = end, exited.at
        name = self._hosts[entry.host].name
        self._note_end(entry, now)
        if end.stopped:
            if not self._is_adopted:  # else the order to stop is one of the facts still to come
                self._stop(now, self._grace, f"host {name} stopped its workers")
        elif end.code != 0 and self._stops_on_failure:
            self._stop(now, self._grace, f"rank {rank} on {name} failed")

    def _note_end(self, entry: RankEntry, now: float) -> None:
        host = self._hosts[entry.host]
        host.running.discard(entry.rank)
        if not host.running:
            self._expect_end(entry.host, now)

    @property
    def have_all_ended(self) -> bool:
        """Whether every rank has ended: from then on, neither the user nor the clock changes the result."""
        return bool(self._ranks) and not any(host.running for host in self._hosts)

    # -- hosts -----------------------------------------------------------------------------------------------------
    def done(self, host: int, leftovers: Sequence[int], swept: int, reasons: Sequence[str] = ()) -> None:
        entry = self._hosts[host]
        entry.is_done = True
        if not self._is_hurried:
            self._patience.forget(host)
        entry.leftovers, entry.reasons, entry.swept = tuple(leftovers), tuple(reasons), swept
        entry.is_confirmed = not leftovers

    def settled(self, host: int, now: float) -> None:
        """The host has nothing more to say."""
        self._unsettled.discard(host)
        self._patience.forget(host)
        self.give_up(now, ExitStatus.HOST_LOST, f"host {self._hosts[host].name} stopped before the start")
        self._look_for_end(now)

    def link_lost(self, host: int) -> None:
        """Note that the link is being redialled; others decide for how long."""
        self._hosts[host].is_away = True
        self._patience.forget(host)

    def link_back(self, host: int, now: float) -> None:
        """Note that the agent is connected again; an order to stop reaches it only now."""
        self._hosts[host].is_away = False
        self._expect_end(host, now)

    def awaited_of(self, host: int) -> Awaited | None:
        """Return what the run waits for from this host; None for nothing, or when the wait is bounded anyway."""
        entry = self._hosts[host]
        if self.state is R.CONNECTING and host in self._connecting:
            return Awaited.HELLO
        if self.state is R.PREPARING and host in self._preparing:
            return Awaited.PREPARED
        if self.state is R.STARTING and not self._starting.isdisjoint(entry.ranks):
            return Awaited.STARTED
        return Awaited.OUTPUT if entry.is_done and host in self._unsettled else None

    def _expect_end(self, host: int, now: float) -> None:
        entry = self._hosts[host]
        # a host that is done may still have much output, unless it was ordered to skip that
        if (entry.is_done and not self._is_hurried) or entry.is_away or host not in self._unsettled:
            return
        if self._grace_given is not None or not entry.running:
            self._patience.expect(host, now, self._grace if self._grace_given is None else self._grace_given)

    def lost(
        self,
        host: int,
        reason: str,
        lost_at: float,
        is_clean: bool,
        now: float,
        survivors: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Note that no link to the host will come back.

        Args:
            lost_at: when the last sign of life came.
            is_clean: it was seen that nothing of the run is left there.
            survivors: (pid, reason) of what would not die.
        """
        entry = self._hosts[host]
        if host not in self._unsettled:
            return
        self._unsettled.discard(host)
        entry.lost, entry.is_confirmed = reason, is_clean
        if survivors:
            entry.leftovers, entry.reasons = tuple(pid for pid, _ in survivors), tuple(why for _, why in survivors)
        self._patience.forget(host)
        if self.state in (R.CONNECTING, R.PREPARING):
            self.give_up(now, ExitStatus.HOST_UNUSABLE, f"{entry.name}: {reason}")
            return
        if entry.is_done:
            entry.is_confirmed = not entry.leftovers  # the proof had come, only output is missing
        self.announce_loss(host, reason, lost_at, now)
        self._look_for_end(now)

    def announce_loss(self, host: int, reason: str, lost_at: float, now: float) -> None:
        """Stop the others at once; the host is reported lost when it is known what is left there."""
        name = self._hosts[host].name
        if self.state in (R.STARTING, R.RUNNING, R.STOPPING):
            self._blame(Cause(lost_at, ExitStatus.HOST_LOST, f"host {name} was lost: {reason}"))
            self._stop(now, self._grace, f"host {name} was lost")

    def _blame(self, cause: Cause) -> None:
        if self._cause is None or cause.at < self._cause.at:
            self._cause = cause

    # -- the user and the clock ------------------------------------------------------------------------------------
    def interrupt(self, now: float, exit_status: int, name: str) -> None:
        """Stop the first time, kill the second, leave the third; once all ranks have ended, leave at once."""
        self._interrupts += 1
        if self.state in (R.CONNECTING, R.PREPARING):
            self.give_up(now, exit_status, f"{name} before the start")
        elif self._interrupts == 1:
            if self.have_all_ended:
                reason = f"{name} when all had ended; output that was not read stays on the hosts"
                self._stop(now, self._grace, reason, is_hurried=True)
            else:
                if self.state in (R.STARTING, R.RUNNING):
                    self._blame(Cause(now, exit_status, f"interrupted by {name}"))
                self._stop(now, self._grace, name)
        elif self._interrupts == 2:
            self._stop(now, 0.0, f"{name} again", is_hurried=True)
        elif self._interrupts == LEAVING:
            self._ended = now
            self._actions.append(Leave())

    def stop_asked(self, now: float, grace: float, reason: str, is_orphaned: bool = False) -> None:
        """Stop the other hosts: somebody stopped the run on this one, or (`is_orphaned`) its agent did."""
        self.give_up(now, ExitStatus.TERMINATED, f"stopped before the start: {reason}")
        if self.state in (R.STARTING, R.RUNNING):
            status = ExitStatus.HOST_LOST if is_orphaned else ExitStatus.TERMINATED
            if not self.have_all_ended:
                self._blame(Cause(now, status, f"stopped: {reason}"))
            self._stop(now, grace, reason, is_hurried=grace == 0.0 < self._grace)
        elif self.state is R.STOPPING and grace == 0.0:
            self._stop(now, 0.0, reason, is_hurried=True)

    def timed_out(self, now: float, seconds: float) -> None:
        reason = f"timed out after {seconds:g} s"
        if self.state in (R.CONNECTING, R.PREPARING):
            self.give_up(now, ExitStatus.TIMED_OUT, reason)
        elif self.state in (R.STARTING, R.RUNNING) and not self.have_all_ended:
            self._blame(Cause(now, ExitStatus.TIMED_OUT, reason))
            self._stop(now, self._grace, reason)
        elif self.state is not R.DONE:  # it is ending, and not in time
            self._stop(now, 0.0, reason, is_hurried=True)

    @property
    def deadline(self) -> float | None:
        """Return when to call `on_time`."""
        times = (self._patience.deadline, None if self._timeout is None else self._began + self._timeout)
        return min((at for at in times if at is not None), default=None)

    def on_time(self, now: float) -> None:
        if self._timeout is not None and now >= self._began + self._timeout:
            seconds, self._timeout = self._timeout, None
            self.timed_out(now, seconds)
        for host, seconds in self._patience.overdue(now):
            self._actions.append(GiveUpHost(host, f"its agent did not finish within {seconds:.0f} s"))

    def _stop(self, now: float, grace: float, reason: str, is_hurried: bool = False) -> None:
        if self.state in (R.CONNECTING, R.PREPARING):
            return  # a host reports workers that nobody has started
        is_first = self.state in (R.STARTING, R.RUNNING)
        is_harder = self._grace_given is None or grace < self._grace_given
        self._move("stop")
        if self.state is R.STOPPING and (is_first or (is_hurried and (is_harder or not self._is_hurried))):
            self._is_hurried = is_hurried
            self._grace_given = grace if self._grace_given is None else min(grace, self._grace_given)
            self._actions.append(StopAll(grace, reason, is_hurried))
            for host in range(len(self._hosts)):
                self._expect_end(host, now)

    def _look_for_end(self, now: float) -> None:
        if self.state in (R.STARTING, R.RUNNING, R.STOPPING) and not self._unsettled:
            self._move("all_ended")
            ends = [rank.ended_at for rank in self._ranks.values() if rank.ended_at is not None]
            # a later look at a run learns of its end when that is long past
            self._ended = max(ends) if self._is_adopted and ends else now

    # -- the end ---------------------------------------------------------------------------------------------------
    def report(self) -> RunReport:
        """Return what became of the run; final once the state is DONE."""
        began = self._started_at or 0.0
        ranks = tuple(rank.outcome(self._hosts[rank.host].name, began) for _, rank in sorted(self._ranks.items()))
        failed = [r for r in ranks if r.has_failed]
        first = min(failed, key=lambda r: (r.ended_at if r.ended_at is not None else 0.0, r.rank), default=None)
        cause = self._cause
        if first is not None and cause is not None:
            slack = EOF_SLACK if cause.exit_status == ExitStatus.HOST_LOST else 0.0
            if self._absolute(first) < cause.at - slack:
                cause = None
            else:
                first = None
        hosts = tuple(h.outcome(self._began, self._started_at is not None) for h in self._hosts)
        if first is not None:
            status, reason = first.exit_status, f"rank {first.rank} on {first.host}: {first.cause}"
        elif cause is not None:
            status, reason = cause.exit_status, cause.reason
        elif bad := [r for r in ranks if r.stopped or r.code != 0]:  # its agent did it: nobody here knows why
            end = "was stopped on its host" if bad[0].stopped else bad[0].cause
            status, reason = int(ExitStatus.HOST_LOST), f"rank {bad[0].rank} on {bad[0].host}: {end}"
        else:
            status, reason = int(ExitStatus.OK), "every rank ended with status 0"
        if status == ExitStatus.OK and self._started_at is not None and not all(h.is_confirmed for h in hosts):
            status, reason = int(ExitStatus.HOST_LOST), "not every host confirmed that nothing is left"
        return RunReport(
            self.run, status, reason, self._ended - self._began, first, ranks, hosts, self._interrupts >= LEAVING
        )

    def _absolute(self, outcome: RankOutcome) -> float:
        return (outcome.ended_at or 0.0) + (self._started_at or 0.0)
