"""What hosts say of themselves, as honest agents do."""

from typing import Any

from mnspawn.core.facts import CheckupFacts, HostFacts

FACTS: dict[str, Any] = {
    "python": "/usr/bin/python3",
    "python_version": [3, 11, 2],
    "cpus": 4,
    "device_kind": "cpu",
    "devices": [],
    "device_problem": "",
    "interfaces": [["lo", "127.0.0.1"], ["eth0", "10.0.0.1"]],
    "ssh_address": "",
    "hostname": "h1",
    "netid": "net1",
    "user": 1000,
    "home": "/home/u",
    "pid": 4711,
    "monotonic": 1000.5,
    "time": 1.7e9,
    "env": {},
}
CHECKED: dict[str, Any] = {
    "cache": {"was_here": True, "place": "/h/.cache/mnspawn", "preferred": "/h/.cache/mnspawn", "is_writable": True},
    "runs": {"place": "/h/s", "preferred": "/h/s", "problem": "", "free": 1 << 40, "total": 1 << 41, "free_files": -1},
    "memory": {"total": 1 << 36, "available": 1 << 35},
    "usable_cpus": 4.0,
    "rehearsal": {},
    "limits": {"nofile": [1024, 524288], "memlock": [8 << 20, 8 << 20]},
    "rdma": [],
    "logind": {"kills": False, "place": "", "user": "u"},
    "own_name": {"name": "h1", "addresses": ["10.0.0.1"], "problem": ""},
}


def facts(**changed: Any) -> HostFacts:
    return HostFacts.read({**FACTS, **changed})


def checked(**changed: Any) -> CheckupFacts:
    return CheckupFacts.read({**CHECKED, **changed})
