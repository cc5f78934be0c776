"""Runs a program on many hosts: the one way in for the command line, for people and for tools."""

from collections.abc import Sequence

from .engine.request import Listener, RunRequest
from .plan import LaunchPlan
from .report import RunReport

__all__ = ["Listener", "RunRequest", "plan", "run"]


async def run(request: RunRequest, listeners: Sequence[Listener] = ()) -> RunReport:
    """Run a program on every host and wait for its end.

    Raises:
        UsageError: the request can't be carried out whatever the hosts say.
        HostsUnusable: hosts could not be used; nothing was started anywhere.
        PlanRefused: hosts refused the plan; nothing was started anywhere.
    """
    from .engine.drive import Drive

    outcome = await Drive(request, listeners, is_dry=False).execute()
    assert isinstance(outcome, RunReport)
    return outcome


async def plan(request: RunRequest, listeners: Sequence[Listener] = ()) -> LaunchPlan:
    """Ask every host, decide everything, start nothing; raises as `run` does."""
    from .engine.drive import Drive

    outcome = await Drive(request, listeners, is_dry=True).execute()
    assert isinstance(outcome, LaunchPlan)
    return outcome
