"""Addresses of a server: the order in which to try them, and one error for all that fail."""

import copy
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnspawn import errors
from mnspawn.transport.config.route import Hop

NEXT_AFTER = 0.25  # seconds before the next address is tried as well: RFC 8305, "Connection Attempt Delay"
AT_ONCE = 8  # addresses of one server tried at the same time: each takes a descriptor
_LISTED = 8  # failures to list: enough to see what is wrong
# after these another address may still lead to the right host; in order of precedence for the common error
_ELSEWHERE = (
    errors.HostKeyChanged,
    errors.HostKeyError,
    errors.NoCommonAlgorithm,
    errors.ConnectionClosed,
    errors.ConnectionRefused,
    errors.ConnectTimeout,
    errors.Unreachable,
)


@dataclass(frozen=True, slots=True)
class Address:
    """One answer of the resolver."""

    family: int
    kind: int
    protocol: int
    place: Any  # as the socket functions take it

    @property
    def shown(self) -> str:
        return str(self.place[0])


def in_turn(found: Sequence[Address]) -> list[Address]:
    """Return them in the resolver's order, with the families alternating (RFC 8305, section 4)."""
    found = list(dict.fromkeys(found))
    first = [address for address in found if address.family == found[0].family]
    others = [address for address in found if address.family != found[0].family]
    turns = list(zip(first, others, strict=False))
    rest = first[len(turns) :] or others[len(turns) :]
    return [address for pair in turns for address in pair] + rest


def may_be_elsewhere(error: errors.HostError) -> bool:
    """Whether another address of the name is worth a try."""
    return isinstance(error, _ELSEWHERE)


def unusable(failures: Sequence[tuple[str, errors.HostError]], name: str, port: int) -> errors.HostError:
    """Return one error for all addresses of a server: of the kind of the one that came furthest, with all reasons.

    Args:
        failures: (address, error); the address replaces `name port N` in a message.
    """
    _, furthest = min(failures, key=lambda failure: _rank(failure[1]))
    error = copy.copy(furthest)
    if len(failures) == 1:
        (address, _), *_ = failures
        shown = address if address == name else f"{name} [{address}]"
        error.message = _placed(shown, address, name, port, furthest.message)
    else:
        reasons = [_at(address, name, port, one.message) for address, one in failures]
        more = f"; and {len(reasons) - _LISTED} more" if len(reasons) > _LISTED else ""
        error.message = f"none of its {len(reasons)} addresses can be used: {'; '.join(reasons[:_LISTED])}{more}"
        error.addresses = len(failures)
    return error


def _rank(error: errors.HostError) -> int:
    return next((rank for rank, kind in enumerate(_ELSEWHERE) if isinstance(error, kind)), len(_ELSEWHERE))


def _placed(shown: str, address: str, name: str, port: int, message: str) -> str:
    """A message with its place as `shown`."""
    place = f"{name} port {port}"
    return message.replace(place if place in message else f"{address} port {port}", f"{shown} port {port}")


def _at(address: str, name: str, port: int, message: str) -> str:
    """A message with the address as its place; where it has none, in front."""
    placed = _placed(address, address, name, port, message)
    return placed if f"{address} port {port}" in placed else f"{address} port {port}: {placed}"


def resolved(hop: Hop, flags: int = 0) -> list[Address]:
    """Ask the resolver, however long that takes."""
    found = socket.getaddrinfo(hop.address, hop.port, hop.family, socket.SOCK_STREAM, flags=flags)
    return in_turn([Address(family, kind, protocol, place) for family, kind, protocol, _, place in found])
