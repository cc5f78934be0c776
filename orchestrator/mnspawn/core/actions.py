"""What the machine of a run asks its driver to do. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrepareAll:
    """Lay the cluster out and send PREPARE: every host is connected."""


@dataclass(frozen=True, slots=True)
class StartAll:
    """Send START: every host is prepared."""


@dataclass(frozen=True, slots=True)
class StopAll:
    """Send STOP to every host that is not finished. grace 0 kills.

    `is_hurried`: somebody would not wait for the grace, and does not wait for output either.
    """

    grace: float
    reason: str
    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class Dismiss:
    """End every agent and forget the run: nothing was started."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave now, as the user wants; the agents have their orders."""


@dataclass(frozen=True, slots=True)
class GiveUpHost:
    """End an agent that answers and does not finish, and its workers; then report the host as lost."""

    host: int
    reason: str


Action = PrepareAll | StartAll | StopAll | Dismiss | Leave | GiveUpHost
