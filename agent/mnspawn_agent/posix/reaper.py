"""Finds and ends what belongs to one pod, and nothing else: its descendants, and processes that carry its mark.

The mark is the run's id and the pod's node_rank in a process's environment, since several pods of one run can share a
machine. A process is signalled only when it is ours by one of the two signs at that moment.
"""

import os
import signal
import time
from typing import Dict, List, Set, Tuple

LOOKS = 10_000  # two or three would do, if processes ended only between two looks
CHASE = 0.1  # seconds to run after processes that replace themselves faster than /proc can be read


def mark_of(run: str, node_rank: int) -> Dict[str, str]:
    """The variables by which a pod's processes are known."""
    return {"MNSPAWN_RUN_ID": run, "MNSPAWN_NODE_RANK": str(node_rank)}


def find(run: str, node_rank: int, spare: Set[int]) -> List[int]:
    """Pids of living processes of the pod, zombies and `spare` (with what only they lead to) left out.

    Args:
        run: may be "" when no run is known yet: then only descendants count.
        spare: pids that are ours but no part of the pod (agent, guardian).
    """
    wanted = {("%s=%s" % item).encode("ascii") for item in mark_of(run, node_rank).items()} if run else set()
    own = os.getuid()
    children: Dict[int, List[int]] = {}
    found: Set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        try:
            with open("/proc/%d/stat" % pid, "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            children.setdefault(int(fields[1]), []).append(pid)
            if wanted and (own == 0 or os.stat("/proc/%d" % pid).st_uid == own):
                with open("/proc/%d/environ" % pid, "rb") as environ:
                    if wanted <= set(environ.read().split(b"\0")):
                        found.add(pid)
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile, or its environment is not ours to read: then it is not ours to end
    queue = list(children.get(os.getpid(), ()))
    while queue:
        pid = queue.pop()
        found.add(pid)
        queue.extend(children.get(pid, ()))
    return sorted(found - spare - {os.getpid()})


def send(pids: List[int], name: str) -> None:
    """Send a signal to each; a stopped process is continued so that it can act on it."""
    number = getattr(signal, name)
    for pid in pids:
        for each in (number, signal.SIGCONT) if number != signal.SIGKILL else (number,):
            try:
                os.kill(pid, each)
            except OSError:
                break  # it ended meanwhile


def find_all(run: str, node_rank: int, spare: Set[int]) -> List[int]:
    """`find`, and never empty while something lives: reading /proc takes longer than a process needs to fork and end.

    A subreaper's descendants are its children as soon as their own parents have ended, so "no child" is the proof.
    """
    return find(run, node_rank, spare) or sorted(set(living_children()) - spare)


def living_children() -> List[int]:
    """What we started or adopted and what has not ended; reaps what has."""
    for _ in range(LOOKS):
        reap()
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                continue  # one more has ended since
        except ChildProcessError:
            return []
        try:
            with open("/proc/self/task/%d/children" % os.getpid()) as children:
                pids = [int(pid) for pid in children.read().split()]
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN: what `find` sees has to do
            return []
        if pids:
            return pids
    return []


def kill_all(run: str, node_rank: int, spare: Set[int]) -> List[int]:
    """Kill what `find_all` finds, and what that has become meanwhile; gives the pids that were found."""
    found = find_all(run, node_rank, spare)
    send(found, "SIGKILL")
    deadline = time.monotonic() + CHASE
    left = set(living_children()) - spare
    while left and time.monotonic() < deadline:
        send(sorted(left), "SIGKILL")
        left = set(living_children()) - spare
    return found


def send_to_group(pgid: int, name: str) -> None:
    """Send a signal to a trainer's group."""
    try:
        os.killpg(pgid, getattr(signal, name))
    except OSError:
        pass  # the group is empty: its last member ended meanwhile


def reap() -> List[Tuple[int, int]]:
    """(pid, wait status) of every child that has ended, ours or adopted."""
    ended: List[Tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))
