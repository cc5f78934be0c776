"""Locks of torch's extension builds that a killed process has left."""

from pathlib import Path

import pytest

from mnspawn_agent.posix.run import torch_files
from tests.support import Controller

HOLDS = (
    "import os, signal, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print('holds', flush=True); signal.pause()"
)


@pytest.mark.parametrize(
    ("variable", "folder"),
    [("XDG_CACHE_HOME", "torch_extensions/py311_cpu/deepspeed_shm_comm"), ("TORCH_EXTENSIONS_DIR", "mine")],
)
def test_a_lock_is_told_once_its_holder_was_killed(
    controller: Controller, tmp_path: Path, variable: str, folder: str
) -> None:
    lock = tmp_path / folder / "lock"
    lock.parent.mkdir(parents=True)
    assert torch_files.lock_problems({variable: str(tmp_path)}) == []
    with controller.start("python3", "-c", HOLDS, str(lock)) as holder:
        holder.wait_for(lambda: "holds" in holder.stdout)
        assert torch_files.lock_problems({variable: str(tmp_path)}) == []
    (told,) = torch_files.lock_problems({variable: str(tmp_path)})
    assert told.startswith(f"{lock}: no process of this host holds this lock")
    assert [path.name for path in lock.parent.iterdir()] == ["lock"]  # it is the user's to remove


def test_many_are_not_all_told(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"extension{number}").mkdir()
        (tmp_path / f"extension{number}" / "lock").touch()
    assert len(torch_files.lock_problems({"TORCH_EXTENSIONS_DIR": str(tmp_path)})) == 4
