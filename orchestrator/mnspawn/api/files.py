"""Follows files on hosts, as `mnspawn tail HOSTS:PATTERN` does."""

from collections.abc import Sequence

from mnspawn.engine.look.tailing import Followed, OnFile, Tail
from mnspawn.engine.request import Listener
from mnspawn.transport.base import SshOptions

__all__ = ["Followed", "follow"]


async def follow(
    followed: Sequence[Followed],
    lines: int | None,
    listeners: Sequence[Listener],
    on_file: OnFile,
    *,
    transport: str,
    ssh: SshOptions,
) -> None:
    """Follow files until cancelled, or until Ctrl-C.

    Args:
        lines: how many of the last lines of each file come first; None for all of it.
        on_file: takes the number that stands for a rank in the events of a file, its host, and its path.

    Raises:
        HostsUnusable: no host can be followed.
    """
    await Tail(followed, lines, listeners, on_file, transport=transport, ssh=ssh).execute()
