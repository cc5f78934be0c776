"""Shares with ranks on this machine what multiprocessing shares with child processes: queues, locks, pipes, memory.

They are pickled as for a child process: semaphores by name, descriptors by number. A socket without a file hands over
the descriptors, only to processes of this account, which ask for them when they load their arguments.
"""

import contextlib
import os
import secrets
import selectors
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

KINDS = {
    "multiprocessing.synchronize": ("SemLock", "Event", "Condition", "Barrier"),
    "multiprocessing.queues": ("Queue", "SimpleQueue"),
    "multiprocessing.connection": ("_ConnectionBase", "Listener"),
    "multiprocessing.sharedctypes": ("SynchronizedBase",),
    "multiprocessing.heap": ("BufferWrapper", "Arena"),
    "multiprocessing.shared_memory": ("SharedMemory", "ShareableList"),
    "multiprocessing.managers": ("BaseProxy", "BaseManager"),
    "multiprocessing.pool": ("Pool",),
    "multiprocessing.process": ("BaseProcess",),
}
WHY = "it connects processes of one machine"
HINT = (
    "leave out hosts to share it with ranks on this machine; across hosts let the function return values "
    "(mnspawn.spawn(...).results()) or exchange them through torch.distributed or a socket of its own"
)
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
BATCH = 200  # descriptors in a message; the kernel takes 253


class StaysHere(TypeError):
    """An object that other machines can't share."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.kind = f"{type(value).__module__}.{type(value).__qualname__}"
        super().__init__(f"{self.kind}: {WHY}")


def kinds() -> tuple[type, ...]:
    """The classes of `KINDS` whose modules are imported; others have no instances."""
    return tuple(
        getattr(sys.modules[module], name)
        for module, names in KINDS.items()
        if module in sys.modules
        for name in names
        if hasattr(sys.modules[module], name)
    )


def reducers() -> dict[type, Callable[[Any], Any]]:
    """How multiprocessing, and libraries that have registered with it, send what they share."""
    reduction = sys.modules.get("multiprocessing.reduction")
    return {} if reduction is None else reduction.ForkingPickler._extra_reducers


def reduce(reducer: Callable[[Any], Any], value: Any, shares_tensors: bool) -> Any:
    """Reduce a value; NotImplemented for a tensor to be copied, since it is not shared or torch can't share it."""
    is_tensor = type(value).__module__.partition(".")[0] == "torch"
    if is_tensor and not shares_tensors and not (hasattr(value, "is_shared") and value.is_shared()):
        return NotImplemented
    try:
        return reducer(value)
    except RuntimeError:
        if is_tensor:  # it is part of a graph, or shared memory is short
            return NotImplemented
        raise


def has_tracker() -> bool:
    """Whether multiprocessing keeps track of named memory and semaphores of ours."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    return getattr(tracker, "_fd", None) is not None


def hint_for(error: Exception) -> str | None:
    if "fork context" in str(error) or "forking was enabled" in str(error):
        return "make it with multiprocessing.get_context('spawn'), or use start_method='fork'"
    return None


class Spawning:
    """Acts as the child process that multiprocessing believes it spawns."""

    def __init__(self, share: "Callable[[], Shared]") -> None:
        self._share = share

    def duplicate_for_child(self, descriptor: int) -> int:
        return self._share().add(descriptor)

    def DupFd(self, index: int) -> Any:
        from multiprocessing import popen_forkserver

        return popen_forkserver._DupFd(index)


@contextlib.contextmanager
def spawning(share: "Callable[[], Shared]") -> Iterator[None]:
    """Let what multiprocessing shares be pickled in this thread."""
    context = sys.modules.get("multiprocessing.context")
    if context is None:
        yield
        return
    before = context.get_spawning_popen()
    context.set_spawning_popen(Spawning(share))
    try:
        yield
    finally:
        context.set_spawning_popen(before)


class Shared:
    """Descriptors for ranks on this machine, and what they stand for, until every rank has them."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._kept: Any = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        from multiprocessing import resource_tracker

        self.add(resource_tracker.getfd() or 0)  # else a rank's own tracker removes at its end what the rank only used
        _ours.add(self)

    def add(self, descriptor: int) -> int:
        self._descriptors.append(os.dup(descriptor))
        return len(self._descriptors) - 1

    def offer(self) -> dict[str, Any]:
        """Begin to listen. Returns what ranks have to know."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = f"mnspawn-{secrets.token_hex(16)}"
        self._listener.bind(f"\0{name}")
        self._listener.listen(4096)
        return {"name": name, "count": len(self._descriptors)}

    def serve(self, ranks: Callable[[], int], kept: Any) -> None:
        """Hand out the descriptors, in a thread, until all ranks have them.

        Args:
            ranks: how many there are; 0 while that is not known.
            kept: stays alive until then.
        """
        self._kept = kept
        self._thread = threading.Thread(target=self._serve, args=(ranks,), name="mnspawn sharing", daemon=True)
        self._thread.start()

    def _serve(self, ranks: Callable[[], int]) -> None:
        assert self._listener is not None
        served = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_in, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            peers: list[socket.socket] = []
            try:
                while not served or served < ranks():
                    for key, _ in selector.select():
                        sock = key.fileobj
                        if sock is self._wake_in:
                            return
                        if sock is self._listener:
                            peers += self._accept(selector)
                        elif isinstance(sock, socket.socket):
                            served += self._receive(sock)
                            selector.unregister(sock)
                            sock.close()
            finally:
                for sock in peers:
                    sock.close()
                self._release()

    def _accept(self, selector: selectors.BaseSelector) -> list[socket.socket]:
        from multiprocessing import reduction

        assert self._listener is not None
        with contextlib.suppress(OSError):  # it has already closed the connection
            sock, _ = self._listener.accept()
            _, uid, _ = PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            if uid == os.getuid():
                sock.setblocking(True)
                for start in range(0, len(self._descriptors), BATCH):
                    reduction.sendfds(sock, self._descriptors[start : start + BATCH])
                selector.register(sock, selectors.EVENT_READ)
                return [sock]
            sock.close()
        return []

    def _receive(self, sock: socket.socket) -> int:
        """For how many ranks a process has loaded its arguments; it may have ended instead."""
        try:
            return int(sock.recv(16))
        except (OSError, ValueError):
            return 0

    def _release(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
        if self._listener is not None:
            self._listener.close()
        self._kept = None

    def close(self) -> None:
        """Hand out nothing more: the run has ended, or there will be none."""
        if self._thread is not None:
            with contextlib.suppress(OSError):
                self._wake_out.send(b"x")
            self._thread.join()
        self._release()
        self._wake_in.close()
        self._wake_out.close()


_ours: "weakref.WeakSet[Shared]" = weakref.WeakSet()


def _close_copies() -> None:
    """In a forked child: else a pipe stays open there after the caller has closed it."""
    for shared in list(_ours):
        shared._release()


os.register_at_fork(after_in_child=_close_copies)
