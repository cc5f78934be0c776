"""Reads a list such as CUDA_VISIBLE_DEVICES as CUDA and torch do: which of a host's devices it leaves. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = ("nodevfiles", "none", "void")  # what schedulers and people write for "no device"; no device has such a name


@dataclass(frozen=True, slots=True)
class Reading:
    """A list of devices, read.

    Attributes:
        devices: numbers of the devices in the driver's numbering, in the list's order; -1 for one that only the driver
            knows (MIG).
        problem: why the list means less than it says, "" where it doesn't.
        hides_all: it says explicitly that there are none.
    """

    devices: tuple[int, ...]
    problem: str = ""
    hides_all: bool = False


def read(value: str, uuids: Sequence[str]) -> Reading:
    """The first entry that is no device ends a list, and a device that is listed twice empties it.

    Args:
        uuids: of all devices in the driver's order, "" where one does not tell.
    """
    first = value.split(",")[0].strip()
    if not value.strip() or first.lower() in NOTHING or (first.startswith("-") and _leading_number(first) < 0):
        return Reading((), hides_all=True)
    for prefix in ("GPU-", "MIG-"):
        if value.startswith(prefix):
            return _read_names(value.split(","), prefix, uuids)
    return _read_numbers([entry.strip() for entry in value.split(",")], len(uuids))


def _read_numbers(entries: Sequence[str], count: int) -> Reading:
    found: list[int] = []
    end = None
    for place, entry in enumerate(entries):
        number = _leading_number(entry)
        if number in found:
            return Reading((), f"device {number} is listed twice, which hides all devices")
        if number < 0:
            end = end or (place, f"{entry!r} is no device")
            break
        if number >= count and end is None:  # those after it are not used, but one that is listed twice still counts
            end = place, f"there is no device {number}, {_counted(count)}"
        found.append(number)
    if end is None:
        return Reading(tuple(found))
    place, why = end
    is_meant = not "".join(entries[place:]) or entries[place:] == ["-1"]
    return Reading(tuple(found[:place]), "" if is_meant else f"{why}: CUDA stops there")


def _read_names(entries: Sequence[str], prefix: str, uuids: Sequence[str]) -> Reading:
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            return Reading((), f"{entry} is listed twice, which hides all devices")
        if not entry.startswith(prefix):
            entries, end = entries[:place], f"{entry!r} does not begin with {prefix}" if entry else ""
            break
    else:
        end = ""
    found: list[int] = []
    for entry in entries:
        matches = [number for number, uuid in enumerate(uuids) if uuid.startswith(entry)] if prefix == "GPU-" else [-1]
        if len(matches) != 1:
            end = f"{entry} is {'no device' if not matches else 'the beginning of several devices'} of this host"
            break
        if matches[0] in found and prefix == "GPU-":
            return Reading((), f"{entry} is device {matches[0]} again, which hides all devices")
        found.append(matches[0])
    return Reading(tuple(found), f"{end}: CUDA stops there" if end else "")


def _leading_number(text: str) -> int:
    """Return a number as strtoul reads it: `1gpu` is 1; -1 for what does not begin with a number."""
    sign, rest = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    digits = rest[: next((i for i, letter in enumerate(rest) if letter not in "0123456789"), len(rest))]
    if not digits:
        return -1
    number = int(digits[-18:]) if len(digits.lstrip("0")) <= 18 else 10**18
    return -number if sign == "-" else number


def _counted(count: int) -> str:
    return "only device 0" if count == 1 else f"only 0 to {count - 1}"
