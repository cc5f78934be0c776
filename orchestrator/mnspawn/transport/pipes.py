"""A child process as callbacks: bytes of its output, room for its input, its end. Linux and macOS; no policy.

asyncio's own subprocess transports start a thread per child on Python 3.11 and drop output when they are closed and
paused at the same time; here there are only file descriptors in the loop.
"""

import asyncio
import contextlib
import os
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from mnspawn.system import open_files

UNKNOWN = 255  # a status that nobody could get, as ssh says it
_CHUNK = 1 << 18  # four times what a pipe holds
_HIGH = 1 << 18  # unwritten input over which the sender is held


class Owner(Protocol):
    """Receives what the process does."""

    def output(self, number: int, chunk: bytes) -> None:
        """Bytes from its stdout (1) or stderr (2); b"" once, when nothing holds that stream any more."""
        ...

    def hold_input(self, held: bool) -> None:
        """Its stdin is full, or has room again."""
        ...

    def ended(self, code: int) -> None:
        """It was reaped: `code` is its exit status, negative for a signal. Output may still come."""
        ...


class Started(Protocol):
    """A child with three pipes, as subprocess.Popen has it."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: Any  # int | None

    def wait(self) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


_ours: "weakref.WeakSet[Started]" = weakref.WeakSet()


def keep_from_forks(child: Started) -> None:
    """Close its pipes in later forks of this process, so that they end when this process does."""
    _ours.add(child)


def _close_copies() -> None:
    for child in list(_ours):
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


os.register_at_fork(after_in_child=_close_copies)


class PipedProcess:
    """A running child. Its pipes are closed by `close`; it is never killed unless `kill` says so.

    Args:
        argv: what to start, or a child that is running already.
        before_reaping: called with its pid after its end, before the pid can be reused.

    Raises:
        OSError: no process can be made.
    """

    def __init__(
        self,
        owner: Owner,
        argv: Sequence[str] | Started,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        before_reaping: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._before_reaping = before_reaping
        if isinstance(argv, Sequence):
            self._popen: Started = subprocess.Popen(
                open_files.as_given(argv),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
            keep_from_forks(self._popen)
        else:
            self._popen = argv
        self.pid = self._popen.pid
        streams = (self._popen.stdin, self._popen.stdout, self._popen.stderr)
        self._fds: dict[int, int] = {}
        for number, stream in enumerate(streams):
            assert stream is not None
            self._fds[number] = stream.fileno()
            os.set_blocking(stream.fileno(), False)
        self._unwritten = bytearray()
        self._eof_asked = False
        self._held = False
        self._reading = {1: False, 2: False}
        self.resume_reading()
        self._watch()

    # -- output
    def pause_reading(self) -> None:
        for number, reading in self._reading.items():
            if reading:
                self._loop.remove_reader(self._fds[number])
                self._reading[number] = False

    def resume_reading(self) -> None:
        for number, reading in self._reading.items():
            if not reading and number in self._fds:
                self._loop.add_reader(self._fds[number], self._on_readable, number)
                self._reading[number] = True

    def _on_readable(self, number: int) -> None:
        try:
            chunk = os.read(self._fds[number], _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a pipe that can't be read is one that ended
            chunk = b""
        if not chunk:
            self._close_fd(number)
        self._owner.output(number, chunk)

    # -- input
    def write(self, chunk: bytes) -> None:
        """Queue bytes for stdin; those that a process without readers would get are dropped."""
        if 0 not in self._fds or self._eof_asked:
            return
        waiting = bool(self._unwritten)
        self._unwritten += chunk
        if not waiting:
            self._on_writable()
        if 0 in self._fds and len(self._unwritten) > _HIGH and not self._held:
            self._held = True
            self._owner.hold_input(True)

    def write_eof(self) -> None:
        self._eof_asked = True
        if not self._unwritten:
            self._close_fd(0)

    def _on_writable(self) -> None:
        fd = self._fds[0]
        try:
            while self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(fd, view[:_CHUNK])
                del self._unwritten[:written]
        except BlockingIOError:
            self._loop.add_writer(fd, self._on_writable)
        except OSError:  # EPIPE: the reader is gone, and what it did not want with it
            self._close_fd(0)
        else:
            self._loop.remove_writer(fd)
            if self._eof_asked:
                self._close_fd(0)
        if self._held and len(self._unwritten) <= _HIGH // 2:
            self._held = False
            self._owner.hold_input(False)

    # -- its end
    @property
    def open_outputs(self) -> int:
        return sum(number in self._fds for number in (1, 2))

    def kill(self, signum: int) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(signum)

    def close(self) -> None:
        """Close all pipes; the owner receives no more output."""
        for number in (0, 1, 2):
            self._close_fd(number)

    def _close_fd(self, number: int) -> None:
        if number not in self._fds:
            return
        fd = self._fds.pop(number)
        if number == 0:
            self._loop.remove_writer(fd)
            self._unwritten.clear()
        else:
            self._loop.remove_reader(fd)
            self._reading[number] = False
        stream = (self._popen.stdin, self._popen.stdout, self._popen.stderr)[number]
        assert stream is not None
        stream.close()

    def _watch(self) -> None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # macOS, an old kernel
            threading.Thread(target=self._wait_in_thread, name=f"wait {self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(pidfd, self._on_end, pidfd)

    def _on_end(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._before_reaping(self.pid)
        self._owner.ended(self._popen.wait())

    def _wait_in_thread(self) -> None:
        code = UNKNOWN
        try:
            with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                self._before_reaping(self.pid)
            code = self._popen.wait()
        finally:  # also when somebody else has reaped it: nobody may wait for ever
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._owner.ended, code)
