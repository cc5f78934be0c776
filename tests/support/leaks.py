"""What a test may not leave behind: a snapshot before, a comparison after."""

import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class Snapshot:
    """What this process has at one moment."""

    children: frozenset[str]
    threads: frozenset[threading.Thread]
    fds: frozenset[str]
    files: frozenset[Path]
    environ: tuple[tuple[str, str], ...]

    @classmethod
    def take(cls, folders: tuple[Path, ...]) -> "Snapshot":
        return cls(
            children=frozenset(_children()),
            threads=frozenset(threading.enumerate()),
            fds=frozenset(_fds()),
            files=frozenset(path for folder in folders if folder.is_dir() for path in folder.iterdir()),
            environ=tuple(sorted((k, v) for k, v in os.environ.items() if not k.startswith("PYTEST_"))),
        )


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = (task / "children").read_text().split()
        except FileNotFoundError:  # that thread ended just now
            continue
        for pid in pids:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            except FileNotFoundError:  # that child ended just now
                continue
            yield f"{pid} {words.decode(errors='replace')}"


def _fds() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one that listed the folder
            continue
        if not target.startswith("/proc/"):
            yield f"{name} -> {target}"


def _left(before: Snapshot, after: Snapshot) -> list[str]:
    left = [f"process {child}" for child in sorted(after.children - before.children)]
    left += [f"thread {thread.name}" for thread in after.threads - before.threads]
    left += [f"open file {fd}" for fd in sorted(after.fds - before.fds)]
    left += [f"file {path}" for path in sorted(after.files - before.files)]
    changed = set(before.environ) ^ set(after.environ)
    left += [f"environment {name}" for name in sorted({name for name, _ in changed})]
    return left


def what_is_left(before: Snapshot, folders: tuple[Path, ...]) -> list[str]:
    """What is there now and was not before; gives what is about to end the time to do so."""
    deadline = time.monotonic() + PATIENCE
    while True:
        left = _left(before, Snapshot.take(folders))
        if not left or time.monotonic() > deadline:
            return left
        gc.collect()
        time.sleep(0.02)
