"""Importing the inventory library costs little, counted in calls; bench/cli_import.py has the seconds."""

import subprocess
import sys

from tests.support import PATIENCE


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout


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
