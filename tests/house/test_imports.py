"""Who may import whom: what import-linter can't say, and import-linter itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.controller import REPOSITORY
from tests.support.source import AGENT, CONTROLLER, INVENTORY, imported_roots, imports, modules, shown

SYSTEM = {
    "asyncio",
    "concurrent",
    "logging",
    "multiprocessing",
    "os",
    "queue",
    "random",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
PURE = [
    CONTROLLER / "errors.py",
    CONTROLLER / "events.py",
    CONTROLLER / "report.py",
    CONTROLLER / "plan",
    CONTROLLER / "core",
    CONTROLLER / "output" / "lines.py",
    AGENT / "core",
    AGENT / "protocol",
]
ALLOWED = {AGENT / "protocol" / "exits.py": {"signal"}}  # names of signals, a table
PLACES = {
    "asyncssh": ("orchestrator/mnspawn/transport/asyncssh/", "orchestrator/mnspawn/sandbox"),
    "paramiko": ("orchestrator/mnspawn/transport/paramiko/",),
    "typer": ("orchestrator/mnspawn/cli/",),
    "click": ("orchestrator/mnspawn/cli/",),
    "rich": (),  # typer needs it, to show help
    "cloudpickle": ("orchestrator/mnspawn/spawning/",),
    "pynvml": ("agent/mnspawn_agent/posix/host/devices",),
    "ClusterShell": ("inventory/",),
    "yaml": ("inventory/",),
}
AGENT_SEEN_BY_CONTROLLER = ("mnspawn_agent.protocol", "mnspawn_agent.ours")  # what a private folder is
AGENT_SHIPPED_BY = ("orchestrator/mnspawn/bootstrap/", "orchestrator/mnspawn/spawning/sending/function.py")  # as files
AGENT_FORKED_BY = "orchestrator/mnspawn/spawning/forking/"  # which becomes one


def test_modules_that_decide_touch_neither_the_system_nor_a_clock() -> None:
    assert [path for path in PURE if not path.exists()] == []
    found = {
        shown(path): used
        for path in modules(*PURE)
        if (used := (imported_roots(path) & SYSTEM) - ALLOWED.get(path, set()))
    }
    assert found == {}


def test_heavy_libraries_stay_in_their_places() -> None:
    found = [
        f"{shown(path)} imports {name}"
        for path in modules(CONTROLLER, AGENT, INVENTORY)
        for name in imported_roots(path) & PLACES.keys()
        if not shown(path).startswith(PLACES[name])
    ]
    assert found == []


def test_the_agent_needs_nothing_but_the_standard_library() -> None:
    allowed = sys.stdlib_module_names | {
        "mnspawn_agent",
        "pynvml",
    }  # pynvml is one file of ours to ship, if it is there
    found = {shown(path): foreign for path in modules(AGENT) if (foreign := imported_roots(path) - allowed)}
    assert found == {}


def test_the_inventory_knows_nobody() -> None:
    found = [shown(path) for path in modules(INVENTORY) if imported_roots(path) & {"mnspawn", "mnspawn_agent"}]
    assert found == []


def test_the_controller_knows_the_agent_by_its_protocol() -> None:
    found = [
        f"{shown(path)} imports {name}"
        for path in modules(CONTROLLER)
        for name in imports(path)
        if name.partition(".")[0] == "mnspawn_agent"
        and not name.startswith(AGENT_SEEN_BY_CONTROLLER)
        and not shown(path).startswith((*AGENT_SHIPPED_BY, AGENT_FORKED_BY))
    ]
    assert found == []


def loaded_after(program: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has after running a program."""
    report = "import sys; print('\\n', *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


HEAVY = {
    "asyncssh",
    "paramiko",
    "typer",
    "click",
    "rich",
    "cryptography",
    "cloudpickle",
    "tomlkit",
    "yaml",
    "ClusterShell",
}


def test_importing_mnspawn_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import mnspawn; print(*sorted(set(sys.modules) - before))"
    isolated = f"import sys; sys.path[:0] = {sys.path!r}; {program}"
    done = subprocess.run([sys.executable, "-I", "-c", isolated], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} == {"mnspawn"}


def test_public_functions_stay_functions_whatever_was_imported_before() -> None:
    program = "import mnspawn.spawning.start, mnspawn.api.launch, mnspawn; print(mnspawn.spawn, mnspawn.launch)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("<function") == 2


UNNEEDED = {"ClusterShell", "yaml", "tomlkit", "tomllib", "json", "subprocess", "mnspawn", "mnspawn_agent", "asyncio"}


def test_a_plain_list_of_hosts_imports_no_other_library() -> None:
    chosen = "m.resolve(hosts='a,b:4,gpu[01-16]', environ={'HOME': '/nowhere'}, cwd='/')"
    assert loaded_after(f"import mnspawn_inventory as m; {chosen}") & UNNEEDED == set()


def test_version_imports_nothing_heavy() -> None:
    program = """
import sys
sys.argv = ["mnspawn", "--version"]
from mnspawn.cli.main import main
try:
    main()
except SystemExit:
    pass
"""
    assert loaded_after(program) & HEAVY == set()


def test_the_layers_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["mnspawn", "mnspawn_agent", "mnspawn_inventory"])
def test_packages_are_typed(name: str) -> None:
    folder = {"mnspawn": CONTROLLER, "mnspawn_agent": AGENT, "mnspawn_inventory": INVENTORY}[name]
    assert (folder / "py.typed").exists()
