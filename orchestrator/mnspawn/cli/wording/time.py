"""Points in time and spans as people type them: 10m, 2h, 2026-01-31 12:00, 1767225600. Pure."""

import re
from datetime import datetime, timedelta

from mnspawn.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?[smhdw])+", re.ASCII)
_PART = re.compile(r"([0-9.]+)([smhdw])", re.ASCII)
_EPOCH = re.compile(r"@?([0-9]{9,11}(?:\.[0-9]{1,9})?)", re.ASCII)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)


def parse_span(text: str, place: str) -> float:
    """Seconds of 90, 90s, 10m, 1h30m, 7d.

    Raises:
        UsageError: it is none of these.
    """
    word = text.strip().lower()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", word, re.ASCII):
        return float(word)
    if not _SPAN.fullmatch(word):
        raise UsageError(f"expected a span such as 90s, 10m, 2h or 7d, found {text!r}", place=place)
    return sum(float(number) * UNITS[unit] for number, unit in _PART.findall(word))


def parse_when(text: str, place: str, now: float) -> float:
    """Seconds since the epoch of a span back from now, a time of today, a date and time, or such seconds themselves.

    Without a zone it is the local one; a time of the clock that is still to come was yesterday's.

    Raises:
        UsageError: it is none of these.
    """
    word = text.strip()
    if _SPAN.fullmatch(word.lower()):
        return now - parse_span(word, place)
    if match := _EPOCH.fullmatch(word):
        return float(match[1])
    try:
        if match := _CLOCK.fullmatch(word):
            hour, minute, second = (int(part or 0) for part in match.groups())
            today = datetime.fromtimestamp(now).astimezone()
            moment = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (moment if moment <= today else moment - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(word).astimezone().timestamp()
    except (ValueError, OverflowError):
        pass  # reported below, like everything else that is no time
    raise UsageError(f"expected a time such as 10m (ago), 14:30 or 2026-01-31T12:00, found {text!r}", place=place)
