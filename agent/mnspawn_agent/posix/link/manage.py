"""Answers about the runs of this host, and orders to them: list, order, clean, reap. One answer each."""

import json
import time
from typing import Any, Dict, Iterator, List, Tuple

from .. import native
from ..files import control, rundir
from ..run import guardian, reaper
from ..streams import write_all

MOST_REPORTED = 1000  # pids; who has more to end does it by the run's tags


def serve(link_in: int, link_out: int, argv: List[str], hello: Dict[str, Any]) -> int:
    """The modes list, order, clean and reap: one line of JSON, or of words. Returns the exit status."""
    mode, words = argv[0], argv[1:]
    if mode == "reap":
        left = reap(words[0], int(words[1]))
        write_all(link_out, ("left %s\n" % (json.dumps(left) if left else "")).encode("ascii"))
        return 1 if left else 0
    if mode == "list":
        answer: Any = list_pods()
    elif mode == "clean":
        answer = clean(float(words[0]), words[1] == "dry")
    else:
        run, node_rank, verb = words[:3]
        order: Dict[str, Any] = {"command": verb}
        if verb == "stop":
            order.update(grace=float(words[3]), who=words[4])
        elif verb == "signal":
            order.update(signal=words[3], ranks=[int(rank) for rank in words[4:]] or None)
        answer = command(run, node_rank, order)
    write_all(link_out, json.dumps(native.outward(answer)).encode("ascii") + b"\n")
    return 0


def reap(run: str, node_rank: int) -> List[Tuple[int, str]]:
    """End an agent that does not answer, and what it or a dead one left; returns what would not die, and why."""
    guardian.end_agent(run, node_rank)
    return reaper.why_alive(guardian.end_all(run, node_rank)[:MOST_REPORTED])


def list_pods() -> List[Dict[str, Any]]:
    """Every pod whose folder is on this host: its plan, its status, whether its agent lives, whether it is ours.

    A home can be shared between hosts: `is_here` is False for the pods of others, about which nothing is known here.
    """
    return [
        {
            "run": run,
            "node_rank": node_rank,
            "path": path,
            "plan": plan,
            "status": rundir.read_json(path, rundir.STATUS),
            "is_here": rundir.is_here(plan),
            "is_alive": rundir.is_here(plan) and rundir.is_held(path),
        }
        for run, node_rank, path, plan in _pods()
    ]


def _pods() -> Iterator[Any]:
    for root in rundir.state_candidates():
        for run, node_rank, path in rundir.list_pods(root):
            plan = rundir.read_json(path, rundir.PLAN)
            if plan is not None:
                yield run, node_rank, path, plan


def command(run: str, node_rank: str, order: Dict[str, Any]) -> Dict[str, Any]:
    """Give an order to a pod's agent; its answer, or {"ok": False, "problem": ...} when there is none."""
    sock = control.connect(run, node_rank)
    if sock is None:
        known = rundir.find_pod(run, node_rank)
        if known is None:
            return {"ok": False, "problem": "no such run", "is_gone": False}
        problem = "it has ended its part of the run" if rundir.has_verdict(known) else "its agent is gone"
        return {"ok": False, "problem": problem, "is_gone": True}
    try:
        sock.settimeout(10.0)
        sock.sendall(json.dumps(order).encode("ascii") + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = sock.recv(4096)
            if not part:
                break
            answer += part
        found = json.loads(answer.decode("utf-8"))
    except (OSError, ValueError) as error:
        return {"ok": False, "problem": "the agent does not answer: %s" % error}
    finally:
        sock.close()
    return found if isinstance(found, dict) else {"ok": False, "problem": "the agent's answer makes no sense"}


def clean(min_age: float, is_dry: bool) -> List[Dict[str, Any]]:
    """End what dead agents left and remove folders of runs that ended `min_age` seconds ago.

    Only pods of this host whose agent is gone, and only processes that carry the pod's own tags.
    """
    actions = []
    dead = [
        (run, node_rank, path, plan)
        for run, node_rank, path, plan in _pods()
        if rundir.is_here(plan) and not any(map(rundir.is_held, rundir.folders_of(run, node_rank)))
    ]
    found = reaper.find_each([(run, int(node_rank)) for run, node_rank, _, _ in dead])
    for run, node_rank, path, plan in dead:
        left = found[run, int(node_rank)]
        status = rundir.read_json(path, rundir.STATUS)
        age = time.time() - float((status or {}).get("time") or plan.get("began") or 0)
        action = {"run": run, "node_rank": node_rank, "path": path, "ended": left, "is_removed": age >= min_age}
        if left and not is_dry:
            action["leftovers"] = guardian.end_all(run, int(node_rank))
        if action["is_removed"] and not is_dry:
            rundir.remove(path)
        if left or action["is_removed"]:
            actions.append(action)
    return actions
