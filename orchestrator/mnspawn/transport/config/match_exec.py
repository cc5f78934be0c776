"""Runs the commands of `Match exec` in ssh_config, each once and within a deadline."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import Future

from mnspawn.system import open_files


class Late(Exception):
    """A command did not end in time, or was abandoned."""


class Commands:
    """Runs each command once, however often it is asked for. Thread-safe.

    A command has a session of its own: it has no terminal to prompt on, and is killed with its children if it takes too
    long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, Future[int | None]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._is_closed = False

    def succeed(self, command: str, deadline: float) -> bool:
        """Whether a command's exit status is 0.

        Args:
            deadline: by time.monotonic(); the first caller's applies to the command.

        Raises:
            Late: it took longer. It has been ended, and is not run again.
            OSError: there is no such shell.
        """
        with self._lock:
            answer = self._answers.get(command)
            is_first = answer is None
            if answer is None:
                answer = self._answers[command] = Future()
        if is_first:
            try:
                answer.set_result(self._run(command, deadline))
            except OSError as exc:
                answer.set_exception(exc)
            except BaseException:  # Ctrl-C; nobody else may wait for ever
                answer.set_result(None)
                raise
        status = answer.result()
        if status is None:
            raise Late
        return status == 0

    def _run(self, command: str, deadline: float) -> int | None:
        shell = os.environ.get("SHELL") or "/bin/sh"
        silent = subprocess.DEVNULL
        with self._lock:
            if self._is_closed:
                return None
            running = subprocess.Popen(
                open_files.as_given([shell, "-c", command]),
                stdin=silent,
                stdout=silent,
                stderr=silent,
                start_new_session=True,
            )
            self._running[command] = running
        try:
            status: int | None = running.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
            end(running)
        except BaseException:  # Ctrl-C, where no loop takes it
            end(running)
            raise
        with self._lock:
            del self._running[command]
            return None if self._is_closed else status

    def close(self) -> None:
        """Kill what still runs, which wakes its callers."""
        with self._lock:
            self._is_closed = True
            for running in self._running.values():
                signal_group(running)


def signal_group(process: "subprocess.Popen[bytes]", number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that leads its own group, and to all in that group."""
    if process.returncode is None:  # not reaped: the number is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with its group, and reap it."""
    signal_group(process)
    process.wait()
