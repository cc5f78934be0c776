"""The agent's entry: takes the link away from stdin and stdout, then hands it to the mode that is asked for."""

import os
import sys
from typing import Any, Iterable, List

MODES = {  # in which module of posix/ each is served
    "attach": "link.attach",
    "watch": "link.watch",
    "tail": "link.tailer",
    "reap": "link.manage",
    "list": "link.manage",
    "order": "link.manage",
    "clean": "link.manage",
    "checkup": "host.checkup",
}


def main(argv: List[str], version: str, is_cached: bool) -> int:
    """Run one mode.

    Args:
        argv: `serve`, or `attach`, `watch`, `reap` with RUN NODE_RANK (`watch ... ended`: only a pod whose agent has
            reported its end), or `list`, or `order RUN NODE_RANK VERB [WORD]`, or `clean MIN_AGE dry|do`, or `checkup`,
            or `tail`.
        version: of mnspawn.
        is_cached: the archive was on this host already.

    Returns:
        The process's exit status.
    """
    link_in, link_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    if argv[0] == "serve":
        return serve(link_in, link_out, version, is_cached)
    if argv[0] not in MODES:
        sys.stderr.write("mnspawn agent: unknown mode %r\n" % argv[0])
        return 2
    from importlib import import_module

    module = import_module("mnspawn_agent.posix." + MODES[argv[0]])
    status: int = module.serve(link_in, link_out, argv, {"version": version, "facts": {}, "cached": is_cached})
    return status


def serve(
    link_in: int, link_out: int, version: str, is_cached: bool, starter: Any = None, unneeded: Iterable[int] = ()
) -> int:
    """Be the agent of one run.

    Args:
        starter: an object with the functions of the module posix/run/spawner, which None stands for.
        unneeded: descriptors that the guardian closes.
    """
    from .posix.run import guardian

    guard = guardian.split(unneeded)
    from .posix import native
    from .posix.files import rundir
    from .posix.host import facts
    from .posix.link.agent import Agent
    from .posix.link.loop import Wire
    from .posix.run import limits, spawner

    limits.raise_open_files()
    known = facts.collect()
    known["root"], reasons, strange = rundir.try_places()
    known["root_problem"] = "; ".join(strange if known["root"] else reasons)
    hello = {"version": version, "facts": native.outward(known), "cached": is_cached}
    return Agent(Wire(link_in, link_out), guard, hello, known["root"], starter or spawner).run()
