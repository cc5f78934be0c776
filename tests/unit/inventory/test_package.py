"""The package as others see it: its names, what it imports, what it costs to import."""

import subprocess
import sys

import mnspawn_inventory
from tests.support import PATIENCE

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
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout


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


def test_importing_is_less_work_than_what_it_needs_of_the_standard_library() -> None:
    code = """import sys
counts = []
def count(*_):
    counts[-1] += 1
for words in ("import dataclasses, re, pathlib, collections.abc, typing, os, stat", "import mnspawn_inventory"):
    counts.append(0)
    sys.setprofile(count)
    exec(words)
    sys.setprofile(None)
print(*counts)"""
    python(code)  # compiles
    library, ours = map(int, python(code).split())
    assert 0 < ours < library
