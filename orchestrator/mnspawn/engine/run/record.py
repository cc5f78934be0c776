"""Remembers a run on this machine, and how it ended. A failure to do so never stops the run."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mnspawn.engine.registry import KnownRun, Registry
from mnspawn.engine.request import RunRequest
from mnspawn.report import RunReport
from mnspawn_inventory import Host


class Record:
    """Keeps one run in the registry; does nothing for runs that are not kept (a sandbox, a dry run).

    Args:
        complain: called with one line when the record can't be kept.
    """

    def __init__(self, request: RunRequest, run: str, is_dry: bool, complain: Callable[[str], None]) -> None:
        self._request = request
        self._run = run
        self._complain = complain
        self._registry: Registry | None = None
        self._has_begun = False
        self._holding = contextlib.ExitStack()
        if request.registry is not None and not request.sandbox and not is_dry:
            self._registry = Registry(request.registry)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Take charge of the run from `begin` to the end of this context; a run that never begins leaves nothing."""
        with self._holding:
            yield
        if self._registry is not None:
            self._registry.prune()

    def begin(self, hosts: Sequence[Host], world: Sequence[int], program: dict[str, Any]) -> None:
        """Write down how to find the run, which starts now."""
        request = self._request
        if self._registry is None:
            return
        known = KnownRun(
            run=self._run,
            hosts=tuple(hosts),
            world=tuple(world),
            name=request.name,
            program=program,
            began=time.time(),
            grace=request.grace,
            python=request.python,
            transport=request.transport,
            ssh=request.ssh,
        )
        try:
            self._holding.enter_context(self._registry.hold(self._run))
            self._registry.remember(known)
            self._has_begun = True
        except OSError as exc:
            self._registry.forget_unborn(self._run)
            self._give_up(exc)

    def end(self, report: RunReport) -> None:
        """Write down how the run ended; one that never began is not remembered."""
        if self._registry is None or not self._has_begun:
            return
        try:
            self._registry.write_report(self._run, report.describe())
        except OSError as exc:
            self._give_up(exc)

    def _give_up(self, error: OSError) -> None:
        """Ignore a full disk here, which is no reason to stop a run there."""
        self._registry = None
        self._complain(f"the run is not remembered on this machine: {error.strerror or error}")
