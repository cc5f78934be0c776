"""Starts runs, finds them, looks at them and gives them orders: the way in for the command line and for tools."""

import os
from collections.abc import Iterable, Mapping, Sequence

from mnspawn.core.pods import Pod, sources_of
from mnspawn.engine.look.ask import Answer
from mnspawn.engine.look.view import ViewOptions, ViewResult, exit_status_of
from mnspawn.engine.registry import KnownRun, Registry, default_root, pick
from mnspawn.engine.request import Listener, RunRequest
from mnspawn.engine.run.control import Control
from mnspawn.engine.run.detaching import Detached
from mnspawn.errors import HostError
from mnspawn.plan.launch_plan import LaunchPlan, Program
from mnspawn.report import RunReport
from mnspawn.transport.base import SshOptions
from mnspawn_inventory import Host

__all__ = [
    "Answer",
    "Control",
    "Detached",
    "KnownRun",
    "Listener",
    "Program",
    "RunRequest",
    "SshOptions",
    "ViewOptions",
    "ViewResult",
    "ask",
    "errors_of",
    "exit_status_of",
    "find_runs",
    "look_after",
    "order",
    "pick",
    "plan",
    "registry",
    "remember_end",
    "run",
    "view",
]


async def run(request: RunRequest, listeners: Sequence[Listener] = ()) -> RunReport | Detached:
    """Run a program on every host.

    Args:
        request: what to run, where and how.
        listeners: see every event, in order; the caller closes them.

    Returns:
        How it ended; Detached if it left its run in the background.

    Raises:
        UsageError: the request can't be carried out whatever the hosts say.
        HostsUnusable: hosts could not be used; nothing was started anywhere.
        PlanRefused: hosts refused the plan; nothing was started anywhere.
    """
    from mnspawn.engine.run.drive import Drive

    outcome = await Drive(request, listeners, is_dry=False).execute()
    assert isinstance(outcome, RunReport | Detached)
    return outcome


async def plan(request: RunRequest, listeners: Sequence[Listener] = ()) -> LaunchPlan:
    """Ask every host and decide everything, but start nothing.

    Returns:
        What every rank would get.

    Raises:
        UsageError, HostsUnusable, PlanRefused: as `run`.
    """
    from mnspawn.engine.run.drive import Drive

    outcome = await Drive(request, listeners, is_dry=True).execute()
    assert isinstance(outcome, LaunchPlan)
    return outcome


async def view(known: KnownRun, listeners: Sequence[Listener], options: ViewOptions) -> ViewResult:
    """Look at a run that was started before.

    Args:
        known: the run, as `find_runs` or the registry has it.
        listeners: see its output and its end; the caller closes them.
        options: what to look at, how long, and whether to take charge of the run.

    Returns:
        How the run stands or ended, and the hosts that could not be asked, with the reason.
    """
    from mnspawn.engine.look.watching import view_run

    return await view_run(known, listeners, options)


async def ask(
    hosts: tuple[Host, ...], words: Sequence[tuple[str, ...]], *, transport: str, ssh: SshOptions
) -> list[Answer]:
    """Put one question to each host, all at once.

    Args:
        words: for each host, a mode of the agent (`list`, `order` or `clean`) and its arguments.
        transport: for hosts whose inventory names none.

    Returns:
        An answer for each host, in their order: content, or the error that prevented it.
    """
    from mnspawn.engine.link.sites import reach_hosts
    from mnspawn.engine.look.ask import ask_all

    async with reach_hosts(hosts, transport, ssh) as reached:
        return await ask_all(reached, words, ssh.connect_timeout)


async def order(known: KnownRun, orders: Mapping[int, Sequence[str]]) -> list[Answer]:
    """Give orders to agents of a run, all at once.

    Args:
        orders: by node rank, the words of each: `("detach",)`, or `("signal", "SIGUSR1", "0", "1")` with its ranks.

    Returns:
        An answer for each order: content, or the error that prevented it.
    """
    hosts = tuple(known.hosts[node_rank] for node_rank in orders)
    words = [("order", known.run, str(node_rank), *own) for node_rank, own in orders.items()]
    return await ask(hosts, words, transport=known.transport, ssh=known.ssh)


def errors_of(answers: Iterable[Answer]) -> dict[str, HostError]:
    """Return the reasons of the hosts that did not answer, by host."""
    return {answer.host: answer.error for answer in answers if answer.error is not None}


async def find_runs(
    hosts: tuple[Host, ...], *, transport: str, ssh: SshOptions, misses_one: bool = False
) -> tuple[list[KnownRun], list[Answer]]:
    """Find the runs that hosts have folders of. Leaves out runs of which not all hosts were asked.

    Args:
        misses_one: take a single host that does not answer for the single one that a run misses.

    Returns:
        The runs, newest first, and the answer of each host.
    """
    from mnspawn.engine.registry import from_pods

    answers = await ask(hosts, [("list",)] * len(hosts), transport=transport, ssh=ssh)
    pods: dict[str, list[tuple[Pod, Host]]] = {}
    for answer in answers:
        for pod in answer.content.pods if answer.content is not None else ():
            if pod.is_here:
                pods.setdefault(pod.run, []).append((pod, hosts[answer.index]))
    silent = [hosts[answer.index] for answer in answers if answer.error is not None]
    runs = []
    for offered in pods.values():
        chosen = sources_of([(host.name, pod) for pod, host in offered])
        found = {node_rank: offered[position] for node_rank, position in chosen.items()}
        own = [found[node_rank][0] for node_rank in sorted(found)]
        places = {node_rank: host for node_rank, (_, host) in found.items()}
        missing = set(range(len(own[0].world))) - set(places)
        if misses_one and len(missing) == len(silent) == 1:
            places[missing.pop()] = silent[0]
        if not missing and len(places) == len(own[0].world):
            runs.append(from_pods(own, [places[node_rank] for node_rank in sorted(places)], ssh, transport))
    return sorted(runs, key=lambda known: -known.began), answers


def registry() -> Registry:
    """Return the runs that were started from this machine."""
    return Registry(default_root(os.environ))


def look_after(run: str) -> bool:
    """Leave a process on this machine that stops a detached run when one of its ranks or hosts fails.

    Returns:
        Whether there is one now, new or from before.
    """
    from mnspawn.engine import keeper

    return registry().holder(run) is not None or keeper.start(default_root(os.environ), run)


def remember_end(known: KnownRun, report: RunReport, *, is_better: bool = False) -> None:
    """Write down how a run that is known here has ended; if it is written already, only what is new of lost hosts.

    Args:
        is_better: replace the report that is there.

    Raises:
        OSError: it can't be written.
    """
    known_runs = registry()
    if not known_runs.knows(known.run):
        return
    if is_better or known_runs.report(known.run) is None:
        known_runs.write_report(known.run, report.describe())
    else:
        known_runs.add_news(known.run, report)
