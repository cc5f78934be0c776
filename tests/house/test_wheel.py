"""What people install: three packages, their metadata, and nothing else."""

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.controller import REPOSITORY

PACKAGES = {"mnspawn", "mnspawn_agent", "mnspawn_inventory"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_three_packages_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {name.partition("/")[0] for name in names}
    (metadata,) = roots - PACKAGES
    assert metadata.startswith("mnspawn-")
    assert metadata.endswith(".dist-info")
    assert roots == PACKAGES | {metadata}
    assert [name for name in names if "test" in name or name.endswith((".pyc", ".sh"))] == []
    for package in PACKAGES:
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= set(names)


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(archive.read(path))
        (entries,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert "mnspawn = mnspawn.cli.main:main" in archive.read(entries).decode()
    assert metadata["Name"] == "mnspawn"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    needed = {requirement.split(">")[0].lower() for requirement in metadata.get_all("Requires-Dist", [])}
    assert needed == {
        "asyncssh",
        "paramiko",
        "nvidia-ml-py",
        "typer",
        "cloudpickle",
        "tomlkit",
        "clustershell",
        "pyyaml",
    }
