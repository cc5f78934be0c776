"""Commands that tests run: streams kept in files, a deadline on everything, nothing left running."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.waiting import PATIENCE, wait_until

SHOWN = 4000  # characters of each stream in a failure: the end tells most


@dataclass(frozen=True, repr=False)
class Finished:
    """A command that ended. `status` is as a shell says it: 128+n for signal n."""

    argv: tuple[str, ...]
    status: int
    raw_stdout: bytes
    raw_stderr: bytes
    seconds: float

    @property
    def stdout(self) -> str:
        return self.raw_stdout.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.raw_stderr.decode(errors="replace")

    def __repr__(self) -> str:
        return (
            f"status {self.status} after {self.seconds:.2f} s: {' '.join(self.argv)[:SHOWN]}\n"
            f"--- stdout\n{self.stdout[-SHOWN:]}\n--- stderr\n{self.stderr[-SHOWN:]}\n---"
        )

    def check(self) -> Self:
        """Itself, when its status is 0.

        Raises:
            AssertionError: it is not; shows both streams.
        """
        if self.status != 0:
            raise AssertionError(repr(self))
        return self


class Running:
    """A started command in a session of its own. Leaving the `with` block kills what still runs."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        input: bytes | str | None = None,
        **popen: Any,
    ) -> None:
        self.argv = tuple(argv)
        self._files = contextlib.ExitStack()
        self._stdout = self._capture("stdout", popen)
        self._stderr = self._capture("stderr", popen)
        if input is not None:
            popen["stdin"] = self._files.enter_context(tempfile.TemporaryFile())
            popen["stdin"].write(input.encode() if isinstance(input, str) else input)
            popen["stdin"].seek(0)
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("start_new_session", True)
        self._began = time.monotonic()
        try:
            self.popen = subprocess.Popen(self.argv, env=dict(env), cwd=cwd, **popen)
        except BaseException:  # whatever went wrong, the files are closed and the error goes on
            self._files.close()
            raise

    def _capture(self, stream: str, popen: dict[str, Any]) -> IO[bytes] | None:
        if popen.get(stream) is not None:
            return None
        file: IO[bytes] = self._files.enter_context(tempfile.TemporaryFile())
        popen[stream] = file
        return file

    @staticmethod
    def _content(file: IO[bytes] | None) -> bytes:
        if file is None:
            return b""
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._content(self._stdout).decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self._content(self._stderr).decode(errors="replace")

    def wait_for(self, condition: Callable[[], object], timeout: float = PATIENCE, what: str | None = None) -> None:
        """Wait until `condition()` holds.

        Raises:
            AssertionError: it does not in time, or the command ended before it did.
        """

        def answered() -> bool:
            ended = self.popen.poll() is not None
            if condition():
                return True
            if ended:
                raise AssertionError(f"ended before: {what or 'what was waited for'}\n{self.wait()!r}")
            return False

        try:
            wait_until(answered, timeout, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}") from None

    def wait(self, timeout: float = PATIENCE) -> Finished:
        """Wait for its end.

        Raises:
            AssertionError: it runs on; it is killed and what it printed is shown.
        """
        try:
            returncode = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s\n{self._finished(137)!r}") from None
        return self._finished(returncode if returncode >= 0 else 128 - returncode)

    def _finished(self, status: int) -> Finished:
        seconds = time.monotonic() - self._began
        return Finished(self.argv, status, self._content(self._stdout), self._content(self._stderr), seconds)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command alone."""
        self.popen.send_signal(number)

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to its process group, as a terminal sends it."""
        if self.popen.poll() is None:
            os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and what it started in its group, at once."""
        with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # nobody reads what was still to be written
                    stream.close()
        self._files.close()
