"""Times and spans as people type them."""

from datetime import datetime

import pytest

from mnspawn.cli.wording.time import parse_span, parse_when
from mnspawn.errors import UsageError

NOW = datetime(2026, 1, 31, 12, 0, 0).astimezone().timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("0", 0), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("1h30m", 5400), (" 7D ", 604800), ("2w", 1209600)],
)
def test_spans(text: str, seconds: float) -> None:
    assert parse_span(text, "--older-than") == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "10x", "m", "1e9", "10 m", "٣d"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--older-than: expected a span such as 90s, 10m, 2h or 7d, found "):
        parse_span(text, "--older-than")


@pytest.mark.parametrize(
    ("text", "before_now"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("11:00", 3600),
        ("11:59:30", 30),
        ("13:00", 23 * 3600),
        ("2026-01-31T11:00", 3600),
        ("2026-01-31 11:00:00", 3600),
        ("2026-01-31", 12 * 3600),
    ],
)
def test_times(text: str, before_now: float) -> None:
    assert NOW - parse_when(text, "--since", NOW) == before_now


def test_times_with_a_zone_and_since_the_epoch() -> None:
    assert parse_when("2026-01-31T12:00:00Z", "--since", NOW) == 1769860800.0
    assert parse_when("2026-01-31T12:00:00+02:00", "--since", NOW) == 1769853600.0
    assert parse_when("1769860800", "--since", NOW) == parse_when("@1769860800", "--since", NOW) == 1769860800.0


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "11:60", "2026-13-01", "12"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--since: expected a time such as 10m \(ago\), 14:30 or 2026-01-31T12:00, "):
        parse_when(text, "--since", NOW)
