"""CUDA_VISIBLE_DEVICES as torch itself reads it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import PATIENCE, frameworks, nvml
from tests.unit.core.test_visible import TABLE


@pytest.mark.frameworks
def test_torch_reads_the_same(tmp_path: Path) -> None:
    source = """
import json, os, sys, torch
from torch import cuda
def read(value):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    try:
        found = cuda._parse_visible_devices()
    except ValueError:  # of a sign without a number
        return 0, []
    if found and isinstance(found[0], str):
        found = cuda._transform_uuid_to_ordinals(found, cuda._raw_device_uuid_nvml())
    return cuda._device_count_nvml() if found else 0, found
print(json.dumps([read(value) for value in json.loads(sys.argv[1])]))
"""
    library = nvml.build(tmp_path)
    done = subprocess.run(
        [frameworks.python("torch"), "-c", source, json.dumps(list(TABLE))],
        env={"LD_LIBRARY_PATH": str(library.parent), "STUB_COUNT": "4"},
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    said = json.loads(done.stdout)
    assert [found[:count] for count, found in said] == [list(devices) for devices in TABLE.values()]
