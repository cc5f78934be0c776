"""Hosts that were looked at, in words and as JSON. Pure: gives text, writes nothing."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mnspawn.cli.words import counted, fold_hosts, visible
from mnspawn.hosts import Effective, Examined, Finding

COLUMNS = ("HOST", "PYTHON", "AGENT", "CLOCK", "CPUS", "MEMORY", "DISK", "DEVICES", "ADDRESS", "FINDINGS")
DETAILS = 8  # hosts of one finding that are told apart; --json has them all
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(examined: Sequence[Examined]) -> list[str]:
    """A line for every host, in columns."""
    rows = [COLUMNS, *(_row(one) for one in examined)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(one: Examined) -> tuple[str, ...]:
    facts = one.facts
    names = (f"({finding.check})" if finding.is_note else finding.check for finding in one.findings)
    found = ",".join(dict.fromkeys(names)) or "ok"
    if facts is None or one.clock is None:
        return (visible(one.host), *["-"] * (len(COLUMNS) - 2), found)
    cpus, usable = facts.get("cpus"), facts.get("usable_cpus")
    cells = (
        one.host,
        ".".join(str(part) for part in _list(facts.get("python_version"))) or "?",
        "memory" if not facts["cache"]["place"] else "cached" if facts["cache"]["was_here"] else "sent",
        f"{one.clock.offset:+.3f}±{one.clock.uncertainty:.3f} s",
        f"{cpus}" if usable == cpus else f"{usable:g} of {cpus}" if isinstance(usable, int | float) else f"{cpus}",
        _free(facts["memory"].get("available"), facts["memory"].get("total")),
        _free(facts["runs"].get("free"), facts["runs"].get("total")),
        _devices(_list(facts.get("devices"))),
        one.address or "-",
        found,
    )
    return tuple(visible(cell) for cell in cells)


def _devices(devices: Sequence[Any]) -> str:
    """2 x NVIDIA H100; the kinds apart where they differ."""
    names = [str(device.get("name", "?")) if isinstance(device, dict) else "?" for device in devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"


def _free(free: object, total: object) -> str:
    return f"{size(free)} of {size(total)}"


def size(count: object) -> str:
    """1.5 GiB."""
    if not isinstance(count, int | float):
        return "?"
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} {_UNITS[power]}" if count >= 10 or not power else f"{count:.1f} {_UNITS[power]}"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# -- findings


def folded(examined: Iterable[Examined]) -> list[tuple[Finding, list[Finding]]]:
    """Equal findings of many hosts, each with the first of them; a host's own name in a hint counts as equal."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in examined:
        for finding in one.findings:
            key = (finding.check, _nameless(finding.message, finding), _nameless(finding.hint, finding))
            groups.setdefault(key, []).append(finding)
    return sorted(((group[0], group) for group in groups.values()), key=lambda item: item[0].is_note)


def _nameless(text: str, finding: Finding) -> str:
    return text.replace(finding.host, "\0")


def finding_lines(examined: Sequence[Examined]) -> list[str]:
    """What is wrong, each with what to do; and the sum of it."""
    lines: list[str] = []
    groups = folded(examined)
    for first, group in groups:
        names = fold_hosts(finding.host for finding in group)
        message = _nameless(first.message, first).replace("\0", first.host if len(group) == 1 else names)
        details = [f"{finding.host} {finding.detail}" if len(group) > 1 else finding.detail for finding in group]
        told = "; ".join(detail for detail in details[:DETAILS] if detail.strip() and group[0].detail)
        more = f"; and {len(group) - DETAILS} more" if told and len(group) > DETAILS else ""
        kind = f"note: {first.check}" if first.is_note else first.check
        lines.append(visible(f"{names}: {kind}: {message}{f' ({told}{more})' if told else ''}"))
        hint = _nameless(first.hint, first).replace("\0", names)
        lines += [f"  hint: {visible(line)}" for line in hint.splitlines()]
    bad = sum(is_wrong(one) for one in examined)
    hosts = counted(len(examined), "host")
    lines.append(f"{hosts}: {bad} with something wrong" if bad else f"{hosts}: nothing is wrong")
    return lines


def is_wrong(one: Examined) -> bool:
    """Something is wrong with the host: notes don't count."""
    return any(not finding.is_note for finding in one.findings)


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """For machines: every host with all its facts, and the findings folded."""
    return {
        "ok": not any(is_wrong(one) for one in examined),
        "hosts": [_host(one) for one in examined],
        "findings": [
            {
                "check": first.check,
                "message": first.message,
                "hint": first.hint,
                "is_note": first.is_note,
                "hosts": [finding.host for finding in group],
                "details": {finding.host: finding.detail for finding in group if finding.detail},
            }
            for first, group in folded(examined)
        ],
    }


def _host(one: Examined) -> dict[str, Any]:
    return {
        "host": one.host,
        "ok": not is_wrong(one),
        "findings": [dataclasses.asdict(finding) for finding in one.findings],
        "clock": None if one.clock is None else dataclasses.asdict(one.clock),
        "address": one.address or None,
        "interface": one.interface or None,
        "facts": _shown_facts(one.facts),
    }


def _shown_facts(facts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Without what only means something to a run: a moment's time, a process that is gone."""
    if facts is None:
        return None
    return {name: value for name, value in facts.items() if name not in ("monotonic", "time", "pid")}


# -- one host's settings


def effective_lines(values: Sequence[Effective]) -> list[str]:
    """A line for every value, with where it comes from."""
    shown = [(f"{one.name} = {_spelled(one.value)}", one.origin) for one in values]
    width = min(max(len(text) for text, _ in shown), 56)
    return [visible(f"{text.ljust(width)}  {origin}") for text, origin in shown]


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
