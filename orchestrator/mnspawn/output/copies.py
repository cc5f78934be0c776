"""Keeps local copies of a run's output and events: `--log-dir DIR`. Writes from its own threads.

    DIR/<run>/rank-0003.out, .err   a rank's streams, byte for byte, each byte at its own offset
    DIR/<run>/events.jsonl          all events but output, as `--events` has them
    DIR/<run>/report.json           the report

A failure such as a full disk is reported once; nothing more is written, and the run goes on. A file that can't hold
the offset that a host gives (beyond the largest file) is given up alone.

Others may write in DIR: the run's folder is used through its descriptor, and only if this user owns it, so that nobody
can lead us to files elsewhere.
"""

import errno
import json
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mnspawn.errors import UsageError
from mnspawn.events import Event, RunFinished, RunStarting, Stream, WorkerOutput, WorkerStarted
from mnspawn_agent import ours

from .journal import EventsSink
from .writer import ThreadedWriter, reason_of, wait_written

log = logging.getLogger(__name__)
SUFFIXES = {Stream.STDOUT: "out", Stream.STDERR: "err"}
ONE_FILE = frozenset((errno.EFBIG, errno.EINVAL, errno.EOVERFLOW))  # errors of an offset, not of the disk
# neither links nor waiting for a pipe's reader: on a share without owners the folder may be anybody's
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPEN_FILES = 64  # 500 ranks have 1000 streams, and many systems allow a process 1024 descriptors
EVENTS_FILE, REPORT_FILE = "events.jsonl", "report.json"


class FilesWriter(ThreadedWriter):
    """Writes blocks at offsets of many files, few of them open at a time. Numbers from `place` serve as descriptors.

    Attributes:
        folder: descriptor of the folder that holds all files.
    """

    def __init__(self, name: str, on_failure: Callable[[int, Exception], None]) -> None:
        super().__init__(name, on_failure)
        self.folder: int | None = None
        self._places: list[tuple[Path, int]] = []  # for each number: its file, and where the next block goes
        self._files: OrderedDict[Path, int] = OrderedDict()  # the most recently used last

    def place(self, path: Path, offset: int) -> int:
        """Return a number for consecutive blocks of a file, starting at an offset."""
        self._places.append((path, offset))
        return len(self._places) - 1

    def path_of(self, number: int) -> Path | None:
        """Return the file that a number stands for, None if there is none."""
        return self._places[number][0] if 0 <= number < len(self._places) else None

    def close_files(self) -> None:
        """Close all files, once everything is written."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        if self.folder is not None:
            os.close(self.folder)
            self.folder = None

    def _write_some(self, fd: int, block: memoryview) -> int:
        path, offset = self._places[fd]
        count = os.pwrite(self._file(path), block, offset)
        self._places[fd] = path, offset + count
        return count

    def _file(self, path: Path) -> int:
        if len(self._files) >= OPEN_FILES and path not in self._files:
            self._close_oldest()
        while path not in self._files:
            try:
                self._files[path] = os.open(path.name, FLAGS, 0o600, dir_fd=self.folder)
            except OSError as exc:
                if exc.errno not in (errno.EMFILE, errno.ENFILE) or not self._files:
                    raise
                self._close_oldest()  # no more can be open at once
        self._files.move_to_end(path)
        return self._files[path]

    def _close_oldest(self) -> None:
        os.close(self._files.popitem(last=False)[1])


class LocalCopies:
    """A listener that keeps events and output in files.

    Arguments:
        folder: holds a folder for each run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: Path | None = None  # the run's
        self._width = 4
        self._writer = FilesWriter("copies", self._on_failure)
        self._events: EventsSink | None = None
        self._early: list[Event] = []  # before the run has its name
        self._streams: dict[tuple[int, Stream], tuple[int, int]] = {}  # the writer's number, the next offset
        self._has_failed = False
        self._given_up: set[Path] = set()
        self._wake: Callable[[], None] | None = None

    @classmethod
    def open(cls, folder: Path) -> "LocalCopies":
        """Make the folder if it is missing.

        Raises:
            UsageError: it can't be made or written to.
        """
        try:
            ours.make_missing(str(folder))
        except OSError as exc:
            raise UsageError(f"{folder}: {exc.strerror}", place="--log-dir") from exc
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder}: the folder is not writable", place="--log-dir")
        return cls(folder)

    @property
    def wanted_streams(self) -> frozenset[Stream]:
        """Streams whose bytes are still kept."""
        return frozenset() if self._has_failed else frozenset(SUFFIXES)

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet written."""
        return self._writer.backlog + (self._events.backlog if self._events is not None else 0)

    def bind(self, wake: Callable[[], None]) -> None:
        """Call `wake` from a writing thread whenever the backlog has fallen."""
        self._wake = wake
        self._writer.bind(wake)
        if self._events is not None:
            self._events.bind(wake)

    def begin(self, run: str, world_size: int) -> None:
        """Make the run's folder, as RunStarting does."""
        if self._own is not None or self._has_failed:
            return
        self._width = max(4, len(str(world_size - 1)))
        own = self._folder / run
        try:
            with suppress(FileExistsError):  # from an earlier command that followed the run
                own.mkdir(mode=0o700)
            self._writer.folder = _open_ours(own)
            fd = os.open(EVENTS_FILE, FLAGS | os.O_TRUNC, 0o600, dir_fd=self._writer.folder)
        except OSError as exc:
            self._fail(exc)
            return
        self._own = own
        self._events = EventsSink(fd, owns_fd=True, on_failure=self._fail)
        if self._wake is not None:
            self._events.bind(self._wake)
        for event in self._early:
            self._events.on_event(event)
        self._early.clear()

    def on_event(self, event: Event) -> None:
        """Keep an event."""
        if isinstance(event, RunStarting):
            self.begin(event.run, event.world_size)
        if self._has_failed:
            return
        if isinstance(event, WorkerOutput):
            self._keep_output(event)
            return
        if self._events is None:
            self._early.append(event)
            return
        self._events.on_event(event)
        if isinstance(event, WorkerStarted):
            self._make_files(event.rank)
        elif isinstance(event, RunFinished) and self._own is not None:
            with suppress(FileNotFoundError):  # usually there is none yet
                os.unlink(REPORT_FILE, dir_fd=self._writer.folder)
            content = json.dumps(event.report, indent=2, default=str) + "\n"
            self._writer.put(self._writer.place(self._own / REPORT_FILE, 0), content.encode())

    async def aclose(self) -> None:
        """Wait until everything is written, or nothing more can be."""
        await wait_written(self._writer)
        self._writer.close_files()
        if self._events is not None:
            await self._events.aclose()

    def _name(self, rank: int, stream: Stream) -> str:
        return f"rank-{rank:0{self._width}d}.{SUFFIXES[stream]}"

    def _make_files(self, rank: int) -> None:
        """Make both files, since a rank without output has empty ones."""
        try:
            for stream in SUFFIXES:
                os.close(os.open(self._name(rank, stream), FLAGS, 0o600, dir_fd=self._writer.folder))
        except OSError as exc:
            self._fail(exc)

    def _keep_output(self, event: WorkerOutput) -> None:
        if self._own is None or event.stream not in SUFFIXES:
            return
        path = self._own / self._name(event.rank, event.stream)
        if path in self._given_up:
            return
        key = (event.rank, event.stream)
        number, expected = self._streams.get(key, (-1, -1))
        if event.offset != expected:  # the first bytes, or those after lost ones, which leave a hole in the file
            number = self._writer.place(path, event.offset)
        self._streams[key] = number, event.offset + len(event.chunk)
        self._writer.put(number, event.chunk)

    def _on_failure(self, number: int, exc: Exception) -> None:
        """Called from the writing thread."""
        path = self._writer.path_of(number)
        if path is None or (isinstance(exc, OSError) and exc.errno not in ONE_FILE):
            self._fail(exc)
        elif path not in self._given_up:
            self._given_up.add(path)
            log.error("--log-dir: %s: %s: no more is written to it", path, reason_of(exc))

    def _fail(self, exc: Exception) -> None:
        """Called from the loop's thread and from writing threads."""
        if not self._has_failed:
            self._has_failed = True
            log.error("--log-dir: %s: %s: no more is kept there", self._folder, reason_of(exc))


def _open_ours(folder: Path) -> int:
    """Return a descriptor of a folder that this user owns, whoever may rename it. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            ours.check(str(folder), os.fstat(fd))
        except ours.NotOurs:
            if _keeps_owners(fd):
                raise
    except OSError:
        os.close(fd)
        raise
    return fd


def _keeps_owners(folder: int) -> bool:
    """Whether the file system does: shares of other systems, and NFS for root, give new files another owner."""
    name = f".probe-{secrets.token_hex(6)}"
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        status = os.fstat(fd)
        return status.st_uid == os.getuid() and not status.st_mode & 0o077
    finally:
        os.close(fd)
        os.unlink(name, dir_fd=folder)
