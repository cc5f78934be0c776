"""Words what a checkup of hosts found, as text and JSON. Pure."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from mnspawn.api.fleet import Device, Effective, Examined, Finding

from .folding import Folded, HostMessage, fold
from .run import counted, fold_hosts, visible
from .tables import columns

COLUMNS = ("HOST", "PYTHON", "AGENT", "CLOCK", "CPUS", "MEMORY", "DISK", "DEVICES", "ADDRESS", "FINDINGS")
DETAILS = 8  # hosts of one finding that are listed; --json has them all
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(examined: Sequence[Examined]) -> list[str]:
    """Return a line for every host, in columns."""
    return columns([COLUMNS, *(_row(one) for one in examined)]).splitlines()


def _row(one: Examined) -> tuple[str, ...]:
    facts = one.facts
    names = (f"({finding.check})" if finding.is_note else finding.check for finding in one.findings)
    found = ",".join(dict.fromkeys(names)) or "ok"
    if facts is None or one.more is None or one.clock is None:
        return (one.host, *["-"] * (len(COLUMNS) - 2), found)
    more, cpus, usable = one.more, facts.cpus, one.more.usable_cpus
    return (
        one.host,
        ".".join(str(part) for part in facts.python_version),
        "memory" if not more.cache.place else "cached" if more.cache.was_here else "sent",
        f"{one.clock.offset:+.3f}±{one.clock.uncertainty:.3f} s",
        f"{cpus}" if usable == cpus else f"{usable:g} of {cpus}",
        _free(more.available, more.memory),
        _free(more.runs.free, more.runs.total) if more.runs.place else _free(None, None),
        _devices(facts.devices),
        one.address or "-",
        found,
    )


def _devices(devices: Sequence[Device]) -> str:
    """Return the devices by kind: 2 x NVIDIA H100."""
    names = [device.name or "?" for device in devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"


def _free(free: int | None, total: int | None) -> str:
    return f"{size(free)} of {size(total)}"


def size(count: float | None) -> str:
    """1.5 GiB."""
    if count is None:
        return "?"
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} {_UNITS[power]}" if count >= 10 or not power else f"{count:.1f} {_UNITS[power]}"


# -- findings


def folded(examined: Iterable[Examined]) -> list[tuple[Folded, list[Finding]]]:
    """Return equal findings of many hosts as one, with the hosts' own; notes come last."""
    found = [finding for one in examined for finding in one.findings]
    messages = [((one.check, one.is_note), HostMessage(one.host, one.message, one.hint)) for one in found]
    groups = [(one, [found[position] for position in positions]) for _, one, positions in fold(messages, fold_hosts)]
    return sorted(groups, key=lambda group: group[1][0].is_note)


def finding_lines(examined: Sequence[Examined]) -> list[str]:
    """Return what is wrong, each with what to do, and a line that counts it."""
    lines: list[str] = []
    for one, group in folded(examined):
        kind = f"note: {group[0].check}" if group[0].is_note else group[0].check
        details = _details(group)
        suffix = f" ({details})" if details else ""
        first, *more = one.message.splitlines() or [""]
        lines.append(visible(f"{fold_hosts(one.hosts)}: {kind}: {first}{suffix}"))
        lines += [f"    {visible(line)}" for line in (*more, *one.each)]
        lines += [f"  hint: {visible(line)}" for line in (one.hint or "").splitlines()]
    bad = sum(is_wrong(one) for one in examined)
    hosts = counted(len(examined), "host")
    lines.append(f"{hosts}: {bad} with something wrong" if bad else f"{hosts}: nothing is wrong")
    return lines


def _details(group: Sequence[Finding]) -> str:
    """Return what differs from host to host."""
    if len({finding.detail for finding in group}) == 1:
        return group[0].detail
    shown = [f"{finding.host} {finding.detail}" for finding in group if finding.detail]
    return "; ".join([*shown[:DETAILS], *([f"and {len(shown) - DETAILS} more"] if len(shown) > DETAILS else [])])


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
                "check": group[0].check,
                "is_note": group[0].is_note,
                "message": one.message,
                "hint": one.hint,
                "hosts": list(one.hosts),
                "details": {finding.host: finding.detail for finding in group if finding.detail},
            }
            for one, group in folded(examined)
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
        "facts": _shown_facts(one),
    }


def _shown_facts(one: Examined) -> dict[str, Any] | None:
    """Without what only means something to a run: a moment's time, a process that is gone, the folder for runs."""
    if one.facts is None or one.more is None:
        return None
    left_out = ("monotonic", "time", "pid", "root", "root_problem")
    facts = {name: value for name, value in one.facts.describe().items() if name not in left_out}
    return {**facts, **one.more.describe()}


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
