"""Programs that inventories are compared with: ansible-core, Slurm, Open MPI, MPICH, OpenSSH."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tools: compares with another program that must be installed")


def find_tool(name: str) -> str | None:
    """The program on PATH, or in the environment that is made for ansible-core."""
    places = dict.fromkeys([os.environ.get("MNSPAWN_FRAMEWORKS") or str(REPOSITORY), str(REPOSITORY)])
    folders = [os.path.join(place, ".venv-ansible", "bin") for place in places]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


@pytest.fixture
def tool() -> Callable[[str], str]:
    """Gives the path of a program; skips the test where it is not installed, but never in CI."""

    def tool(name: str) -> str:
        found = find_tool(name)
        if found is not None:
            return found
        lacking = f"{name} is not installed (see .ci/system and .ci/run)"
        if os.environ.get("CI") == "true":
            pytest.fail(lacking)
        pytest.skip(lacking)

    return tool
