"""Answers `mnspawn hosts check`: the clock, facts of this host, which other hosts it reaches.

Requests are JSON objects, one a line, and so are answers; the end of input ends it. Changes nothing but for the probe
file that shows whether a folder takes bytes.
"""

import glob
import json
import os
import pwd
import resource
import signal
import socket
import time
from typing import Any, Dict, Iterator, List, Tuple

from ... import ours
from .. import native
from ..files import rundir
from ..run import limits, prelude, probe, programs, reaper
from ..run.prepare import without
from ..streams import first_line, read_within, write_all
from . import facts, rehearsal

LINE_LIMIT = 64 << 20  # the largest has a rank's environment, 6 MiB (execve(2)) with each byte as \udcXX
AT_ONCE = 128  # connections under way, where so many files may be open: 500 silent ones take 12 s
LOOKUP_LIMIT = 3.0  # seconds for the host's own name: a name server that is not there takes longer than that
LOGIND = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")  # the last one wins


def serve(link_in: int, link_out: int, argv: List[str], hello: Dict[str, Any]) -> int:
    """The mode `checkup`: answer until nobody asks any more. Returns the exit status."""
    for request in _requests(link_in):
        if request["ask"] == "clock":
            answer: Dict[str, Any] = {"time": time.time()}
        elif request["ask"] == "host":
            answer = describe(hello["cached"])
        elif request["ask"] == "prelude":
            answer = native.outward(_try_prelude(native.inward(request)))
        else:
            targets = [(str(address), int(port)) for address, port in request["targets"]]
            problems = probe.attempt(targets, _at_once())
            answer = {"reach": [[address, port, problem] for (address, port), problem in problems.items() if problem]}
        write_all(link_out, json.dumps(answer).encode("ascii") + b"\n")
    return 0


def _requests(link_in: int) -> Iterator[Dict[str, Any]]:
    held = b""
    while True:
        chunk = os.read(link_in, 65536)
        if not chunk or len(held) > LINE_LIMIT:
            return
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line.decode("utf-8"))


def _try_prelude(request: Dict[str, Any]) -> Dict[str, str]:
    """What is wrong with a prelude ("" for nothing), and the interpreter that it leads to."""
    before = without(os.environ, request["unset"])
    before.update(request["env"])
    folder = os.path.expanduser(request["workdir"] or "~")
    folder = folder if os.path.isdir(folder) else "/"

    def end_all() -> None:
        reaper.kill_all(before["MNSPAWN_RUN_ID"], 0, set())

    try:
        left = prelude.rehearse(request["lines"], before, folder, lambda: None, end_all)
    except prelude.PreludeFailed as error:
        return {"problem": str(error), "python": "", "version": ""}
    wanted, path = request["python"], left.environ.get("PATH", os.defpath)
    if wanted is None:
        found = programs.of_environment(before, left.environ, left.folder, lambda: None)
    else:
        found = programs.find(os.path.expanduser(wanted), path, left.folder)
    if found is None:
        return {"problem": "no Python at %s after the prelude" % wanted, "python": "", "version": ""}
    return {"problem": "", "python": found, "version": programs.version_of(found, lambda: None, left.environ)}


def _at_once() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return AT_ONCE if soft < 0 else max(1, min(AT_ONCE, soft // 2))


def describe(is_cached: bool) -> Dict[str, Any]:
    """The facts of HELLO, and what is only looked at for a check."""
    known = facts.collect()
    known.update(
        cache=_cache(is_cached),
        runs=_runs(),
        memory=_memory(),
        usable_cpus=_usable_cpus(),
        limits={  # -1: without limit
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
        },
        rdma=sorted(os.path.basename(path) for path in glob.glob("/sys/class/infiniband/*")),
        logind=_logind(),
        own_name=_own_name(socket.gethostname()),
    )
    limits.raise_open_files()  # as a run does
    known["rehearsal"] = rehearsal.problems(len(known["devices"]) or int(known["cpus"]))
    return known


# -- folders


def _cache(is_cached: bool) -> Dict[str, Any]:
    """Whether the agent was here already, and where it is kept ("" for memory: it is sent anew each time)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~") + "/.cache"
    preferred = os.path.join(base, "mnspawn")
    code = os.path.dirname(getattr(ours, "__file__", "") or "")  # <place>/<digest>/mnspawn_agent
    place = os.path.dirname(os.path.dirname(code))
    return {
        "was_here": is_cached,
        "place": place,
        "preferred": preferred,
        "is_writable": bool(place) and os.access(place, os.W_OK | os.X_OK),
    }


def _runs() -> Dict[str, Any]:
    """Where runs are kept, and what is free there; "problem" is why the best is not taken, and whose others are."""
    preferred = rundir.state_candidates()[0]
    place, reasons, strange = rundir.try_places()
    if not place:
        return {"place": "", "preferred": preferred, "problem": "; ".join(reasons)}
    best = [reason.replace(preferred + ": ", "", 1) for reason in reasons[:1]]
    problem = "; ".join(best + [reason for reason in strange if reason not in best])
    status = os.statvfs(place)
    return {
        "place": place,
        "preferred": preferred,
        "problem": problem,
        "free": status.f_bavail * status.f_frsize,
        "total": status.f_blocks * status.f_frsize,
        "free_files": status.f_favail if status.f_files else -1,  # btrfs and others have no such number
    }


# -- memory and processors


def _memory() -> Dict[str, int]:
    """In bytes; {} where the system has no /proc/meminfo."""
    found = {}
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name[3:].lower()] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return {}
    return found


def _usable_cpus() -> float:
    """Processors that this account may use: affinity, and the control group's share."""
    count = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for quota, period in _quotas():
        count = min(count, quota / period)
    return round(count, 2)


def _quotas() -> Iterator[Tuple[float, float]]:
    """(quota, period) of the control group and those above it, both hierarchies; nothing where there is no limit."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers not in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
            continue
        root = "/sys/fs/cgroup" + ("/" + controllers if controllers else "")
        while True:
            folder = root + path.rstrip("/")
            try:
                if controllers:
                    quota, period = first_line(folder + "/cpu.cfs_quota_us"), first_line(folder + "/cpu.cfs_period_us")
                else:
                    quota, _, period = first_line(folder + "/cpu.max").partition(" ")
                if float(quota) > 0 and float(period) > 0:
                    yield float(quota), float(period)
            except ValueError:
                pass  # no such file in the root group, or "max"
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


# -- logind


def _logind() -> Dict[str, Any]:
    """Whether logind ends what a user leaves running when the last session closes, this user's included."""
    settings: Dict[str, Tuple[str, str]] = {}
    for path in _logind_files():
        try:
            with open(path, errors="replace") as file:
                for number, line in enumerate(file, 1):
                    name, equals, value = line.partition("=")
                    if equals and not name.lstrip().startswith(("#", ";")):
                        settings[name.strip()] = (value.strip(), "%s:%d" % (path, number))
        except OSError:
            continue  # not there
    value, place = settings.get("KillUserProcesses", ("no", ""))
    user = _user()
    only = settings.get("KillOnlyUsers", ("", ""))[0].split()
    spared = settings.get("KillExcludeUsers", ("root", ""))[0].split()
    lingers = os.path.exists("/var/lib/systemd/linger/" + user)
    kills = value.lower() in ("1", "yes", "y", "true", "t", "on")
    return {
        "kills": kills and user not in spared and (not only or user in only) and not lingers,
        "place": place,
        "user": user,
    }


def _logind_files() -> List[str]:
    """logind.conf of the most important folder that has one, then the drop-ins, by name, each name once."""
    mains = [path for folder in LOGIND for path in glob.glob(folder + "/logind.conf")]
    drops = {os.path.basename(path): path for folder in LOGIND for path in glob.glob(folder + "/logind.conf.d/*.conf")}
    return mains[-1:] + [drops[name] for name in sorted(drops)]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# -- the host's own name


def _own_name(name: str) -> Dict[str, Any]:
    """What the host's own name resolves to, asked for in a process of its own that is ended when it takes too long."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            os.write(write_end, json.dumps(_look_up(name)).encode("ascii"))
        finally:
            os._exit(0)
    os.close(write_end)
    answer = read_within(read_end, LOOKUP_LIMIT)
    os.close(read_end)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if not answer:
        return {"name": name, "addresses": [], "problem": "no answer within %.0f s" % LOOKUP_LIMIT}
    addresses, problem = json.loads(answer.decode("ascii"))
    return {"name": name, "addresses": addresses, "problem": problem}


def _look_up(name: str) -> Tuple[List[str], str]:
    try:
        found = socket.getaddrinfo(os.fsencode(name), None, 0, socket.SOCK_STREAM)  # bytes: without the IDNA tables
    except OSError as error:
        return [], str(getattr(error, "strerror", None) or error)
    return sorted({str(address[0]) for _, _, _, _, address in found})[:16], ""
