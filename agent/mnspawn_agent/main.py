"""The agent's entry: takes the link away from stdin and stdout, then serves, attaches or reaps."""

import os
import sys
from typing import List


def main(argv: List[str], version: str, is_cached: bool) -> int:
    """Run one mode.

    Args:
        argv: `serve`, `attach RUN NODE_RANK` or `reap RUN NODE_RANK`.
        version: of mnspawn.
        is_cached: the archive was on this host already.
    """
    link_in, link_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    if argv[0] == "serve":
        return _serve(link_in, link_out, version, is_cached)
    if argv[0] == "attach":
        return _attach(link_in, link_out, argv[1], argv[2])
    if argv[0] == "reap":
        return _reap(link_out, argv[1], argv[2])
    sys.stderr.write("mnspawn agent: unknown mode %r\n" % argv[0])
    return 2


def _serve(link_in: int, link_out: int, version: str, is_cached: bool) -> int:
    from .posix import guardian

    guard = guardian.split()
    from . import facts
    from .posix import rundir
    from .posix.loop import Agent
    from .posix.wire import Wire

    known = facts.collect()
    try:
        known["root"], known["root_problem"] = rundir.find_root(), ""
    except rundir.NothingWritable as error:
        known["root"], known["root_problem"] = "", str(error)
    hello = {"version": version, "facts": known, "cached": is_cached}
    return Agent(Wire(link_in, link_out), guard, hello, known["root"]).run()


def _attach(link_in: int, link_out: int, run: str, node_rank: str) -> int:
    from .posix import attach

    sock = attach.connect(run, node_rank)
    if sock is None:
        os.write(link_out, b"gone\n")
        return 1
    os.write(link_out, b"here\n")
    attach.relay(link_in, link_out, sock)
    return 0


def _reap(link_out: int, run: str, node_rank: str) -> int:
    """End what a dead agent left; says the pids that would not die."""
    from .posix import guardian

    left = guardian.end_all(run, int(node_rank))
    os.write(link_out, ("left %s\n" % ",".join(str(pid) for pid in left)).encode("ascii"))
    return 1 if left else 0
