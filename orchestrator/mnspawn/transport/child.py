"""A RemoteProcess that is a child process of ours, for the local and the openssh transport."""

import asyncio
import functools
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .inbox import Streams
from .pipes import PipedProcess, Started

_END = 2.0  # seconds that a child has to end after a signal


class ChildProcess(Streams):
    """Runs `argv`, or has been started; ends, as under sshd, when it is reaped and nothing holds its output.

    Raises:
        OSError: no process can be made.
    """

    def __init__(self, argv: Sequence[str] | Started, *, cwd: Path | None = None) -> None:
        super().__init__()
        self._reaped = asyncio.Event()
        self._code: int | None = None
        self._is_closed = False
        self._piped = PipedProcess(self, argv, cwd=cwd, before_reaping=self.before_reaping)

    # -- what the pipes say
    def output(self, number: int, chunk: bytes) -> None:
        inbox = self._stdout if number == 1 else self._stderr
        if chunk:
            inbox.put(chunk)
        else:
            inbox.end()
            self._finish()

    def hold_input(self, held: bool) -> None:
        if held:
            self._writable.clear()
        else:
            self._writable.set()

    def ended(self, code: int) -> None:
        self._code = code
        self._reaped.set()
        self.on_end()
        self._finish()

    def before_reaping(self, pid: int) -> None:
        """Hook for subclasses: it has ended, and its pid can't have been reused yet."""

    def on_end(self) -> None:
        """Hook for subclasses: it was reaped."""

    def _finish(self) -> None:
        if self._code is not None and (self._is_closed or not self._piped.open_outputs):
            self._end()

    # -- what the engine calls
    async def write(self, chunk: bytes) -> None:
        self._piped.write(chunk)
        await self._writable.wait()

    async def write_eof(self) -> None:
        self._piped.write_eof()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return None if self._code is None else status_of(self._code)

    async def close(self) -> None:
        """Close its pipes; it is not killed."""
        self._is_closed = True
        self._piped.close()
        self._discard()
        self._end()

    def kill(self, signum: int = signal.SIGKILL) -> None:
        self._piped.kill(signum)

    async def wait_reaped(self) -> None:
        """Until the process itself has ended, whoever still holds its output."""
        await self._reaped.wait()

    @property
    def has_ended(self) -> bool:
        return self._code is not None

    def pause_reading(self) -> None:
        self._piped.pause_reading()

    def resume_reading(self) -> None:
        self._piped.resume_reading()


async def end(child: ChildProcess, signum: int = signal.SIGTERM) -> None:
    """End a child with `signum`, after a while with KILL, wait for its end and close its pipes."""
    if not child.has_ended:
        child.kill(signum)
        try:
            async with asyncio.timeout(_END):
                await child.wait_reaped()
        except TimeoutError:
            child.kill(signal.SIGKILL)
            await child.wait_reaped()
    await ChildProcess.close(child)


def status_of(code: int) -> int:
    """The status that a shell would give for Popen's return code."""
    return code if code >= 0 else 128 - code


@functools.cache
def leash() -> tuple[str, ...]:
    """Return a command prefix that ends a command when we are killed: `ssh -N` would keep its connection for ever.

    Empty on systems without such a program (util-linux 2.33).
    """
    words = ("setpriv", "--pdeathsig", "TERM", "--")
    if shutil.which(words[0]) is None:
        return ()
    tried = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return words if tried.returncode == 0 else ()
