"""One host of a run that others started, as a look at the run sees it."""

from collections.abc import Callable
from functools import partial

from mnspawn.core import agent_events as agent
from mnspawn.engine.link.feed import Feed
from mnspawn.engine.link.sites import Reached
from mnspawn.engine.registry import KnownRun
from mnspawn.engine.request import Limits


class ViewedHost(Feed):
    """What is known of the host's share of the run.

    Args:
        on_events: called with what the host says.

    Attributes:
        ranks: of the host.
        was_seen: its watcher was reached.
        is_settled: nothing more is expected of it.
        is_unknown: it knows nothing of the run (any more).
        has_ended: its pod has, as far as the host knows.
        unseen_since, last_heard: by the loop's clock.
        lost_at: when its link was lost that is not yet found again.
    """

    def __init__(
        self, reached: Reached, index: int, known: KnownRun, limits: Limits,
        on_events: Callable[["ViewedHost", list[agent.SessionEvent]], None],
    ) -> None:  # fmt: skip
        super().__init__(reached, index, known.python, known.ssh.connect_timeout, limits, partial(on_events, self))
        self.ranks = known.ranks[index]
        self.was_seen = False
        self.is_settled = False
        self.is_unknown = False
        self.has_ended = False
        self.unseen_since = self._loop.time()
        self.last_heard = self.unseen_since
        self.lost_at: float | None = None
        self._reported: set[object] = set()

    def is_new(self, event: agent.SessionEvent) -> bool:
        """Return True once for each event: a watcher reports all of them again over every new connection."""
        match event:
            case agent.Started(rank):
                key: object = ("started", rank)
            case agent.Drained(exited):
                key = ("exited", exited.rank)
            case agent.Remark(text):
                key = ("remark", text)
            case _:
                key = type(event)
        if key in self._reported:
            return False
        self._reported.add(key)
        return True
