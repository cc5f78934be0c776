"""Errors of spawned functions. All can be pickled; programs written for torch or Paddle find what they look for."""

import pickle
from typing import Any, Self

from mnspawn.errors import MnspawnError, UsageError


class NotPicklable(UsageError, pickle.PicklingError, TypeError):
    """The function, or the argument at a position, can't be sent to other processes."""


class DeviceError(UsageError, RuntimeError):
    """A host does not have the devices that were asked for."""


class StartError(UsageError, RuntimeError):
    """Ranks can't be started from here."""


class RunTimedOut(MnspawnError, TimeoutError):
    """The run did not end within its `timeout`."""


class ResultError(MnspawnError):
    """A result came back but can't be read here, or bytes of it were lost."""


class ProcessException(Exception):
    """A rank failed.

    Attributes:
        msg: torch's or Paddle's text.
        error_index, rank: its rank.
        error_pid, pid: its process id on its host.
        host, local_rank: where it ran.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = pid
        self.host: str | None = None
        self.local_rank: int | None = None

    @property
    def pid(self) -> int:
        return self.error_pid

    @property
    def rank(self) -> int:
        return self.error_index

    def at(self, host: str, local_rank: int) -> Self:
        """Set its place, and add it as a note after the text, which programs match. Returns itself."""
        self.host, self.local_rank = host, local_rank
        self.add_note(f"rank {self.error_index} (local rank {local_rank}) on {host}, pid {self.error_pid}")
        return self

    def _arguments(self) -> tuple[Any, ...]:
        return self.msg, self.error_index, self.error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments(), self.__dict__.copy()


class ProcessRaisedException(ProcessException):
    """The function raised. `__cause__` is the exception itself if it could be pickled.

    Attributes:
        type_name, text: of the exception.
        traceback: as the rank would have printed it.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)
        self.type_name = ""
        self.text = ""
        self.traceback = ""


class ProcessExitedException(ProcessException):
    """The process ended without a result. `exit_code` is negative for a signal, whose name is `signal_name`."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name
        self.traceback: str | None = None

    def _arguments(self) -> tuple[Any, ...]:
        return self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name
