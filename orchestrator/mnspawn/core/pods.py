"""Reads what hosts answer about their pods, and to orders, into checked types. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from mnspawn_agent.protocol.checks import (
    LARGEST_CODE,
    MAX_LIST,
    MAX_PID,
    MAX_RANK,
    MAX_RANKS,
    MAX_SECONDS,
    MAX_TEXT,
    MAX_TIME,
    MAX_WORDS,
    OLDEST_CODE,
    is_token,
    shown,
)

from .facts import Nonsense, Reader

MOST_HOSTS = 1 << 16  # of a run
MOST_PODS = 1 << 20  # folders on one host: an answer has no room for more


@dataclass(frozen=True, slots=True)
class RankStatus:
    """A rank in a pod's status; `code` is None for one that was not started."""

    rank: int
    code: int | None
    stopped: bool

    @classmethod
    def read(cls, answer: Reader) -> Self:
        code = answer.whole("code", OLDEST_CODE, LARGEST_CODE) if answer.has_value("code") else None
        return cls(answer.whole("rank", 0, MAX_RANK), code, answer.flag("stopped"))


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What a pod's agent wrote about its end; `stop` is "asked", "orphaned" or None."""

    state: str
    stop: str | None
    workers: tuple[RankStatus, ...]

    @classmethod
    def read(cls, answer: Reader) -> Self:
        workers = answer.items("trainers", MAX_RANKS, lambda one: RankStatus.read(one.part("item")))
        return cls(answer.text("state"), answer.text("stop") if answer.has_value("stop") else None, workers)


@dataclass(frozen=True, slots=True)
class Pod:
    """A run's share of one host, as its folder there has it.

    Attributes:
        hosts: what the run calls its hosts, in the order of their node ranks; () where that was not written down.
        world: how many ranks each host of the run has.
        began: seconds since the epoch, 0 where that was not written down.
        grace: seconds between TERM and KILL.
        status: None where none was written.
        is_here: the folder is this host's, and not another's that shares the home.
    """

    run: str
    node_rank: int
    world: tuple[int, ...]
    name: str | None
    program: Mapping[str, Any]
    began: float
    grace: float
    status: PodStatus | None
    is_here: bool
    is_alive: bool
    hosts: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: Reader) -> Self:
        run, node_rank, plan = answer.text("run"), answer.text("node_rank"), answer.part("plan")
        if not is_token(run):
            raise Nonsense(f"run: expected a run's id, found {shown(run)}")
        if not (node_rank.isascii() and node_rank.isdecimal() and len(node_rank) < 8):
            raise Nonsense(f"node_rank: expected a number, found {shown(node_rank)}")
        return cls(
            run=run,
            node_rank=int(node_rank),
            world=plan.items("world", MOST_HOSTS, lambda one: one.whole("item", 0, MAX_RANKS)),
            name=plan.text("name") if plan.has_value("name") else None,
            program=_program(plan.part("program")) if plan.has_value("program") else {},
            began=plan.number("began", 0, MAX_TIME) if plan.has_value("began") else 0.0,
            grace=plan.number("grace", 0, MAX_SECONDS) if plan.has_value("grace") else 10.0,
            status=PodStatus.read(answer.part("status")) if answer.has_value("status") else None,
            is_here=answer.flag("is_here"),
            is_alive=answer.flag("is_alive"),
            hosts=plan.items("hosts", MOST_HOSTS, lambda one: one.text("item")) if plan.has_value("hosts") else (),
        )


def sources_of(found: Sequence[tuple[str, Pod]]) -> dict[int, int]:
    """Choose which host to ask about each pod of one run, where hosts share their folders.

    Args:
        found: the hosts' names, each with a pod that is in its folder.

    Returns:
        A position in `found` for each node rank: of the host that the run calls so; else of one that has no other pod.
    """
    chosen: dict[int, int] = {}
    for position, (name, pod) in enumerate(found):
        if pod.node_rank < len(pod.hosts) and pod.hosts[pod.node_rank] == name:
            chosen.setdefault(pod.node_rank, position)
    taken = {found[position][0] for position in chosen.values()}
    for is_last in (False, True):
        for position, (name, pod) in enumerate(found):
            if pod.node_rank not in chosen and (is_last or name not in taken):
                chosen[pod.node_rank] = position
                taken.add(name)
    return dict(sorted(chosen.items()))


def _program(answer: Reader) -> dict[str, Any]:
    args = answer.items("args", MAX_WORDS, lambda one: one.text("item", most=MAX_TEXT))
    return {"kind": answer.text("kind"), "target": answer.text("target", most=MAX_TEXT), "args": list(args)}


@dataclass(frozen=True, slots=True)
class Pods:
    """All pods of one host. `problems`: folders that can't be read, each with the reason."""

    pods: tuple[Pod, ...]
    problems: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: object) -> Self:
        """Read them all: one folder that is damaged, or another version's, hides no other."""
        if not isinstance(answer, list) or len(answer) > MOST_PODS:
            raise Nonsense(f"expected a list of at most {MOST_PODS} pods, found {shown(answer)}")
        pods, problems = [], []
        for one in answer:
            try:
                pods.append(Pod.read(Reader(one)))
            except Nonsense as exc:
                path = shown(one.get("path")) if isinstance(one, dict) else "?"
                problems.append(f"a run's folder makes no sense: {path}: {exc}")
        return cls(tuple(pods), tuple(problems))


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was done, or would be done, about one pod's folder and the processes that a dead agent left."""

    run: str
    node_rank: str
    path: str
    ended: tuple[int, ...]
    is_removed: bool
    leftovers: tuple[int, ...] | None = None

    @classmethod
    def read(cls, answer: Reader) -> Self:
        leftovers = _pids(answer, "leftovers") if answer.has("leftovers") else None
        run, node_rank, path = answer.text("run"), answer.text("node_rank"), answer.text("path")
        return cls(run, node_rank, path, _pids(answer, "ended"), answer.flag("is_removed"), leftovers)

    def describe(self) -> dict[str, Any]:
        """Return JSON-able values under the agent's names."""
        described = {**asdict(self), "ended": list(self.ended), "leftovers": list(self.leftovers or ())}
        return {name: value for name, value in described.items() if name != "leftovers" or self.leftovers is not None}


def _pids(answer: Reader, name: str) -> tuple[int, ...]:
    return answer.items(name, MAX_LIST, lambda one: one.whole("item", 1, MAX_PID))


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """The outcome of an order to a pod's agent.

    Attributes:
        problem: why nothing came of it, when it is not ok.
        is_gone: there is no agent any more that could take orders.
        holder: who holds the run, for an order to detach: controller, away, detached.
    """

    ok: bool
    problem: str = ""
    is_gone: bool = False
    holder: str | None = None

    @classmethod
    def read(cls, answer: object) -> Self:
        reader = Reader(answer)
        return cls(
            reader.flag("ok"),
            reader.text("problem", ""),
            reader.flag("is_gone") if reader.has("is_gone") else False,
            reader.text("holder") if reader.has_value("holder") else None,
        )


Content = Pods | tuple[Cleaned, ...] | OrderAnswer


def read(mode: str, answer: object) -> Content:
    """Read the answer to a question of the agent's modes `list`, `clean` and `order`.

    Raises:
        Nonsense: it is none.
    """
    if mode == "list":
        return Pods.read(answer)
    if mode == "clean":
        return Reader({"actions": answer}).items("actions", MOST_PODS, lambda one: Cleaned.read(one.part("item")))
    return OrderAnswer.read(answer)
