"""The agent runs on whatever Python a host has: 3.6 and newer."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.support import pythons
from tests.support.controller import REPOSITORY
from tests.support.source import AGENT, modules, shown, tree

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import mnspawn_agent
for module in pkgutil.walk_packages(mnspawn_agent.__path__, "mnspawn_agent."):
    importlib.import_module(module.name)
    print(module.name)
"""
FORBIDDEN_CALLS = {"eval", "exec", "input", "print"}
ALLOWED = {("unpack.py", "exec")}  # the agent's own archive, after its digest was checked
FORBIDDEN_MODULES = {"pickle", "asyncio", "dataclasses"}


def test_every_module_can_be_imported(agent_python: Path) -> None:
    command = [str(agent_python), "-I", "-S", "-B", "-W", "error", "-c", IMPORT_ALL, str(AGENT.parent)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    assert "mnspawn_agent.protocol" in done.stdout.split()


def test_this_machine_has_the_oldest_python_that_counts() -> None:
    found = [*pythons.agent_pythons()]
    assert found, "no CPython of the machine was found"
    if pythons.pyenv_versions().is_dir():  # as on the machines that CI uses
        assert found[0] == "3.6"


def test_vermin_finds_nothing_newer_than_3_6() -> None:
    vermin = str(Path(sys.executable).with_name("vermin"))
    command = [vermin, "-t=3.6-", "--no-tips", "--violations", "--eval-annotations", "--backport", "typing", str(AGENT)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_agent_evaluates_unpickles_and_prints_nothing() -> None:
    found = []
    for path in modules(AGENT):
        if path.name == "worker_main.py":  # runs inside a worker, on a function that its user shipped
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in FORBIDDEN_CALLS and (path.name, node.func.id) not in ALLOWED:
                    found.append(f"{shown(path)}:{node.lineno} calls {node.func.id}")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                found += [f"{shown(path)}:{node.lineno} imports {name}" for name in names if name in FORBIDDEN_MODULES]
    assert found == []
