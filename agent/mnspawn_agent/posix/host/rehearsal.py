"""Tries what a run does on a host, for `hosts check`, and undoes it: folder, files, socket, processes, a port."""

import os
from typing import Callable, Dict, List

from ..files import control, rundir
from ..run import ports

OWN_FILES = 12  # open in an agent that has a run beside those that it makes for it
MOST = 64  # processes at once


def problems(ranks: int) -> Dict[str, str]:
    """What kept a run from being made, in the words of a run; empty when nothing does.

    Args:
        ranks: how many a run would have here.
    """
    place, _, _ = rundir.try_places()
    found = {
        "folder": _folder(place) if place else "",
        "processes": _processes(min(ranks + 2, MOST)),  # and the guardian, and who starts them
        "ports": _ports(),
    }
    return {name: problem for name, problem in found.items() if problem}


def _folder(place: str) -> str:
    run = "check-" + os.urandom(6).hex()
    undo: List[Callable[[], None]] = []
    try:
        for _ in range(OWN_FILES):
            fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            undo.append(lambda fd=fd: os.close(fd))  # type: ignore[misc]
        folder = rundir.RunDir(place, run, 0)
        folder.write_status({})
        for fd in (folder.lock(), folder.open_stream(0, "out")[1]):
            undo.append(lambda fd=fd: os.close(fd))  # type: ignore[misc]
        undo.append(control.listen(folder.path).close)
    except OSError as error:
        return ("run folder can't be made: %s" % error).replace(run, "RUN")
    finally:
        for one in undo:
            one()
        rundir.remove(os.path.join(place, "runs", run, "0"))
    return ""


def _processes(count: int) -> str:
    children: List[int] = []
    read_end, write_end = os.pipe()
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(write_end)
                    os.read(read_end, 1)
                finally:
                    os._exit(0)
            children.append(pid)
    except OSError as error:
        return "ranks could not be started: fork: %s" % error.strerror
    finally:
        os.close(read_end)
        os.close(write_end)
        for pid in children:
            os.waitpid(pid, 0)
    return ""


def _ports() -> str:
    held = ports.HeldPorts()
    try:
        held.hold_free()
    except ports.PortTaken as error:
        return str(error)
    finally:
        held.close()
    return ""
