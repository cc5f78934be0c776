"""What multiprocessing shares between processes of one machine: queues, locks, pipes, memory. Hands it to ranks here.

They are pickled as for a child process: semaphores by name, descriptors by number. The descriptors are handed over
through a socket that has no file, to processes of this account only, which ask for them when they load their arguments.
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
    """Something that other machines can't share."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.kind = f"{type(value).__module__}.{type(value).__qualname__}"
        super().__init__(f"{self.kind}: {WHY}")


def kinds() -> tuple[type, ...]:
    """The classes of `KINDS` whose modules anybody has imported: of others there are no instances."""
    return tuple(
        getattr(sys.modules[module], name)
        for module, names in KINDS.items()
        if module in sys.modules
        for name in names
        if hasattr(sys.modules[module], name)
    )


def reducers() -> dict[type, Callable[[Any], Any]]:
    """How multiprocessing, and libraries that told it, send what they share."""
    reduction = sys.modules.get("multiprocessing.reduction")
    return {} if reduction is None else reduction.ForkingPickler._extra_reducers


def reduce(reducer: Callable[[Any], Any], value: Any, shares_tensors: bool) -> Any:
    """By that reducer; NotImplemented lets it be copied: a tensor that nobody shares, or that torch can't share."""
    is_tensor = type(value).__module__.partition(".")[0] == "torch"
    if is_tensor and not shares_tensors and not (hasattr(value, "is_shared") and value.is_shared()):
        return NotImplemented
    try:
        return reducer(value)
    except RuntimeError:
        if is_tensor:  # it is part of a graph, or memory that can be shared is short
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
    """Stands in for the child process that multiprocessing believes to spawn."""

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


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """For ranks elsewhere."""
    yield


class Shared:
    """Descriptors for ranks on this machine, and what they stand for, until every rank has them."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._kept: Any = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        from multiprocessing import resource_tracker

        self.add(resource_tracker.getfd() or 0)  # else a rank's own would remove at its end what it has only used
        _ours.add(self)

    def add(self, descriptor: int) -> int:
        self._descriptors.append(os.dup(descriptor))
        return len(self._descriptors) - 1

    def offer(self) -> dict[str, Any]:
        """Begin to listen; what ranks have to know."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = f"mnspawn-{secrets.token_hex(16)}"
        self._listener.bind(f"\0{name}")
        self._listener.listen(4096)
        return {"name": name, "count": len(self._descriptors)}

    def serve(self, ranks: Callable[[], int], kept: Any) -> None:
        """Hand them out, in a thread, until all ranks have them.

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
                            served += self._hear(sock)
                            selector.unregister(sock)
                            sock.close()
            finally:
                for sock in peers:
                    sock.close()
                self._let_go()

    def _accept(self, selector: selectors.BaseSelector) -> list[socket.socket]:
        from multiprocessing import reduction

        assert self._listener is not None
        with contextlib.suppress(OSError):  # it went away before we came to it
            sock, _ = self._listener.accept()
            if _uid_of(sock) == os.getuid():
                sock.setblocking(True)
                for start in range(0, len(self._descriptors), BATCH):
                    reduction.sendfds(sock, self._descriptors[start : start + BATCH])
                selector.register(sock, selectors.EVENT_READ)
                return [sock]
            sock.close()
        return []

    def _hear(self, sock: socket.socket) -> int:
        """How many ranks a process has loaded its arguments for; it may have ended instead."""
        with contextlib.suppress(OSError):
            said = sock.recv(16)
            return int(said) if said.isdigit() else 0
        return 0

    def _let_go(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
        if self._listener is not None:
            self._listener.close()
        self._kept = None

    def close(self) -> None:
        """The run has ended, or there will be none."""
        if self._thread is not None:
            with contextlib.suppress(OSError):
                self._wake_out.send(b"x")
            self._thread.join()
        self._let_go()
        self._wake_in.close()
        self._wake_out.close()


def _uid_of(sock: socket.socket) -> int:
    """The account at the other end of a connection."""
    _, uid, _ = PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return int(uid)


_ours: "weakref.WeakSet[Shared]" = weakref.WeakSet()


def _close_copies() -> None:
    """In a forked child: pipes are to end when they do for us."""
    for shared in list(_ours):
        shared._let_go()


os.register_at_fork(after_in_child=_close_copies)
