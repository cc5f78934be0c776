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
