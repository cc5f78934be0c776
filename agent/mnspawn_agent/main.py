"""The agent's entry: takes the link away from stdin and stdout, then serves, attaches or reaps."""

import os
import sys
from typing import Any, Dict, Iterable, List

MOST_TOLD = 1000  # pids; who has more to end does it by the run's mark


def main(argv: List[str], version: str, is_cached: bool) -> int:
    """Run one mode.

    Args:
        argv: `serve`, or `attach`, `watch`, `reap` with RUN NODE_RANK (`watch ... ended`: only a pod whose last word is
            said), or `list`, or `order RUN NODE_RANK VERB [WORD]`, or `clean MIN_AGE dry|do`, or `checkup`, or `tail`.
        version: of mnspawn.
        is_cached: the archive was on this host already.
    """
    link_in, link_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    mode, words = argv[0], argv[1:]
    if mode == "serve":
        return serve(link_in, link_out, version, is_cached)
    if mode == "attach":
        return _attach(link_in, link_out, words[0], words[1])
    if mode == "watch":
        return _watch(link_in, link_out, words, version, is_cached)
    if mode == "tail":
        return _tail(link_in, link_out, version, is_cached)
    if mode == "reap":
        return _reap(link_out, words[0], words[1])
    if mode == "checkup":
        return _check_up(link_in, link_out, is_cached)
    if mode in ("list", "order", "clean"):
        return _answer(link_out, mode, words)
    sys.stderr.write("mnspawn agent: unknown mode %r\n" % mode)
    return 2


def serve(
    link_in: int, link_out: int, version: str, is_cached: bool, starter: Any = None, unneeded: Iterable[int] = ()
) -> int:
    """Be the agent of one run.

    Args:
        starter: starts workers, as the module posix/run/spawner does, which it is when it is None.
        unneeded: descriptors that the guardian does not keep open.
    """
    from .posix.run import guardian

    guard = guardian.split(unneeded)
    from .posix import native
    from .posix.files import rundir
    from .posix.host import facts
    from .posix.link.agent import Agent
    from .posix.link.wire import Wire
    from .posix.run import limits, spawner

    limits.raise_open_files()
    known = facts.collect()
    known["root"], reasons, strange = rundir.try_places()
    known["root_problem"] = "; ".join(strange if known["root"] else reasons)
    hello = {"version": version, "facts": native.outward(known), "cached": is_cached}
    return Agent(Wire(link_in, link_out), guard, hello, known["root"], starter or spawner).run()


def _attach(link_in: int, link_out: int, run: str, node_rank: str) -> int:
    from .posix.files import control
    from .posix.link import attach

    sock = control.connect(run, node_rank)
    if sock is None:
        os.write(link_out, b"gone\n")
        return 1
    os.write(link_out, b"here\n")
    attach.relay(link_in, link_out, sock)
    return 0


def _check_up(link_in: int, link_out: int, is_cached: bool) -> int:
    from .posix.host import checkup

    return checkup.serve(link_in, link_out, is_cached)


def _reap(link_out: int, run: str, node_rank: str) -> int:
    """End an agent that does not answer and what it or a dead one left; says what would not die, and why."""
    import json

    from .posix.run import guardian, reaper

    guardian.end_agent(run, int(node_rank))
    left = reaper.why_alive(guardian.end_all(run, int(node_rank))[:MOST_TOLD])
    os.write(link_out, ("left %s\n" % (json.dumps(left) if left else "")).encode("ascii"))
    return 1 if left else 0


def _watch(link_in: int, link_out: int, words: List[str], version: str, is_cached: bool) -> int:
    from .posix import native
    from .posix.files import rundir

    folder = rundir.find_pod(words[0], words[1])
    plan = rundir.read_json(os.path.join(folder, rundir.PLAN)) if folder else None
    if folder is None or plan is None or ("ended" in words[2:] and not rundir.has_verdict(folder)):
        os.write(link_out, b"gone\n")
        return 1
    from .posix.link.watch import Watcher
    from .posix.link.wire import Wire

    os.write(link_out, b"here\n")
    hello = {"version": version, "facts": {"plan": plan, "root": native.outward(folder)}, "cached": is_cached}
    return Watcher(Wire(link_in, link_out), folder, plan, hello).run()


def _tail(link_in: int, link_out: int, version: str, is_cached: bool) -> int:
    from .posix.link.tailer import Tailer
    from .posix.link.wire import Wire

    return Tailer(Wire(link_in, link_out), {"version": version, "facts": {}, "cached": is_cached}).run()


def _answer(link_out: int, mode: str, words: List[str]) -> int:
    """One JSON line."""
    import json

    from .posix import native
    from .posix.link import manage

    if mode == "list":
        answer: Any = manage.list_pods()
    elif mode == "clean":
        answer = manage.clean(float(words[0]), words[1] == "dry")
    else:
        run, node_rank, verb = words[:3]
        order: Dict[str, Any] = {"command": verb}
        if verb == "stop":
            order.update(grace=float(words[3]), who=words[4])
        elif verb == "signal":
            order.update(signal=words[3], ranks=[int(rank) for rank in words[4:]] or None)
        answer = manage.command(run, node_rank, order)
    view = memoryview(json.dumps(native.outward(answer)).encode("ascii") + b"\n")
    while view:
        view = view[os.write(link_out, view) :]
    return 0
