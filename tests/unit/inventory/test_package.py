"""The package as others see it: its names, what it imports, what it costs to import."""

import subprocess
import sys
import time

import mnspawn_inventory

HEAVY = (
    "ClusterShell",
    "yaml",
    "tomlkit",
    "tomllib",
    "json",
    "subprocess",
    "mnspawn",
    "mnspawn_agent",
    "asyncio",
)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_public_names_are_these() -> None:
    assert sorted(mnspawn_inventory.__all__) == [
        "Group",
        "Host",
        "Inventory",
        "InventoryError",
        "Origin",
        "SecretRef",
        "Selection",
        "fold",
        "read_inventory",
        "resolve",
    ]


def test_a_plain_list_of_hosts_imports_no_other_library() -> None:
    chosen = "m.resolve(hosts='a,b:4,gpu[01-16]', environ={'HOME': '/nowhere'}, cwd='/')"
    loaded = python(f"import sys, mnspawn_inventory as m; {chosen}; print(*sys.modules)").split()
    assert [name for name in HEAVY if name in loaded] == []


def test_importing_costs_less_than_what_it_needs_of_the_standard_library() -> None:
    """Both CPU times from one process, as machines are busy; the best of several."""
    needed = "import dataclasses, re, pathlib, collections.abc, typing, os, stat"
    code = f"""import time
t = time.process_time(); {needed}; library = time.process_time() - t
t = time.process_time(); import mnspawn_inventory; print((time.process_time() - t) / library)"""
    deadline = time.monotonic() + 20
    best = 10.0
    while best > 1.0 and time.monotonic() < deadline:
        best = min(best, float(python(code)))
    assert best <= 1.0
