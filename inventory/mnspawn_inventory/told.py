"""Notes about hosts while an inventory is read: one line for all hosts of which the same is to be told. Pure."""

from collections.abc import Container, Mapping, Sequence

from mnspawn_inventory.errors import Origin
from mnspawn_inventory.nodeset import fold

Layer = tuple[str, Mapping[str, tuple[object, Origin | None]]]  # a group, and what it says


class Told:
    """Collects what is to be told of hosts."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], list[str]] = {}

    def say(self, host: str, place: Origin | None, text: str) -> None:
        """Note something that is written at a place, of one host."""
        self._hosts.setdefault((f"{place}: " if place is not None else "", text), []).append(host)

    def notes(self) -> list[str]:
        """A line for each thing, with its hosts."""
        return [f"{place}{fold(hosts)}: {text}" for (place, text), hosts in self._hosts.items()]


def compare_groups(
    host: str, layers: Sequence[Layer], own: Container[str], above: Mapping[str, Container[str]], told: Told
) -> None:
    """Note each value that a host has from one group while another group has another one for it.

    Args:
        layers: from the weakest to the strongest.
        own: what the host says itself: there no group counts.
        above: the groups above each group, whose values are there to be replaced.
    """
    winners: dict[str, tuple[str, object, Origin | None]] = {}
    for group, said in reversed(layers):
        for key, (value, place) in said.items():
            if key in own:
                continue
            if key not in winners:
                winners[key] = (group, value, place)
                continue
            winner, kept, where = winners[key]
            if value != kept and group != winner and group not in above.get(winner, ()):
                is_plain = isinstance(value, str | int) and isinstance(kept, str | int) and not key.startswith("env.")
                has, had = (f" {kept!r}", f" {value!r}") if is_plain else ("", " another value")
                lost = "" if place is None else f" ({place})"
                told.say(
                    host,
                    where,
                    f"{key} is{has or ' that'} of group {winner}; group {group} has{had}{lost}, which loses",
                )
