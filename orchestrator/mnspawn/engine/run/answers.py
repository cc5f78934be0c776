"""Collects what hosts answer before the start: which can't be used, which refuse the plan. Reports all together."""

from collections.abc import Sequence

from mnspawn.errors import HostError, HostsUnusable, MnspawnError, PlanRefused, UsageError


class Answers:
    """The answers of a run's hosts, which are named by their indexes.

    Args:
        names: of the hosts, in order.
        target: the program's, for the error where no host has it.
    """

    def __init__(self, names: Sequence[str], target: str) -> None:
        self._names = names
        self._target = target
        self._failures: dict[int, HostError] = {}
        self._refusals: dict[int, tuple[str, ...]] = {}
        self._unanswered = set(range(len(names)))  # not yet known to be usable or not
        self._undecided = set(range(len(names)))  # they have neither taken nor refused the plan

    def has_failed(self, host: int) -> bool:
        return host in self._failures

    def failed(self, host: int, error: HostError) -> None:
        """Note that the host can't be used; the first reason counts."""
        self._failures.setdefault(host, error)
        self._unanswered.discard(host)

    def usable(self, host: int) -> None:
        self._unanswered.discard(host)

    def taken(self, host: int) -> None:
        self._undecided.discard(host)

    def refused(self, host: int, reasons: tuple[str, ...]) -> None:
        self._refusals[host] = reasons
        self._undecided.discard(host)

    @property
    def are_unusable(self) -> bool:
        """Whether every host has answered and some can't be used."""
        return bool(self._failures) and not self._unanswered

    @property
    def are_refusals(self) -> bool:
        """Whether every host has decided and some refuse the plan."""
        return bool(self._refusals) and not self._undecided

    def unusable(self) -> MnspawnError | None:
        """Return the error for hosts that can't be used; None when all can."""
        return HostsUnusable([error for _, error in sorted(self._failures.items())]) if self._failures else None

    def refusal(self) -> MnspawnError | None:
        """Return the error for hosts that refuse the plan; None when none does."""
        pairs = [(self._names[host], reason) for host, reasons in sorted(self._refusals.items()) for reason in reasons]
        if not pairs:
            return None
        if len(self._refusals) == len(self._names) and all(reason.startswith("no script ") for _, reason in pairs):
            return UsageError(f"expected a script, found no file {self._target!r} here or on a host", place="SCRIPT")
        return PlanRefused(pairs)
