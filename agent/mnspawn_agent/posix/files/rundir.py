"""The folders that the agent keeps on a host: where they may be, what is in them. Uses only folders that are ours."""

import fcntl
import glob
import json
import os
import socket
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ... import ours
from ...protocol.checks import is_token
from ..streams import first_line

PROBE = b"x" * 65536  # enough to detect a full disk on which folders can still be made
KEEP_SECONDS = 14 * 86400  # finished runs are kept for `logs` this long
PLAN = "plan.json"  # what the pod is, without secrets
STATUS = "status.json"  # how it stands
JOURNAL = "journal.jsonl"  # every control message about it, in order
LOCK = "lock"
FULL = 65536  # bytes left on a disk that counts as full
KEEP_BYTES = 2 << 30  # and while they take less than this in all


def state_candidates() -> List[str]:
    """Folders that may hold run directories, best first."""
    name = "mnspawn-%d" % os.getuid()
    places = (
        os.path.join(os.environ.get("XDG_STATE_HOME", ""), "mnspawn"),
        os.path.join(os.path.expanduser("~"), ".local", "state", "mnspawn"),
        os.path.join("/var/tmp", name),
        os.path.join("/tmp", name),
        os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), "mnspawn"),
        os.path.join("/dev/shm", name),
    )
    return [place for place in places if place.startswith("/")]  # else the variable is not set, or there is no home


def try_places() -> Tuple[str, List[str], List[str]]:
    """The first folder that really takes bytes, "" when none does.

    Returns:
        The folder; why those before it don't; and of these reasons those that are no business of a healthy host:
        somebody else has, or could have, put there what we would find.
    """
    reasons: List[str] = []
    strange: List[str] = []
    for place in state_candidates():
        probe = os.path.join(place, ".probe-%s" % os.urandom(6).hex())  # hosts can share a home, and pids
        try:
            ours.make(place)
            with open(probe, "wb") as file:
                try:
                    file.write(PROBE)
                    file.flush()
                finally:
                    os.unlink(probe)
            return place, reasons, strange
        except ours.NotOurs as error:
            strange.append(str(error.strerror))
            reasons.append(str(error.strerror))
        except OSError as error:
            reasons.append("%s: %s" % (place, error.strerror or error))
    return "", reasons, strange


class RunDir:
    """`<root>/runs/<run>/<node_rank>`: status, spool files, log and control socket of one pod."""

    def __init__(self, root: str, run: str, node_rank: int) -> None:
        self.path = ours.make(root, "runs", run, str(node_rank))

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def write(self, name: str, content: bytes) -> str:
        """Write a file atomically; returns its path."""
        path = self.join(name)
        temporary = "%s.tmp-%d" % (path, os.getpid())
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
        return path

    def write_plan(self, about: Dict[str, Any], run: str, node_rank: int, ranks: List[int], grace: float) -> None:
        """Write what the pod is, for later readers."""
        plan = dict(about, run=run, node_rank=node_rank, ranks=ranks, grace=grace, hostname=socket.gethostname())
        plan.update(began=time.time(), clock=time.monotonic(), boot=boot_id())
        self.write(PLAN, json.dumps(plan, indent=1, sort_keys=True).encode("ascii"))

    def write_status(self, status: Dict[str, Any]) -> None:
        self.write(STATUS, json.dumps(status, indent=1, sort_keys=True).encode("ascii"))

    def open_stream(self, rank: int, suffix: str) -> Tuple[str, int]:
        """(path, descriptor for appending) of a new, empty spool file."""
        path = self.join("rank-%d.%s" % (rank, suffix))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        return path, os.open(path, flags, 0o600)

    def is_full(self) -> bool:
        """Whether the disk is full: then workers lose output and may fail."""
        try:
            status = os.statvfs(self.path)
        except OSError:
            return False
        return status.f_bavail * status.f_frsize < FULL

    def append_journal(self, message: Dict[str, Any]) -> None:
        """Add a line to the journal. Raises OSError."""
        fd = os.open(self.join(JOURNAL), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(fd, "ab") as file:
            file.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def lock(self) -> int:
        """Lock the folder until this process ends; returns the lock's descriptor. Raises OSError."""
        fd = os.open(self.join(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd


def is_held(path: str) -> bool:
    """Whether the agent of a pod's folder lives."""
    try:
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def openers_of(path: str) -> List[int]:
    """Pids of other processes that have a file open, as far as this account may see them."""
    path = os.path.realpath(path)
    found = set()
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link) == path:
                found.add(int(link.split("/")[2]))
        except OSError:
            pass  # it was closed meanwhile
    return sorted(found - {os.getpid()})


def folders_of(run: str, node_rank: str) -> Iterator[str]:
    """Every folder of a pod that is ours, wherever on this host it is kept: usually one."""
    if not is_token(run) or not is_number(node_rank):
        return
    for root in state_candidates():
        try:
            yield ours.secure(root, "runs", run, node_rank)
        except OSError:
            continue  # missing, or somebody else's: then it is no pod of ours


def find_pod(run: str, node_rank: str) -> Optional[str]:
    """The folder of a pod, wherever on this host it is kept."""
    for path in folders_of(run, node_rank):
        if os.path.exists(os.path.join(path, PLAN)):
            return path
    return None


def is_number(name: str) -> bool:
    """Whether a name is a node_rank: ASCII digits only, unlike str.isdigit."""
    return name.encode("utf-8", "replace").isdigit()


def read_json(folder: str, name: str) -> Optional[Dict[str, Any]]:
    """The object in PLAN or STATUS of a pod's folder; None where there is none that can be read."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            content = json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def boot_id() -> str:
    """Identifies the current boot; monotonic clocks start anew with each."""
    return first_line("/proc/sys/kernel/random/boot_id")


def has_verdict(path: str) -> bool:
    """Whether a pod's agent has written down how everything ended."""
    try:
        with open(os.path.join(path, JOURNAL), "rb") as file:
            return any(b'"type":"done"' in line for line in file)  # within a text its quotes would have backslashes
    except OSError:
        return False


def list_pods(root: str) -> Iterator[Tuple[str, str, str]]:
    """(run, node_rank, path) of every pod folder below a root that is ours."""
    try:
        runs = sorted(os.listdir(ours.secure(root, "runs")))
    except OSError:
        return
    for run in runs:
        try:
            pods = sorted(os.listdir(ours.secure(root, "runs", run)))
        except OSError:
            continue  # not a folder of ours, or it went meanwhile
        for pod in pods:
            try:
                if is_number(pod):
                    yield run, pod, ours.secure(root, "runs", run, pod)
            except OSError:
                continue  # as above


def prune(root: str, now: Optional[float] = None) -> None:
    """Remove folders of runs that are old, and the oldest of finished ones while all are too large.

    A run whose agent was killed is as old as what was last written there. Never one that an agent holds: its controller
    may still have to read it. Nor, for its size, the newest run's: it has just ended, and its user may ask how.
    """
    now = time.time() if now is None else now
    finished, dead = [], []
    for _, _, path in list_pods(root):
        plan, status = read_json(path, PLAN), read_json(path, STATUS)
        if is_held(path):
            continue
        try:
            found = [entry.stat() for entry in os.scandir(path) if entry.is_file()]
            if status is not None and status.get("state") == "done":
                size = sum(one.st_blocks * 512 for one in found)
                finished.append((os.stat(os.path.join(path, STATUS)).st_mtime, size, path))
            elif found and now - max(one.st_mtime for one in found) > KEEP_SECONDS and is_here(plan or {}):
                dead.append(path)
        except OSError:
            continue  # it goes while we look
    for path in dead:
        remove(path)
    finished.sort()
    total = sum(size for _, size, _ in finished)
    newest = os.path.dirname(finished[-1][2]) if finished else ""
    for ended, size, path in finished:
        if now - ended > KEEP_SECONDS or (total > KEEP_BYTES and os.path.dirname(path) != newest):
            remove(path)
            total -= size


def remove(path: str) -> None:
    """Remove a pod's folder, and the run's when it was the last in it."""
    import shutil  # late: it imports much, and the start of a run doesn't need it

    shutil.rmtree(path, ignore_errors=True)
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:
        pass  # other pods of the run are still there


def is_here(plan: Dict[str, Any]) -> bool:
    """Whether a pod is of this host: a home can be shared between hosts."""
    return bool(plan.get("hostname") == socket.gethostname())
