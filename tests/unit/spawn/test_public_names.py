import subprocess
import sys

import pytest

import mnspawn
from mnspawn import multiprocessing


def test_the_public_names_are_these() -> None:
    assert mnspawn.__all__ == [
        "DeviceError",
        "HostError",
        "HostLost",
        "HostOutcome",
        "HostsUnusable",
        "MnspawnError",
        "NotPicklable",
        "PlanRefused",
        "ProcessException",
        "ProcessExitedException",
        "ProcessRaisedException",
        "RankOutcome",
        "ResultError",
        "RunReport",
        "RunTimedOut",
        "SpawnContext",
        "UsageError",
        "__version__",
        "alaunch",
        "aspawn",
        "launch",
        "multiprocessing",
        "spawn",
    ]
    assert multiprocessing.__all__ == [
        "ProcessContext",
        "ProcessException",
        "ProcessExitedException",
        "ProcessRaisedException",
        "SpawnedProcess",
        "spawn",
        "start_processes",
    ]


def test_every_name_is_there_and_named_in_dir() -> None:
    assert {name for name in mnspawn.__all__ if getattr(mnspawn, name) is None} == set()
    assert set(mnspawn.__all__) <= set(dir(mnspawn))
    with pytest.raises(AttributeError, match="has no attribute 'sbawn'"):
        _ = mnspawn.sbawn


def test_the_names_stay_functions_whatever_was_imported_before() -> None:
    program = "import mnspawn.spawning.start, mnspawn.spawning.launch, mnspawn; print(mnspawn.spawn, mnspawn.launch)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.count("<function") == 2


def test_importing_mnspawn_imports_little() -> None:
    program = "import sys; before = set(sys.modules); import mnspawn; print(*sorted(set(sys.modules) - before))"
    said = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name.partition(".")[0] for name in said.stdout.split()} == {"mnspawn"}
