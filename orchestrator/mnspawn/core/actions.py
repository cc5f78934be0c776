"""What the machine of a run asks its driver to do. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrepareAll:
    """Every host is there: lay the cluster out and send PREPARE."""


@dataclass(frozen=True, slots=True)
class StartAll:
    """Every host is prepared: send START."""


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
    """Nothing was started: let every agent go and forget the run."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The user wants out now; the agents have their orders."""


@dataclass(frozen=True, slots=True)
class GiveUpHost:
    """The host's agent answers and does not finish: end it and what it has, then say that the host is lost."""

    host: int
    reason: str


Action = PrepareAll | StartAll | StopAll | Dismiss | Leave | GiveUpHost
