"""Looks at hosts for `mnspawn hosts check`: one agent each, all at once, in two rounds. Decides nothing.

First every host says what it is; then, when all addresses are known, each tries those of others.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mnspawn.core import checkup, reachability, survey
from mnspawn.core.checkup import Clock, Finding
from mnspawn.core.facts import CheckupFacts, HostFacts, Reader
from mnspawn.engine.link import join
from mnspawn.engine.link.sites import Reached
from mnspawn.engine.request import RunRequest
from mnspawn.engine.run.prepare import PROBE_PORT, prelude_question
from mnspawn.errors import BootstrapError, HostError
from mnspawn.plan.launch_plan import Program
from mnspawn.transport.base import Connection
from mnspawn_agent.protocol.checks import MAX_TIME

CLOCK_SAMPLES = 5  # the quickest counts: on a busy network most of them wait somewhere
ANSWER_LIMIT = 1 << 20  # a host with hundreds of addresses and devices says some KiB
REACH_TIME = 30.0  # seconds: 64 silent hosts with 4 addresses and 2 ports, 128 at once, 3 s each, are 12 s
PRELUDE_TIME = 150.0  # seconds: the agent gives a prelude 60, and the interpreter it leads to as many
POOL_PORT = 20000  # where the rendezvous and ports that are not asked for by number are (the agent's ports.POOL)


@dataclass(frozen=True, slots=True)
class Examined:
    """What a checkup found on one host.

    Attributes:
        facts: what it said of itself, `more` what is only asked for a checkup; None where it could not be asked, and
            `findings` says why.
        seconds: until the connection stood.
        address: where other hosts reach it, "" where that is nowhere or was not looked at.
    """

    host: str
    facts: HostFacts | None
    more: CheckupFacts | None = None
    clock: Clock | None = None
    address: str = ""
    interface: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Visit:
    """A host that has sent its facts."""

    index: int
    wire: join.Wire
    view: survey.HostView
    more: CheckupFacts
    clock: Clock
    problems: dict[tuple[str, int], str] = field(default_factory=dict)
    problem: str = ""  # of the prelude

    def take_python(self, python: str, version: str) -> None:
        """Set the interpreter of the ranks, where a prelude leads to another one."""
        if re.fullmatch(r"\d+\.\d+", version):
            numbers = tuple(int(number) for number in version.split("."))
            self.view = replace(self.view, facts=replace(self.view.facts, python=python, python_version=numbers))


class Checkup:
    """One checkup of hosts.

    Args:
        network: where data addresses are looked for, if the inventory names none for a host.
        port: first of the ports that workers will use.
        on_progress: called with how many hosts are done with the first round.
        ranks: what a run would ask for: its prelude, python, workdir and env are looked at.
    """

    def __init__(
        self,
        reached: Reached,
        connect_timeout: float,
        *,
        network: str | None = None,
        port: int | None = None,
        on_progress: Callable[[int], None] = lambda count: None,
        ranks: RunRequest | None = None,
    ) -> None:
        self._ranks = ranks or RunRequest(Program("command", "true"))
        self._reached = reached
        self._timeout = connect_timeout
        self._network = network
        self._ports = (port or PROBE_PORT, POOL_PORT)
        self._on_progress = on_progress
        self._visits: dict[int, _Visit] = {}
        self._errors: dict[int, HostError] = {}
        self._connections: list[Connection] = []
        self._is_shared = False

    async def execute(self) -> list[Examined]:
        """Look at every host, in order; what keeps one from being looked at is a finding."""
        try:
            async with asyncio.TaskGroup() as group:
                async for index, outcome in self._reached.dial(self._timeout):
                    if isinstance(outcome, HostError):
                        self._fail(index, outcome)
                    else:
                        self._connections.append(outcome)
                        group.create_task(self._visit(index, outcome), name=f"check {self._name(index)}")
            stacks = [visit.view.facts.netid for visit in self._visits.values()]
            self._is_shared = len(stacks) > 1 and len(set(stacks)) == 1
            network, addresses = await self._try_each_other()
        finally:
            for visit in self._visits.values():
                await visit.wire.close()
            for connection in self._connections:
                await connection.close()
        return [self._examined(index, network, addresses) for index in range(len(self._reached.hosts))]

    def _name(self, index: int) -> str:
        return self._reached.hosts[index].name

    def _fail(self, index: int, error: HostError) -> None:
        self._errors[index] = error
        self._visits.pop(index, None)
        self._on_progress(len(self._visits) + len(self._errors))

    # -- the first round

    async def _visit(self, index: int, connection: Connection) -> None:
        host = self._reached.hosts[index]
        is_only = (host.prelude or self._ranks.prelude) is None
        python = host.python or self._ranks.python
        try:
            wire = await join.join(connection, host.name, ("checkup",), python, self._timeout, is_only=is_only)
        except HostError as exc:
            self._fail(index, exc)
            return
        try:
            self._visits[index] = await self._look(index, wire)
        except HostError as exc:
            self._fail(index, exc)
            await wire.close()
            return
        except BaseException:  # cancelled, most likely: it goes on, and the process is given up first
            await wire.close()
            raise
        self._on_progress(len(self._visits) + len(self._errors))

    async def _look(self, index: int, wire: join.Wire) -> _Visit:
        """Raises HostError."""
        host = self._reached.hosts[index]
        samples = []
        for _ in range(CLOCK_SAMPLES):
            asked, began = time.time(), time.monotonic()
            answer = await self._ask(wire, {"ask": "clock"}, self._timeout)
            with _sense(host.name):
                theirs = Reader(answer).number("time", 0, MAX_TIME)
            samples.append((asked, asked + time.monotonic() - began, theirs))
        said = await self._ask(wire, {"ask": "host"}, self._timeout)
        with _sense(host.name):
            facts, more = HostFacts.read(said), CheckupFacts.read(said)
        control = host.address or self._reached.targets[index].address or host.ssh_name
        network = host.network or self._network
        view = survey.HostView(host.name, control, host.data_address, network, host.slots, host.devices, facts)
        visit = _Visit(index, wire, view, more, checkup.clock_of(samples))
        if (question := prelude_question(self._ranks, host)) is not None:
            answer = await self._ask(wire, question, PRELUDE_TIME)
            with _sense(host.name):
                said = Reader(answer)
                visit.problem = said.text("problem")
                visit.take_python(said.text("python"), said.text("version"))
        return visit

    async def _ask(self, wire: join.Wire, question: Mapping[str, Any], timeout: float) -> object:
        """One question and its answer.

        Raises:
            HostError: there is none, or none that makes sense.
        """
        host = wire.host
        try:
            async with asyncio.timeout(timeout):
                await wire.process.write(json.dumps(question).encode("ascii") + b"\n")
                line = await wire.read_line(ANSWER_LIMIT)
        except TimeoutError:
            raise BootstrapError(
                f"the agent does not answer within {timeout:g} s",
                host=host,
                hint="is the host overloaded, or does a file system there hang?",
            ) from None
        with _sense(host):
            return json.loads(line)

    # -- the second round

    async def _try_each_other(self) -> tuple[list[Finding], dict[int, str]]:
        """Return what is wrong between hosts, and the address of each."""
        visits = [self._visits[index] for index in sorted(self._visits)]
        found: list[Finding] = []
        addressed: list[_Visit] = []
        for visit in visits:
            try:
                survey.usable_addresses(visit.view)
            except survey.Unfit as exc:
                hint = "correct the network in the inventory, or --network"
                found.append(Finding(visit.view.name, "network", str(exc), hint))
            else:
                addressed.append(visit)
        candidates = survey.candidate_addresses([visit.view for visit in addressed])
        for visit, own in zip(addressed, candidates, strict=True):
            if not own and len(addressed) > 1:
                message = "it has no address beside loopback and ones that other hosts have too"
                found.append(
                    Finding(visit.view.name, "network", message, "give it one, or data_address in the inventory")
                )
        addresses = {visit.index: own[0] for visit, own in zip(addressed, candidates, strict=True) if own}
        tried = _peers(addressed)
        async with asyncio.TaskGroup() as group:
            for position, peers in enumerate(tried):
                targets = [[address, port] for peer in peers for address in candidates[peer] for port in self._ports]
                if targets:
                    group.create_task(self._reach(addressed[position], targets))
        alive = [visit.index in self._visits for visit in addressed]
        failures = []
        for target, own in enumerate(candidates):
            answers = {p: addressed[p].problems for p, peers in enumerate(tried) if target in peers and alive[p]}
            if own and answers:
                address, missed = reachability.choose(own, self._ports, answers)
                addresses[addressed[target].index] = address
                failures += [reachability.FailedProbe(prober, target, problem) for prober, problem in missed.items()]
        names = [visit.view.name for visit in addressed]
        for fault in reachability.attribute(failures):
            address = addresses[addressed[fault.host].index]
            found.append(checkup.fault_found(fault, names, address, self._ports))
        return found, addresses

    async def _reach(self, visit: _Visit, targets: Sequence[Sequence[Any]]) -> None:
        try:
            answer = await self._ask(visit.wire, {"ask": "reach", "targets": targets}, REACH_TIME)
            with _sense(visit.wire.host):
                visit.problems = dict(Reader(answer).items("reach", len(targets), _read_failure))
        except HostError as exc:
            self._fail(visit.index, exc)
            await visit.wire.close()

    # -- the end

    def _examined(self, index: int, network: Sequence[Finding], addresses: Mapping[int, str]) -> Examined:
        name = self._name(index)
        if index in self._errors:
            return Examined(name, None, findings=(checkup.refusal(name, self._errors[index]),))
        visit = self._visits[index]
        own = [finding for finding in network if finding.host == name]
        address = addresses.get(index, "")
        interface = survey.interface_of(visit.view, address)
        if visit.problem:
            own.insert(0, checkup.prelude_found(name, visit.problem))
        found = checkup.examine(visit.view, visit.more, visit.clock, is_shared=self._is_shared)
        return Examined(name, visit.view.facts, visit.more, visit.clock, address, interface, (*found, *own))


@contextlib.contextmanager
def _sense(host: str) -> Iterator[None]:
    """Read a host's answer inside: raises BootstrapError where that makes no sense."""
    try:
        yield
    except (ValueError, RecursionError) as exc:  # Nonsense, or no JSON
        raise BootstrapError(f"an answer that makes no sense: {exc}", host=host) from exc


def _read_failure(said: Reader) -> tuple[tuple[str, int], str]:
    """An address and port that was not reached, and why."""
    address, port, why = said.fixed("item", 3)
    return (address.text("item"), port.whole("item", 1, 65535)), why.text("item")


def _peers(visits: Sequence[_Visit]) -> list[list[int]]:
    """Return the hosts that each host tries: none that shares its network stack, where loopback would do."""
    stacks = [visit.view.facts.netid for visit in visits]
    return [
        [peer for peer in reachability.peers_of(own, len(visits)) if stacks[peer] != stacks[own]]
        for own in range(len(visits))
    ]
