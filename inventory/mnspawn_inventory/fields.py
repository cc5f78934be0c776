"""The fields of a host: what each accepts, as a typed value (TOML, YAML) or as text (hostfiles, INI). Pure."""

import re
from collections.abc import Callable, Iterable

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin

MAX_SLOTS = 4096  # more workers on one host are a typing error; the agent accepts no more either
MAX_DEVICES = 4096
TRANSPORTS = ("asyncssh", "paramiko", "openssh", "local")
INTERFACE = re.compile(r"[A-Za-z0-9_.*-]{1,32}")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
PERCENT = re.compile(r"%(.?)", re.DOTALL)
TOKENS = ("%", "h", "k", "n", "p", "r")  # ssh_config(5)
INVALID = re.compile(r"[\x00\ud800-\udfff]")  # NUL ends strings of the system; half a surrogate pair is no character


Check = Callable[[object, Origin | None], object]  # a value as it is written, and where; returns the checked value


def wrong(what: str, raw: object, expected: str, place: Origin | None) -> InventoryError:
    """The error for a value that its field does not accept."""
    found = raw if isinstance(raw, str) else _spelled(raw)
    return InventoryError(what, place=place, found=found, expected=expected)


def _spelled(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    return "null" if raw is None else str(raw)


def whole(raw: object, low: int, high: int, what: str, place: Origin | None) -> int:
    """A whole number, as a number or as text; never a bool or a float."""
    expected = f"a whole number from {low} to {high}"
    if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) <= 9:
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        raise wrong(what, raw, expected, place)
    return raw


def text(raw: object, what: str, place: Origin | None) -> str:
    """One line of text: not empty, no control characters, and nothing that looks like an option."""
    if not isinstance(raw, str) or not raw.strip() or CONTROL.search(raw) or raw.startswith("-"):
        raise wrong(f"not {what}", raw, "one line of text, not empty, not beginning with '-'", place)
    return raw


def slots(raw: object, place: Origin | None) -> int:
    return whole(raw, 1, MAX_SLOTS, "not a number of slots", place)


def _port(raw: object, place: Origin | None) -> int:
    return whole(raw, 1, names.MAX_PORT, "not a port", place)


def _line(what: str) -> Check:
    """The check for one line of text."""
    return lambda raw, place: text(raw, what, place)


def _name(check: Callable[[str, Origin | None], str], what: str, expected: str) -> Check:
    """The check for text that `check` accepts."""

    def checked(raw: object, place: Origin | None) -> str:
        if not isinstance(raw, str):
            raise wrong(f"not {what}", raw, expected, place)
        return check(raw, place)

    return checked


def _network(raw: object, place: Origin | None) -> str:
    expected = "a network such as 10.1.0.0/16, or the name of an interface such as ib0"
    if isinstance(raw, str) and "/" in raw:
        import ipaddress  # late: few inventories name a network

        try:
            return str(ipaddress.ip_network(raw, strict=False))
        except ValueError:
            raise wrong("not a network", raw, expected, place) from None
    if isinstance(raw, str) and INTERFACE.fullmatch(raw) and not raw.startswith("-"):
        return raw
    raise wrong("not a network", raw, expected, place)


def _transport(raw: object, place: Origin | None) -> str:
    if raw not in TRANSPORTS:
        raise wrong("not a transport", raw, "one of " + ", ".join(TRANSPORTS), place)
    return str(raw)


def _proxy_command(raw: object, place: Origin | None) -> str:
    command = text(raw, "a command", place)
    for token in PERCENT.findall(command):
        if token not in TOKENS:
            raise wrong("not a token of a ProxyCommand", f"%{token}", "one of %h, %n, %p, %r and %%", place)
    return command


def devices(raw: object, place: Origin | None) -> tuple[int, ...]:
    """Numbers of accelerators: [0, 2], "0,2", "0-3" or a single number; each once."""
    expected = "device numbers such as 0,2 or 0-3, each once"
    if isinstance(raw, int) and not isinstance(raw, bool):
        raw = [raw]
    if isinstance(raw, str):
        positions = _device_ranges(raw, place)
    elif isinstance(raw, Iterable):
        positions = [whole(item, 0, MAX_DEVICES - 1, "not a device number", place) for item in raw]
    else:
        raise wrong("not a list of devices", raw, expected, place)
    if not positions or len(set(positions)) != len(positions):
        raise wrong("not a list of devices", raw, expected, place)
    return tuple(positions)


def _device_ranges(raw: str, place: Origin | None) -> list[int]:
    """Read "0,2" and "0-3", in the order written."""
    positions: list[int] = []
    for piece in raw.split(","):
        low, dash, high = piece.strip().partition("-")
        first = whole(low, 0, MAX_DEVICES - 1, "not a device number", place)
        last = whole(high, 0, MAX_DEVICES - 1, "not a device number", place) if dash else first
        if last < first:
            raise wrong("not a range of devices", piece.strip(), "the smaller number first", place)
        positions.extend(range(first, last + 1))
    return positions


def _prelude(raw: object, place: Origin | None) -> str:
    """Shell lines: one text, or a list of lines."""
    lines = list(raw) if isinstance(raw, list | tuple) else [raw]
    if not lines or not all(isinstance(line, str) and not INVALID.search(line) for line in lines):
        raise wrong("not shell lines", raw, "text, or a list of lines", place)
    joined = "\n".join(str(line) for line in lines).strip("\n")
    if not joined.strip():
        raise wrong("not shell lines", raw, "text, or a list of lines", place)
    return joined


def scalar_text(raw: object, what: str, place: Origin | None) -> str:
    """The text of a variable or label; numbers and booleans as TOML spells them."""
    if isinstance(raw, str) and not INVALID.search(raw):
        return raw
    if isinstance(raw, bool | int | float):
        return _spelled(raw)
    raise wrong(f"not a value for {what}", raw, "text or a number", place)


_ADDRESS = _name(names.check_host, "an address", "a host name or an IP address")

FIELDS: dict[str, Check] = {
    "address": _ADDRESS,
    "data_address": _ADDRESS,
    "network": _network,
    "user": _name(names.check_user, "a user name", "text"),
    "port": _port,
    "identity": _line("a key file"),
    "jump": _name(names.check_jump, "a jump host", "[user@]host[:port]"),
    "proxy_command": _proxy_command,
    "transport": _transport,
    "slots": slots,
    "max_slots": slots,
    "devices": devices,
    "python": _line("an interpreter"),
    "workdir": _line("a folder"),
    "prelude": _prelude,
}
