"""Which host tries which on the data network, and which is at fault where one is not reached. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_PEERS = 64  # hosts that one host tries: with four addresses and two ports each that is 512 connects
Problems = Mapping[tuple[str, int], str]  # (address, port) -> why it was not reached; the rest was


def peers_of(prober: int, count: int) -> list[int]:
    """Return the hosts that a host tries: all others while they are few, else some, with the first and its neighbours.

    The steps between them are the same for every host, so each is tried by as many.
    """
    if count - 1 <= MAX_PEERS:
        return [other for other in range(count) if other != prober]
    spread = {round(step * count / MAX_PEERS) for step in range(1, MAX_PEERS - 1)}
    return sorted({(prober + step) % count for step in spread | {1, count - 1}} | {0} - {prober})


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """A host that another one does not reach."""

    prober: int
    target: int
    problem: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A host and everything that it is at fault for.

    Attributes:
        unreached_by: hosts that don't reach it, with the reason.
        not_reaching: hosts that it does not reach, with the reason.
    """

    host: int
    unreached_by: tuple[FailedProbe, ...]
    not_reaching: tuple[FailedProbe, ...]


def choose(
    candidates: Sequence[str], ports: Sequence[int], answers: Mapping[int, Problems]
) -> tuple[str, dict[int, str]]:
    """Return the address that most hosts reach on every port (the first of equals), and which do not reach it, and why.

    Args:
        candidates: at least one address.
        answers: of each host that tried.
    """
    best: tuple[str, dict[int, str]] | None = None
    for address in candidates:
        missed: dict[int, str] = {}
        for prober, problems in answers.items():
            bad = [(port, problems[address, port]) for port in ports if (address, port) in problems]
            if bad:
                where = "" if len(bad) == len(ports) else f" at port {', '.join(str(port) for port, _ in bad)}"
                missed[prober] = bad[0][1] + where
        if best is None or len(missed) < len(best[1]):
            best = address, missed
    assert best is not None
    return best


def attribute(failures: Sequence[FailedProbe]) -> list[Fault]:
    """Return the fewest hosts that explain every failure: the one that is cut off, not all that can't reach it.

    Of two hosts with equally many, the one that others fail to reach; else the later one, as the first leads the run.
    """
    left = list(failures)
    faults = []
    while left:
        weight: Counter[int] = Counter()
        as_target: Counter[int] = Counter()
        for failure in left:
            weight[failure.prober] += 1
            weight[failure.target] += 1
            as_target[failure.target] += 1
        host = max(weight, key=lambda one: (weight[one], as_target[one], one))
        unreached_by = tuple(failure for failure in left if failure.target == host)
        not_reaching = tuple(failure for failure in left if failure.prober == host)
        faults.append(Fault(host, unreached_by, not_reaching))
        left = [failure for failure in left if host not in (failure.prober, failure.target)]
    return sorted(faults, key=lambda fault: fault.host)
