"""Finds and ends what belongs to one pod, and nothing else: its descendants, and processes that carry its tags.

The tags are the run's id and the pod's node_rank in a process's environment, since several pods of one run can share a
machine. A process is signalled only when it is ours by one of the two signs at that moment.
"""

import errno
import os
import signal
import time
from typing import Dict, Iterator, List, Sequence, Set, Tuple

LOOKS = 10_000  # two or three would do, if processes ended only between two looks
CHASE = 0.1  # seconds to pursue processes that replace themselves faster than /proc can be read


def tags_of(run: str, node_rank: int) -> Dict[str, str]:
    """The variables by which a pod's processes are known."""
    return {"MNSPAWN_RUN_ID": run, "MNSPAWN_NODE_RANK": str(node_rank)}


def find(run: str, node_rank: int, spare: Set[int]) -> List[int]:
    """Pids of living processes of the pod, zombies and `spare` (with what only they lead to) left out.

    Args:
        run: may be "" when no run is known yet: then only descendants count.
        spare: pids that are ours but no part of the pod (agent, guardian).
    """
    wanted = _lines_of(run, node_rank)
    children: Dict[int, List[int]] = {}
    found: Set[int] = set()
    for pid, parent in _living():
        children.setdefault(parent, []).append(pid)
        if run and wanted <= _environment_of(pid):
            found.add(pid)
    queue = list(children.get(os.getpid(), ()))
    while queue:
        pid = queue.pop()
        found.add(pid)
        queue.extend(children.get(pid, ()))
    return sorted(found - spare - {os.getpid()})


def find_each(pods: Sequence[Tuple[str, int]]) -> Dict[Tuple[str, int], List[int]]:
    """Pids of living processes that carry the tags of pods (run, node_rank), after one look at /proc for all pods."""
    found: Dict[Tuple[str, int], List[int]] = {pod: [] for pod in pods}
    for pid, _ in sorted(_living()) if pods else ():
        lines = _environment_of(pid) if pid != os.getpid() else set()
        for pod in pods:
            if _lines_of(*pod) <= lines:
                found[pod].append(pid)
    return found


def _living() -> Iterator[Tuple[int, int]]:
    """(pid, parent's pid) of every process that is no zombie."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    yield int(name), int(fields[1])
            except (OSError, IndexError, ValueError):
                continue  # it ended meanwhile


def _environment_of(pid: int) -> Set[bytes]:
    """Its lines; none of a process that ended meanwhile, or is not ours to read: then it is not ours to end."""
    own = os.getuid()
    try:
        if own != 0 and os.stat("/proc/%d" % pid).st_uid != own:
            return set()
        with open("/proc/%d/environ" % pid, "rb") as environ:
            return set(environ.read().split(b"\0"))
    except OSError:
        return set()


def _lines_of(run: str, node_rank: int) -> Set[bytes]:
    return {("%s=%s" % item).encode("ascii") for item in tags_of(run, node_rank).items()}


def send(pids: List[int], name: str) -> Set[int]:
    """Send a signal to each; a stopped process is continued so that it can act on it.

    Returns:
        Those that we may not signal: they have become another user's (a program with the set-user-ID bit, sudo).
    """
    number = getattr(signal, name)
    refused: Set[int] = set()
    for pid in pids:
        for each in (number, signal.SIGCONT) if number != signal.SIGKILL else (number,):
            try:
                os.kill(pid, each)
            except OSError as error:
                if error.errno == errno.EPERM:
                    refused.add(pid)
                break  # else it ended meanwhile
    return refused


def why_alive(pids: List[int]) -> List[Tuple[int, str]]:
    """(pid, what keeps it alive) of processes that outlived KILL; without those that have ended meanwhile."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            uid = _status_of(pid).get("Uid", "").split()
            found.append((pid, "may not be signalled (it runs as uid %s)" % uid[0] if uid else "may not be signalled"))
            continue
        state = _status_of(pid).get("State", "")[:1]
        if state not in ("Z", "X", ""):
            found.append((pid, "hangs in the kernel (state D)" if state == "D" else "outlived KILL (state %s)" % state))
    return found


def _status_of(pid: int) -> Dict[str, str]:
    """The lines of /proc/PID/status; none when it has ended or hides."""
    try:
        with open("/proc/%d/status" % pid, errors="replace") as status:
            pairs = [line.partition(":") for line in status]
    except OSError:
        return {}
    return {name: text.strip() for name, _, text in pairs}


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


def kill_all(run: str, node_rank: int, spare: Set[int]) -> Tuple[List[int], Set[int]]:
    """Kill what `find_all` finds, and what that has become meanwhile.

    Returns:
        The pids that were found, and those of all that we may not signal.
    """
    found = find_all(run, node_rank, spare)
    refused = send(found, "SIGKILL")
    deadline = time.monotonic() + CHASE
    left = set(living_children()) - spare - refused
    while left and time.monotonic() < deadline:
        refused |= send(sorted(left), "SIGKILL")
        left = set(living_children()) - spare - refused
    return found, refused


def send_to_group(pgid: int, name: str) -> bool:
    """Send a signal to a worker's group; False when we may signal nobody in it."""
    try:
        os.killpg(pgid, getattr(signal, name))
    except OSError as error:
        return error.errno != errno.EPERM  # else the group is empty: its last member ended meanwhile
    return True


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
