"""Groups inside groups: how deep each one is, and which hosts belong to it. Pure."""

from collections.abc import Iterable, Mapping

from mnspawn_inventory.errors import InventoryError, Origin, did_you_mean

ALL = "all"  # the group that every host is in

Children = Mapping[str, Mapping[str, Origin | None]]  # every group's child groups, and where each is written


def depths(children: Children) -> dict[str, int]:
    """How deep each group is inside others, apart from `all`; the longest way counts.

    Raises:
        InventoryError: a child group is nowhere described, or a group contains itself.
    """
    parents: dict[str, list[tuple[str, Origin | None]]] = {name: [] for name in children}
    for name, below in children.items():
        for child, place in below.items():
            if child not in children:
                hint = did_you_mean(child, children)
                raise InventoryError(
                    "no such group", place=place, found=child, expected="a group of this inventory", hint=hint
                )
            if name != ALL:
                parents[child].append((name, place))
    found: dict[str, int] = {}
    waiting = {name: len(above) for name, above in parents.items()}
    ready = [name for name, count in waiting.items() if not count]
    while ready:
        name = ready.pop()
        found[name] = max((found[above] + 1 for above, _ in parents[name]), default=0)
        for child in children[name] if name != ALL else ():
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    for name in children:
        if name not in found:
            _, place = next(pair for pair in parents[name] if pair[0] not in found)
            raise InventoryError("the group contains itself", place=place, found=name, expected="no cycle of groups")
    return found


def members(name: str, children: Children, hosts: Mapping[str, Iterable[str]]) -> set[str]:
    """The hosts of a group and of all groups inside it; `hosts` has those that each group lists itself."""
    found: set[str] = set()
    waiting, seen = [name], {name}
    while waiting:
        group = waiting.pop()
        found.update(hosts[group])
        waiting.extend(child for child in children[group] if child not in seen)
        seen.update(children[group])
    return found
