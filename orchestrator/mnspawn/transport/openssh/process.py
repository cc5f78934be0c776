"""The system's ssh as a RemoteProcess, and the log that it writes while it runs."""

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

from mnspawn.transport.child import ChildProcess

from . import log as openssh_log

_LAST_WORDS = 0.5  # seconds
KEPT = 1 << 20  # of a log: about 500 bytes for each command


class Log:
    """The log of one ssh (its -E), read through a named pipe: its stderr belongs to the remote command."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._on_readable)
        self._grown = asyncio.Event()
        self._has_begun = False
        self.text = ""
        self.has_ended = False

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._fd, KEPT)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
        elif len(self.text) < KEPT:
            self.text += chunk.decode("utf-8", "replace")
        self._grown.set()

    def finish(self) -> None:
        """Read the rest, now that its writer has ended."""
        self.drain()
        self.close()

    def drain(self) -> None:
        """Read all that is there."""
        size = -1
        while not self.has_ended and size != len(self.text):
            size = len(self.text)
            self._on_readable()

    async def wait_for(self, words: str) -> bool:
        """Wait until it contains these words, or ends. Returns whether it contains them."""
        while words not in self.text and not self.has_ended:
            await self.wait_for_more()
        return words in self.text

    async def wait_for_more(self) -> None:
        """Wait until it grows, ends, or `wake` is called."""
        self._grown.clear()
        await self._grown.wait()

    def wake(self) -> None:
        """Make waiters look again."""
        self._grown.set()

    def close(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.path.unlink(missing_ok=True)
            self._grown.set()


class Ssh(ChildProcess):
    """One ssh with its log."""

    def __init__(self, argv: list[str], log: Log) -> None:
        self.log = log
        super().__init__(argv)

    def before_reaping(self, pid: int) -> None:
        """End the children of a ProxyCommand too when ssh gives up: ssh ends only the command itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)

    def on_end(self) -> None:
        self.log.finish()

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Signal it, and the ProxyCommand that it may have: they are a process group of their own."""
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._piped.pid, signum)


class Words:
    """The stderr of an ssh that connects: banners, and output of a ProxyCommand or of the ssh to a jump host."""

    def __init__(self, ssh: Ssh) -> None:
        self._ssh = ssh
        self._said = bytearray()
        self._reader = asyncio.create_task(self._read(), name="words of ssh")

    async def _read(self) -> None:
        while chunk := await self._ssh.read_diagnostics():
            self._said += chunk[: KEPT - len(self._said)]
            self._ssh.log.wake()

    @property
    def text(self) -> str:
        return self._said.decode("utf-8", "replace")

    async def finish(self) -> str:
        """Return all of it once ssh has ended. Bounded in time: a ProxyCommand that outlives ssh may hold it open."""
        await asyncio.wait([self._reader], timeout=_LAST_WORDS)
        return self.text

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])


class Process(Ssh):
    """One ssh that runs a command through the master."""

    def __init__(self, argv: list[str], log: Log, master_log: Log) -> None:
        self._master_log = master_log
        self._since = len(master_log.text)
        super().__init__(argv, log)

    async def wait(self) -> int | None:
        """255 is a command's own status, or a death by signal, which ssh does not report."""
        status = await super().wait()
        return None if self.was_killed or (status == 255 and not self._has_status()) else status

    def _has_status(self) -> bool:
        """Whether the server reported how the command ended; unknown, hence true, with a session of the user."""
        if (opened := re.search(rf"{openssh_log.SESSION_OPENED}: (\d+)", self.log.text)) is None:
            return True
        self._master_log.drain()
        said = self._master_log.text[self._since :]
        return re.search(rf"channel {opened.group(1)} rtype exit-s", said) is not None or not self._has_master

    @property
    def _has_master(self) -> bool:
        return openssh_log.CONNECTED in self._master_log.text

    was_killed = False

    @property
    def is_over(self) -> bool:
        """Its end was seen and its pipes were given back."""
        return self.has_ended and self._is_closed

    async def close(self) -> None:
        self.log.close()
        if not self.has_ended:
            self.was_killed = True
            self.kill(signal.SIGTERM)
        await super().close()
