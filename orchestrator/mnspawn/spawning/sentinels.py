"""Descriptors that become readable when ranks end, for `multiprocessing.connection.wait`. Made on demand."""

import os
import threading


class Sentinels:
    """One pipe for each rank that was asked for. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipes: dict[int, tuple[int, int]] = {}
        self._ended: set[int] = set()
        self._is_closed = False

    def of(self, rank: int) -> int:
        """Return the descriptor of a rank. Raises ValueError: after `close`. OSError: no descriptor is left."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the context of this rank is gone")
            if rank not in self._pipes:
                self._pipes[rank] = os.pipe()
                if rank in self._ended:
                    self._signal(rank)
            return self._pipes[rank][0]

    def end(self, rank: int) -> None:
        """Make the descriptor of a rank readable."""
        with self._lock:
            if rank not in self._ended:
                self._ended.add(rank)
                self._signal(rank)

    def _signal(self, rank: int) -> None:
        """Write a byte: a process that was forked meanwhile could hold the pipe open, so that its end is not seen."""
        if rank in self._pipes:
            os.write(self._pipes[rank][1], b"\0")

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            self._is_closed = True
            for pipe in self._pipes.values():
                for descriptor in pipe:
                    os.close(descriptor)
            self._pipes.clear()
