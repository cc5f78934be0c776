"""Edits on disk: one at a time, whole or not at all."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn_inventory import InventoryError
from mnspawn_inventory.store import edit


def add_line(path: str, line: str) -> None:
    edit(Path(path), lambda text: f"{text}{line}\n")


def test_edits_of_many_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "hosts"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_line, args=(str(path), f"h{number}")) for number in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.close()
    assert sorted(path.read_text().split()) == sorted(f"h{number}" for number in range(16))
    assert os.listdir(path.parent) == ["hosts"]


def test_mode_links_line_ends_and_byte_order_mark_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "real" / "hosts"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    add_line(str(link), "c")
    assert path.read_bytes() == b"\xef\xbb\xbfa\r\nb\r\nc\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    add_line(str(tmp_path / "below" / "hosts"), "a")
    assert stat.S_IMODE((tmp_path / "below" / "hosts").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "below").stat().st_mode) == 0o700


def test_an_edit_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")
    before = path.stat()
    assert edit(path, lambda text: text) is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_edit_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")

    def refuse(text: str) -> str:
        raise InventoryError("no")

    with pytest.raises(InventoryError):
        edit(path, refuse)
    assert path.read_text() == "a\n"
    assert os.listdir(tmp_path) == ["hosts"]


FAILING = {"fsync": OSError(122, "Disk quota exceeded"), "replace": OSError(5, "I/O error")}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")

    def fail(*args: object) -> None:
        raise FAILING[call]

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(InventoryError, match="hosts: the file can't be written: "):
        add_line(str(path), "b")
    monkeypatch.undo()
    assert path.read_text() == "a\n"
    assert os.listdir(tmp_path) == ["hosts"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """With a limit on the size of files: the write itself fails, as on a full disk."""
    path = tmp_path / "hosts"
    path.write_text("a\n")
    script = """
        import resource, signal, sys
        from pathlib import Path
        from mnspawn_inventory import InventoryError
        from mnspawn_inventory.store import edit
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            edit(Path(sys.argv[1]), lambda text: text + "b" * 10000)
        except InventoryError as error:
            print(error)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == f"{path}: the file can't be written: file too large\n"
    assert path.read_text() == "a\n"
    assert os.listdir(tmp_path) == ["hosts"]


def _killed_at(call: str, path: str) -> None:
    def die(*args: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, call, die)
    add_line(path, "b")


@pytest.mark.parametrize("call", ["fchmod", "fsync", "replace"])
def test_a_kill_in_the_middle_leaves_the_old_file_and_the_next_edit_cleans_up(call: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")
    process = multiprocessing.get_context("fork").Process(target=_killed_at, args=(call, str(path)))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    process.close()
    assert path.read_text() == "a\n"
    assert len(os.listdir(tmp_path)) == 2
    add_line(str(path), "c")
    assert path.read_text() == "a\nc\n"
    assert os.listdir(tmp_path) == ["hosts"]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\xff\n"),
        lambda path: path.write_bytes(b"a\x00\n"),
    ],
)
def test_what_is_no_text_file_is_not_edited(make: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    make(path)
    with pytest.raises(InventoryError, match="hosts"):
        add_line(str(path), "b")


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a pipe"])
def test_what_is_no_regular_file_is_never_replaced_by_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "node"
    if kind == "device":
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null is, but a node of our own
        except PermissionError:  # needs root
            return
    else:
        os.mkfifo(path)
    before = path.stat()
    given = path
    if kind.startswith("link"):
        given = tmp_path / "link"
        given.symlink_to(path)
    for create in (True, False):
        with pytest.raises(InventoryError, match="only a regular file can be edited"):
            edit(given, lambda text: text + "b\n", create=create)
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)


def test_a_missing_file_is_not_made_by_every_edit(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="there is no such file"):
        edit(tmp_path / "no" / "hosts", lambda text: text, create=False)
    assert os.listdir(tmp_path) == []
