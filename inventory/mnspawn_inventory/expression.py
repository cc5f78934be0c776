"""Host expressions: text to operators and operands, each with its user, port, slots or devices. Pure.

`a,b` union, `a!b` difference, `a&b` intersection, `a^b` either but not both; from left to right, as in ClusterShell.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from mnspawn_inventory import fields, names
from mnspawn_inventory.errors import InventoryError, Origin

OPERATORS = ",!&^"
# "2" in "a:0,2@b" continues the devices of a
DEVICES_TAIL = re.compile(r"[0-9]+(?:-[0-9]+)?", re.ASCII)
NUMBERS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Operand:
    """One part of an expression: a name, a range, a glob or a @group, with its user, port, slots or devices.

    Attributes:
        operator: how it is combined with what precedes it.
        pattern: the part that names hosts; an IPv6 address without its brackets.
        numbers: what follows the colon: "4", "0,2", "0-3".
        is_deepspeed: part of `a:0@b:1`, where even a single number is a device.
    """

    operator: str
    pattern: str
    text: str
    user: str | None = None
    port: int | None = None
    numbers: str | None = None
    is_deepspeed: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether its hosts are written out as names or ranges."""
        return not self.pattern.startswith("@") and not self.is_glob

    @property
    def is_glob(self) -> bool:
        return "*" in self.pattern or "?" in self.pattern

    def label_of(self, name: str) -> str:
        """The name of one of its hosts, with its user and port."""
        return names.label_of(names.Endpoint(name, self.user, self.port))


def parse(text: str, place: Origin | None, is_host: Callable[[str], bool]) -> list[Operand]:
    """Split an expression into operands.

    Args:
        is_host: whether a name is a host; decides whether `a@b` is two hosts (DeepSpeed) or user a on host b.

    Raises:
        InventoryError: a part is empty or not a host.
    """
    if not text.strip():
        raise InventoryError("no hosts", place=place, found=text, expected="host names, separated by commas")
    operands: list[Operand] = []
    for operator, piece in _pieces(text, place):
        if not names.is_plain(piece) and is_host(piece):  # alice@h or h:2201 as it stands in the inventory
            operands.append(Operand(operator, piece, piece))
            continue
        parts = _deepspeed(piece, is_host)
        for part in parts:
            operands.append(_operand(operator, part, place, is_deepspeed=len(parts) > 1))
            operator = ","
    return operands


def _pieces(text: str, place: Origin | None) -> list[tuple[str, str]]:
    """(operator, operand) pairs; commas inside brackets and between devices do not separate."""
    pieces: list[tuple[str, str]] = []
    operator, start, depth = ",", 0, 0
    for index, char in enumerate(text + ","):
        if char == "[":
            depth += 1
        elif char == "]":
            depth = max(depth - 1, 0)
        if char not in OPERATORS or (depth and index < len(text)):
            continue
        piece = text[start:index].strip()
        if not piece:
            if operator in "!&^" or (char in "!&^" and index < len(text)):
                raise InventoryError(
                    f"nothing next to {char if operator == ',' else operator!r}", place=place, found=text
                )
            raise InventoryError(
                "an empty host name", place=place, found=text, expected="host names, separated by commas"
            )
        if len(piece.split()) > 1:
            raise InventoryError(
                "a blank inside a host name", place=place, found=piece, hint="separate hosts by commas"
            )
        if operator == "," and pieces and _goes_on(pieces[-1][1], piece):
            pieces[-1] = (pieces[-1][0], f"{pieces[-1][1]},{piece}")
        else:
            pieces.append((operator, piece))
        operator, start = char, index + 1
    return pieces


def _goes_on(before: str, piece: str) -> bool:
    """Whether `piece` continues the device list at the end of `before`."""
    if not DEVICES_TAIL.fullmatch(piece.partition("@")[0]):
        return False
    _, numbers = names.split_port(before.rpartition("@")[2])
    return numbers is not None and NUMBERS.fullmatch(numbers) is not None


def _deepspeed(piece: str, is_host: Callable[[str], bool]) -> list[str]:
    """Split `a:0,2@b` at its "@", but not `user@a`, `@group` and `ssh://`."""
    if piece[:6].lower() == "ssh://" or "@" not in piece[1:]:
        return [piece]
    head, *rest = piece[1:].split("@")
    parts = [piece[0] + head, *rest]
    hosts = [names.split_port(part) for part in parts]
    if any(numbers is not None for _, numbers in hosts[:-1]) or all(is_host(host) for host, _ in hosts):
        return parts
    return [piece]


def _operand(operator: str, piece: str, place: Origin | None, is_deepspeed: bool) -> Operand:
    if piece[:6].lower() == "ssh://":
        endpoint = names.parse_endpoint(piece, place)
        return Operand(operator, endpoint.host, piece, endpoint.user, endpoint.port)
    if piece.startswith("@"):
        pattern, numbers = names.split_port(piece)
        names.check_group(pattern[1:], place) if pattern != "@*" else None
        return Operand(operator, pattern, piece, numbers=_checked(numbers, piece, place))
    user, at, address = piece.rpartition("@")
    if at:
        names.check_user(user, place)
        if "@" in user:
            raise InventoryError("more than one '@'", place=place, found=piece, expected="user@host")
    pattern, numbers = names.split_port(address)
    bracketed = pattern.startswith("[") and ":" in pattern
    if bracketed:
        pattern = names.check_host(pattern, place)
    if not pattern:
        raise InventoryError("an empty host name", place=place, found=piece, expected="a host name")
    port = port_of(numbers, bool(at) or bracketed)
    if port is not None:
        numbers = None
    checked = _checked(numbers, piece, place)
    return Operand(operator, pattern, piece, user if at else None, port, checked, is_deepspeed)


def port_of(numbers: str | None, has_user_or_brackets: bool) -> int | None:
    """The number after the colon as a port; None if it counts slots."""
    if numbers is None or not (numbers.isascii() and numbers.isdigit()) or len(numbers) > 5:
        return None
    number = int(numbers)
    if names.FIRST_PORT <= number <= names.MAX_PORT or (has_user_or_brackets and number == names.SSH_PORT):
        return number
    return None


def _checked(numbers: str | None, piece: str, place: Origin | None) -> str | None:
    if numbers is None or NUMBERS.fullmatch(numbers):
        return numbers
    raise InventoryError(
        "not a number of slots",
        place=place,
        found=piece,
        expected="host:N with a whole number from 1, or devices as in host:0,2",
    )


def slots_and_devices(operand: Operand, place: Origin | None) -> tuple[int | None, tuple[int, ...] | None]:
    """Slots and devices of an operand in a list of hosts: `a:4` is four slots, `a:0,2` and `a:0-3` are devices."""
    if operand.numbers is None:
        return None, None
    if operand.numbers.isdigit() and not operand.is_deepspeed:
        if not int(operand.numbers[:9]):
            raise InventoryError(
                "not a number of slots", place=place, found=operand.text, expected="host:N with a whole number from 1"
            )
        return fields.slots(operand.numbers, place), None
    positions = fields.devices(operand.numbers, place)
    return len(positions), positions


def parts(text: str, place: Origin | None) -> list[str]:
    """The names, ranges and @groups of a plain list, as written; commas inside brackets do not separate."""
    pieces = _pieces(text, place)
    for operator, piece in pieces:
        if operator != ",":
            raise InventoryError(
                "not a plain list of hosts", place=place, found=f"{operator}{piece}", expected="names and ranges"
            )
    return [piece for _, piece in pieces]
