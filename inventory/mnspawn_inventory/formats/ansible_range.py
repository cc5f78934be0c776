"""Ansible's host patterns: `web[01:16:2].lan:2222`, `db-[a:f]`, `[::1]:22`. Pure."""

import re
import string

from mnspawn_inventory import names
from mnspawn_inventory.draft import MAX_HOSTS
from mnspawn_inventory.errors import InventoryError, Origin

# only a colon outside of brackets separates a port; "[::1]:22" has its address in brackets
WITH_PORT = re.compile(r"((?:[^\[\]:]|\[[^\[\]]*\])+):([^\[\]:]*)")
RANGE = re.compile(r"\[([^\[\]:]*):([^\[\]:]*)(?::([^\[\]:]*))?\]")


def expand_pattern(pattern: str, place: Origin | None) -> tuple[list[str], int | None]:
    """The names that a host pattern stands for, in order, and its port."""
    if pattern.startswith("[") and names.is_ipv6(pattern[1:-1]) and pattern.endswith("]"):
        return [pattern[1:-1]], None
    if names.is_ipv6(pattern):
        return [pattern], None
    split = WITH_PORT.fullmatch(pattern)
    host, number = (split[1], split[2]) if split else (pattern, None)
    port = None if number is None else names.check_port(number, place and place.moved(len(host) + 1))
    if host.startswith("[") and names.is_ipv6(host[1:-1]):
        return [host[1:-1]], port
    return [names.check_host(name, place) for name in _expand(host, place)], port


def _expand(pattern: str, place: Origin | None) -> list[str]:
    found = [""]
    position = 0
    for match in RANGE.finditer(pattern):
        here = place and place.moved(match.start() + 1)
        numbers = _numbers(match[1], match[2], match[3], match[0][1:-1], here)
        if len(found) * len(numbers) > MAX_HOSTS:
            raise InventoryError(f"more than {MAX_HOSTS} hosts", place=place, found=pattern)
        fixed = pattern[position : match.start()]
        found = [name + fixed + number for name in found for number in numbers]
        position = match.end()
    rest = pattern[position:]
    if "[" in pattern[:position] + rest and ("[" in rest or "]" in rest):
        raise InventoryError("not a range", place=place, found=pattern, expected="a range such as [01:16]")
    return [name + rest for name in found]


def _numbers(low: str, high: str, step: str | None, found: str, place: Origin | None) -> list[str]:
    stride = int(step) if step and step.isascii() and step.isdigit() and len(step) < 7 else 1 if step is None else 0
    letters = string.ascii_letters
    if len(low) == 1 and len(high) == 1 and low in letters and high in letters:
        first, last = letters.index(low), letters.index(high)
        if first <= last and stride:
            return list(letters[first : last + 1 : stride])
    low = low or "0"
    if stride and low.isascii() and low.isdigit() and high.isascii() and high.isdigit() and len(low + high) < 20:
        padded = low[0] == "0" and len(low) > 1
        if int(low) <= int(high) and (not padded or len(low) == len(high)):
            if (int(high) - int(low)) // stride >= MAX_HOSTS:
                raise InventoryError(f"more than {MAX_HOSTS} hosts", place=place, found=found)
            return [str(number).zfill(len(low) if padded else 0) for number in range(int(low), int(high) + 1, stride)]
    raise InventoryError(
        "not a range",
        place=place,
        found=found,
        expected="begin:end or begin:end:step, the smaller first, both of one length when padded",
    )
