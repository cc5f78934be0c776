"""Temporary folders of owners that were killed go with the next start; nobody else's do."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnspawn.errors import UsageError
from mnspawn.sandbox.sandbox import Sandbox
from mnspawn.system import temporary as leftovers
from mnspawn.transport import SshOptions, create

PREFIX = "mnspawn-test-"
HOLD = """
import sys
from mnspawn.system.temporary import Folder
print(Folder(sys.argv[1]).path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of temporary files as every system has one."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that owns a folder, whose path it has said."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, PREFIX], stdin=pipe, stdout=pipe) as process:
        yield process
        process.kill()


def said(process: "subprocess.Popen[bytes]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().decode().strip())


def test_a_folder_goes_with_the_next_start_once_its_owner_was_killed(holder: "subprocess.Popen[bytes]") -> None:
    folder = said(holder)
    (folder / "socket").touch()
    first = leftovers.Folder(PREFIX)
    assert folder.is_dir()  # its owner lives
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    second = leftovers.Folder(PREFIX)
    assert not folder.exists()
    assert first.path.is_dir()
    assert second.path.is_dir()
    for one in (first, second, second):
        one.remove()
    assert not first.path.exists()
    assert not second.path.exists()


def test_a_folder_that_is_just_being_made_stays(temporary: Path) -> None:
    young, old = temporary / f"{PREFIX}young", temporary / f"{PREFIX}old"
    for folder in (young, old):
        folder.mkdir(mode=0o700)
    os.utime(old, (1000.0, 1000.0))
    leftovers.sweep(PREFIX)
    assert (young.exists(), old.exists()) == (True, False)


def test_an_owner_is_never_seen_without_its_lock(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    rename, flock = os.rename, fcntl.flock

    def locking(fd: int, how: int) -> None:
        steps.append("lock")
        flock(fd, how)

    def showing(before: Path, after: Path) -> None:
        steps.append("show")
        rename(before, after)

    monkeypatch.setattr(fcntl, "flock", locking)
    monkeypatch.setattr(os, "rename", showing)
    folder = leftovers.Folder(PREFIX)
    assert steps == ["lock", "show"]
    folder.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="need root (another account's files)")
def test_what_another_account_has_put_there_is_neither_touched_nor_in_the_way(temporary: Path) -> None:
    evil = temporary / f"{PREFIX}evil"
    evil.mkdir(mode=0o755)
    (evil / leftovers.LOCK).touch()
    empty = temporary / f"{PREFIX}empty"
    empty.mkdir(mode=0o755)
    waiting = temporary / f"{PREFIX}waiting"
    waiting.mkdir(mode=0o755)
    os.mkfifo(waiting / leftovers.LOCK)
    for path in (evil, empty, waiting, evil / leftovers.LOCK, waiting / leftovers.LOCK):
        os.chown(path, 65534, 65534)
        os.utime(path, (1000.0, 1000.0))
    leftovers.Folder(PREFIX).remove()
    assert sorted(path.name for path in temporary.iterdir()) == [f"{PREFIX}{n}" for n in ("empty", "evil", "waiting")]


def test_links_files_and_pipes_of_that_name_are_left_alone(temporary: Path) -> None:
    target = temporary / "precious"
    target.mkdir(mode=0o700)
    (target / leftovers.LOCK).touch()
    (temporary / f"{PREFIX}link").symlink_to(target)
    (temporary / f"{PREFIX}file").touch()
    os.mkfifo(temporary / f"{PREFIX}pipe")
    linked = temporary / f"{PREFIX}linked"
    linked.mkdir(mode=0o700)
    (linked / leftovers.LOCK).symlink_to(target / leftovers.LOCK)
    leftovers.sweep(PREFIX)
    assert (target / leftovers.LOCK).exists()
    assert len(list(temporary.iterdir())) == 5


def test_nothing_is_swept_where_others_may_rename_what_is_ours(temporary: Path) -> None:
    ours = temporary / f"{PREFIX}ours"
    ours.mkdir(mode=0o700)
    (ours / leftovers.LOCK).touch()
    temporary.chmod(0o777)
    leftovers.sweep(PREFIX)
    assert ours.exists()
    temporary.chmod(0o1777)
    leftovers.sweep(PREFIX)
    assert not ours.exists()


async def ssh() -> None:
    create("openssh", SshOptions())


async def sandbox() -> None:
    async with Sandbox(1):
        raise AssertionError("it has started")


@pytest.mark.parametrize("start", [ssh, sandbox])
def test_nothing_is_kept_where_others_may_put_something_else_in_its_place(
    temporary: Path, start: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Sockets that ssh connects to, keys of a sandbox's hosts."""
    temporary.chmod(0o777)
    with pytest.raises(UsageError, match=r"^no temporary folder can be made: .* lets others rename what is in it"):
        asyncio.run(start())
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("start", [ssh, sandbox])
def test_a_system_without_room_for_temporary_files_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device", "/tmp/mnspawn")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(UsageError, match=r"^no temporary folder can be made: /tmp/mnspawn: No space left on device$"):
        asyncio.run(start())


async def test_the_openssh_transport_sweeps_when_it_starts_and_leaves_nothing(temporary: Path) -> None:
    dead = temporary / "mnspawn-ssh-dead"
    dead.mkdir(mode=0o700)
    (dead / leftovers.LOCK).touch()
    os.mkfifo(dead / "log1")
    transport = create("openssh", SshOptions())
    [own] = os.listdir(temporary)
    assert own.startswith("mnspawn-ssh-")
    assert own != dead.name
    await transport.close()
    assert os.listdir(temporary) == []
