"""How a run begins between a session and a scripted agent, up to the moment at which its ranks have started."""

from collections.abc import Callable, Sequence
from typing import Any

from mnspawn.core.session import HostSession
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel
from tests.unit.host_facts import FACTS

FILES = [{"name": f"f{blob}", "path": None, "digest": "ab", "size": 3, "blob": blob} for blob in range(3)]


def prepare(ranks: Sequence[int] = (0,), **changed: Any) -> dict[str, Any]:
    """PREPARE for some ranks of the first host."""
    asked: dict[str, Any] = {
        "run": "r1", "node_rank": 0, "ranks": list(ranks), "python": None, "command": None, "files": [],
        "prelude": None, "unset": [], "env": {}, "argument_bytes": 0,
        "has_results": False, "workdir": "/w", "is_workdir_required": False, "start_port": None, "master_port": None,
        "extra_ports": 0, "probes": [], "grace": 1.0, "orphan_grace": 20.0, "silence_limit": 10.0,
        "log_cap": None, "python_version": None, "stops_on_failure": True, "about": {},
    }  # fmt: skip
    return messages.make(messages.PREPARE, **{**asked, **changed})


def start() -> dict[str, Any]:
    return messages.make(messages.START, unset=[], env={}, files=[], argv=["true"], workers=[], is_forked=False)


def hello(**changed: Any) -> dict[str, Any]:
    """HELLO of an honest agent, with some facts changed."""
    return messages.make(messages.HELLO, protocol=1, version="x", facts={**FACTS, **changed}, cached=True)


def prepared(ports: int = 1, **changed: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "ports": list(range(6070, 6070 + ports)), "extra_ports": [], "run_dir": "/r", "workdir": "/w", "python": "/p",
        "files": [], "reach": [], "at": 1.0,
    }  # fmt: skip
    return messages.make(messages.PREPARED, **{**said, **changed})


def started(rank: int) -> dict[str, Any]:
    return messages.make(messages.STARTED, rank=rank, pid=42, at=1.0)


def begin(session: HostSession, agent: Channel, pass_on: Callable[[], object], ranks: Sequence[int] = (0,)) -> None:
    """Say on both sides what a run says until every rank has started."""
    agent.send(hello())
    pass_on()
    session.send(prepare(ranks))
    agent.send(prepared(len(ranks)))
    pass_on()
    session.send(start())
    for rank in ranks:
        agent.send(started(rank))
    pass_on()
