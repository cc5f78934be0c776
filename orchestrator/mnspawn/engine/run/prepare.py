"""Turns what hosts said of themselves into what they are asked to do. Its only I/O is reading the script."""

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnspawn.core import survey
from mnspawn.core.agent_events import Hello, Prepared
from mnspawn.engine.request import RunRequest
from mnspawn.errors import PlanRefused, UsageError
from mnspawn.plan import contract, launch_plan, layout
from mnspawn_agent.protocol import messages
from mnspawn_inventory import Host, InventoryError

MAX_SCRIPT = 64 << 20  # bytes of one file; data does not belong into it
PROBE_PORT = 6070  # where endpoints usually are, so that a firewall that would hinder them is met


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file that every host needs.

    Attributes:
        path: where a host may have it already.
        digest: sha256 in hexadecimal, "" when only the hosts have the file.
    """

    name: str
    path: str | None
    content: bytes
    digest: str

    @classmethod
    def of(cls, name: str, path: str | None, content: bytes) -> "RunFile":
        return cls(name, path, content, hashlib.sha256(content).hexdigest())


def load_files(request: RunRequest) -> tuple[RunFile, ...]:
    """Return the files of a run: the script first, if the program is one, then those of the request.

    Raises:
        UsageError: the script is neither here nor perhaps on the hosts, or it is no file.
    """
    own = tuple(RunFile.of(name, None, content) for name, content in request.files)
    if request.program.kind != "script":
        return own
    path = Path(request.program.target)
    try:
        if path.is_dir():
            raise UsageError(f"expected a script, found the folder {path}", place="SCRIPT")
        with path.open("rb") as file:
            content = file.read(MAX_SCRIPT + 1)  # devices have no end
    except FileNotFoundError:
        if path.is_absolute():  # perhaps the hosts have it
            return (RunFile(path.name, str(path), b"", ""), *own)
        raise UsageError(
            f"expected a script, found no file {str(path)!r}",
            place="SCRIPT",
            hint="use -m for a module, --no-python for a command, an absolute path for a file that only hosts have",
        ) from None
    except OSError as exc:
        raise UsageError(f"can't read {path}: {exc.strerror}", place="SCRIPT") from exc
    if len(content) > MAX_SCRIPT:
        raise UsageError(f"expected a script of at most {MAX_SCRIPT >> 20} MiB, found more in {path}", place="SCRIPT")
    return (RunFile.of(path.name, str(path.absolute()), content), *own)


def check_request(request: RunRequest, run: str) -> None:
    """Check what can be checked before any host is contacted.

    Raises:
        UsageError: contracts, variables or arguments that can't be used.
    """
    site = layout.Site("host", "127.0.0.1", "", (1,))
    launch_plan.build(
        spec_of(request, run), layout.assign([site], 1, 2), [launch_plan.HostContext("python3", "/", "/")]
    )
    for host in request.hosts:
        environment_of(host)
    if isinstance(request.nproc, int):
        _check_most(request.hosts, request.nproc)


def foresee(request: RunRequest) -> tuple[str, ...]:
    """Return the plan's notes on the variables that were given, as far as they need no host."""
    hosts = request.hosts or (Host(name="host"),)
    sites = [layout.Site(host.name, "unknown", "", (1, 2)) for host in hosts]
    contexts = [launch_plan.HostContext("python3", "/", "/", host_env=environment_of(host)) for host in hosts]
    return launch_plan.build(spec_of(request, "run"), layout.assign(sites, 3, 4), contexts).notes


def prelude_question(request: RunRequest, host: Host) -> dict[str, Any] | None:
    """Return what a checkup asks about the prelude of a host; None where there is none."""
    lines = host.prelude or request.prelude
    if lines is None:
        return None
    context = launch_plan.HostContext("python3", "/", "/", host_env=environment_of(host))
    sites = [layout.Site(host.name, "127.0.0.1", "", (PROBE_PORT,))]
    (pod,) = launch_plan.build(spec_of(request, make_run_id()), layout.assign(sites, 1, 2), [context]).pods
    return {
        "ask": "prelude",
        "lines": lines,
        "unset": list(pod.unset),
        "env": pod.env | pod.workers[0].env,
        "python": host.python or request.python,
        "workdir": host.workdir or request.workdir,
    }


def _check_most(hosts: Sequence[Host], nproc: int) -> None:
    above = [host for host in hosts if host.max_slots is not None and nproc > host.max_slots]
    if above:
        place = above[0].origin("max_slots")
        more = f", and on {len(above) - 1} more" if len(above) > 1 else ""
        raise UsageError(
            f"expected at most {above[0].max_slots} ranks on {above[0].name} (max_slots), found {nproc}{more}",
            place=None if place is None else str(place),
            hint="fewer by --nproc-per-node, or a larger max_slots where the host allows it",
        )


def spec_of(request: RunRequest, run: str) -> launch_plan.LaunchSpec:
    return launch_plan.LaunchSpec(run, request.program, request.contracts, request.env, request.keep_proxy)


def environment_of(host: Host) -> tuple[tuple[str, str], ...]:
    """Return the inventory's variables of a host, with secrets looked up.

    Raises:
        UsageError: a secret can't be found.
    """
    try:
        return tuple(host.environment(os.environ).items())
    except InventoryError as exc:
        raise UsageError(str(exc), hint=exc.hint) from exc


def view_of(host: Host, hello: Hello, request: RunRequest) -> survey.HostView:
    given = {name: (str(value), "--env") for name, value in request.env if isinstance(value, launch_plan.Forwarded)}
    given |= {name: (value, "the inventory") for name, value in host.env}
    given |= {name: (value, "--env") for name, value in request.env if not isinstance(value, launch_plan.Forwarded)}
    return survey.HostView(
        host.name,
        host.address or host.ssh_name,
        host.data_address,
        host.network or request.network,
        host.slots,
        host.devices,
        hello.facts,
        {name: given[name] for name in survey.VISIBLE.values() if name in given},
    )


class Preparation:
    """A plan in two steps: PREPARE for every host, then, with their answers, the LaunchPlan.

    Args:
        remark: called with what a user should know, and the host it is about, if one.

    Raises (constructor):
        PlanRefused: hosts that can't take part.
    """

    def __init__(
        self,
        request: RunRequest,
        run: str,
        hosts: Sequence[Host],
        hellos: Sequence[Hello],
        remark: Callable[[str, str | None], None] = lambda text, host: None,
    ) -> None:
        self._request = request
        self._run = run
        self._hosts = hosts
        self._remark = remark
        self.views = [view_of(host, hello, request) for host, hello in zip(hosts, hellos, strict=True)]
        self.shares = self._share_out()
        for view, share in zip(self.views, self.shares, strict=True):
            if text := survey.remark_on(view, share):
                remark(text, view.name)
        counts = [share.count for share in self.shares]
        self.ranks = layout.ranks_of(counts)
        self._probed: list[list[int]] = [[] for _ in counts]  # the hosts that each host tries
        for other in range(len(counts)):
            for prober in survey.probers_of(other, len(counts)):
                self._probed[prober].append(other)
        self._about = self.about()
        self._check_networks()
        self.candidates = survey.candidate_addresses(self.views)
        self._draft = self._make_draft()

    def _check_networks(self) -> None:
        unfit = []
        for view in self.views:
            try:
                if view.data_address is None:
                    survey.usable_addresses(view)
            except survey.Unfit as exc:
                unfit.append((view.name, str(exc)))
        if unfit:
            raise PlanRefused(unfit, hint="choose another network with --network")

    def _share_out(self) -> list[survey.Share]:
        shares: list[survey.Share] = []
        unfit: list[tuple[str, str]] = []
        hint = None
        if self._request.share is not None:
            shares = list(self._request.share(self.views))
        for view in self.views if self._request.share is None else ():
            try:
                shares.append(survey.share_of(view, self._request.nproc))
                survey.check_share(view, shares[-1])
            except survey.Unfit as exc:
                unfit.append((view.name, str(exc)))
                hint = survey.WAYS_OUT if isinstance(exc, survey.DevicesUnusable) else hint
        if not unfit:
            unfit = [
                (host.name, f"more ranks than it may have: expected at most {host.most}, found {share.count}")
                for host, share in zip(self._hosts, shares, strict=True)
                if host.max_slots is not None and share.count > host.max_slots
            ]
        if unfit:
            raise PlanRefused(unfit, hint=hint)
        return shares

    def message(self, index: int, run_files: Sequence[RunFile]) -> dict[str, Any]:
        """Return PREPARE for one host."""
        request = self._request
        host = self._hosts[index]
        workdir = host.workdir or request.workdir
        draft = self._draft.pods[index]
        return messages.make(
            messages.PREPARE,
            run=self._run,
            node_rank=index,
            ranks=list(self.ranks[index]),
            python=host.python or request.python,
            command=request.program.target if request.program.kind == "command" else None,
            prelude=self._prelude_of(host),
            unset=list(draft.unset),
            env=draft.env | draft.workers[0].env,
            argument_bytes=launch_plan.size_of(draft.argv),
            files=[
                {"name": c.name, "path": c.path, "digest": c.digest, "size": len(c.content), "blob": blob}
                for blob, c in enumerate(run_files)
            ],
            has_results=request.has_results,
            workdir=workdir or _here(),
            is_workdir_required=workdir is not None,
            start_port=self._start_port(index),
            master_port=request.master_port if index == 0 else None,
            extra_ports=2 if index == 0 else 0,
            probes=self._probes(index),
            grace=request.grace,
            orphan_grace=0.0 if request.ends_with_us else request.orphan_grace,
            silence_limit=None if request.ends_with_us else request.limits.silence,
            python_version=request.python_version and list(request.python_version),
            stops_on_failure=request.stops_on_failure,
            about=self._about,
            **{**dict.fromkeys(messages.OPTIONS), **request.for_agents},
        )

    def _prelude_of(self, host: Host) -> str | None:
        return host.prelude or self._request.prelude

    def _make_draft(self) -> launch_plan.LaunchPlan:
        """Return the plan as far as it is known before hosts are prepared: ports and addresses may still change.

        Hosts look programs up in its environments, and run their preludes there.
        """
        first = self._request.start_port or PROBE_PORT
        sites, contexts = [], []
        for view, share, own, host in zip(self.views, self.shares, self.candidates, self._hosts, strict=True):
            address = own[0] if own else view.control
            interface = survey.interface_of(view, address)
            ports = tuple(min(first + number, 65535) for number in range(share.count))
            sites.append(layout.Site(view.name, address, interface, ports, share.devices, share.kind))
            contexts.append(self._context(host, view, view.facts.python or "python3", "/", "/", None))
        master = self._request.master_port or first
        return launch_plan.build(spec_of(self._request, self._run), layout.assign(sites, master, first), contexts)

    def _context(
        self, host: Host, view: survey.HostView, python: str, run_dir: str, workdir: str, script: str | None
    ) -> launch_plan.HostContext:
        return launch_plan.HostContext(
            python,
            run_dir,
            workdir,
            script,
            dict(view.facts.env),
            environment_of(host),
            self._prelude_of(host),
            frozenset(name for name, _ in host.secrets),
        )

    def _start_port(self, index: int) -> int | None:
        """Return the first port that was asked for; hosts that share a network stack get consecutive ones."""
        if self._request.start_port is None:
            return None
        stack = self.views[index].facts.netid
        before = [len(self.ranks[other]) for other in range(index) if self.views[other].facts.netid == stack]
        return min(self._request.start_port + sum(before), 65535)

    def about(self) -> dict[str, Any]:
        """Return what a pod's folder on the host says about the run; no environment, since that may hold secrets."""
        program = self._request.program
        return {
            "name": self._request.name,
            "program": {"kind": program.kind, "target": program.target, "args": list(program.args)},
            "hosts": [view.name for view in self.views],
            "world": [len(ranks) for ranks in self.ranks],
        }

    def _probes(self, prober: int) -> list[list[Any]]:
        """Return the addresses that this host tries: others' candidates, if not configured or on its network stack."""
        own_stack = self.views[prober].facts.netid
        return [
            [address, self._request.start_port or PROBE_PORT]
            for other in self._probed[prober]
            if self.views[other].data_address is None and self.views[other].facts.netid != own_stack
            for address in self.candidates[other]
        ]

    def complete(self, answers: Sequence[Prepared]) -> launch_plan.LaunchPlan:
        """Return the whole plan.

        Raises:
            PlanRefused: hosts that the others can't reach.
            UsageError: as launch_plan.build.
        """
        sites, unfit = [], []
        for index, (view, answer) in enumerate(zip(self.views, answers, strict=True)):
            probers = survey.probers_of(index, len(self.views))
            reach = [(self.views[prober].name, answers[prober].reach) for prober in probers]
            try:
                address, interface = survey.choose_address(view, self.candidates[index], reach)
            except survey.Unfit as exc:
                unfit.append((view.name, str(exc)))
                continue
            share = self.shares[index]
            may_have = survey.may_have_accelerators(view)
            sites.append(layout.Site(view.name, address, interface, answer.ports, share.devices, share.kind, may_have))
        if unfit:
            raise PlanRefused(unfit, hint="name a network that all hosts share with --network")
        master, coordinator = answers[0].extra_ports[:2]
        contexts = [
            self._context(host, view, a.python, a.run_dir, a.workdir, next(iter(a.files), None))
            for a, view, host in zip(answers, self.views, self._hosts, strict=True)
        ]
        launch = launch_plan.build(
            spec_of(self._request, self._run), layout.assign(sites, master, coordinator), contexts
        )
        program = self._request.program
        for note in (*launch.notes, *contract.advice((program.target, *program.args), launch.layout)):
            self._remark(note, None)
        return launch


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed: no host has it either
        return "~"


def make_run_id() -> str:
    """Return an id that is short, unique among a person's runs, and safe in paths and environments."""
    return secrets.token_hex(4)


def start_message(pod: launch_plan.PodPlan, is_forked: bool = False) -> dict[str, Any]:
    """Return START for one host."""
    return messages.make(
        messages.START,
        unset=list(pod.unset),
        env=pod.env,
        files=[list(file) for file in pod.files],
        is_forked=is_forked,
        argv=list(pod.argv),
        workers=[{"rank": t.rank, "local_rank": t.local_rank, "env": t.env} for t in pod.workers],
    )
