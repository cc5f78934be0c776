"""What a view knows of one host of the run that it looks at."""

import asyncio

from mnspawn.core import session as said
from mnspawn.transport.base import Connection


class Glance:
    """One host, over as many connections as it takes."""

    def __init__(self, index: int, name: str, ranks: range) -> None:
        self.index = index
        self.name = name
        self.ranks = ranks
        self.session: said.HostSession | None = None
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()
        self.owed = 0
        self.is_settled = False
        self.is_unknown = False  # there: its folder is gone
        self.has_ended = False  # the pod, as far as the host knows
        self.nonsense: str | None = None  # what it said, when that made no sense
        self.last_heard = 0.0
        self.lost_at: float | None = None  # its link, not yet found again
        self._told: set[object] = set()

    def is_new(self, event: said.SessionEvent) -> bool:
        """True once for each thing that can be told: the journal is replayed over every new connection."""
        match event:
            case said.Started(rank):
                key: object = ("started", rank)
            case said.Drained(exited):
                key = ("exited", exited.rank)
            case said.Remark(text):
                key = ("remark", text)
            case _:
                key = type(event)
        if key in self._told:
            return False
        self._told.add(key)
        return True

    def pay(self) -> None:
        """Give credit for what was passed on."""
        if self.owed and self.session is not None:
            self.session.consumed(self.owed)
            self.owed = 0
            self.wake.set()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
