"""Descriptors that become readable when ranks end, for `multiprocessing.connection.wait`; made when asked for."""

import os
import threading


class Sentinels:
    """One pipe per rank that was asked about. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipes: dict[int, tuple[int, int]] = {}
        self._ended: set[int] = set()
        self._is_closed = False

    def of(self, rank: int) -> int:
        """The descriptor of a rank. Raises ValueError: after `close`. OSError: there are no more descriptors."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the context of this rank is gone")
            if rank not in self._pipes:
                self._pipes[rank] = os.pipe()
                if rank in self._ended:
                    self._tell(rank)
            return self._pipes[rank][0]

    def end(self, rank: int) -> None:
        """A rank has ended."""
        with self._lock:
            if rank not in self._ended:
                self._ended.add(rank)
                self._tell(rank)

    def _tell(self, rank: int) -> None:
        """By a byte: the end of the pipe would not be seen while a process that was forked meanwhile has it open."""
        if rank in self._pipes:
            os.write(self._pipes[rank][1], b"\0")

    def close(self) -> None:
        """Give all back."""
        with self._lock:
            self._is_closed = True
            for pipe in self._pipes.values():
                for descriptor in pipe:
                    os.close(descriptor)
            self._pipes.clear()
