"""Notes about hosts for the user: one line for all hosts that share a note. Pure."""

from mnspawn_inventory.errors import Origin
from mnspawn_inventory.nodeset import fold


class HostNotes:
    """Collects notes about hosts."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], list[str]] = {}

    def add(self, host: str, place: Origin | None, text: str) -> None:
        """Note something about a host, and where it is written."""
        self._hosts.setdefault((f"{place}: " if place is not None else "", text), []).append(host)

    def lines(self) -> tuple[str, ...]:
        """A line for each note, with its hosts."""
        return tuple(f"{place}{fold(hosts)}: {text}" for (place, text), hosts in self._hosts.items())
