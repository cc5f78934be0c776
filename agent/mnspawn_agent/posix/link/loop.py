"""The loop of everything that serves a link: waits, and moves bytes between wire and channel. Decides nothing."""

import fcntl
import os
import select
import time
from typing import Any, Callable, Dict, List, Optional

from ...protocol import channel, messages
from ...protocol.version import PROTOCOL

LONGEST_WAIT = 3600.0  # seconds: poll takes no more than 24 days, and an orphan_grace may be longer
F_SETPIPE_SZ = 1031  # Linux; fcntl has it from Python 3.10 on
PIPE_SIZE = 262144  # four times the default, so that sshd and agent wait for each other less often
READ_SIZE = 65536
OUT_LIMIT = 262144  # output waits in its files, not here: control frames never queue after more than this

Readers = Dict[int, Callable[[], object]]


class Wire:
    """One byte stream to the controller: a pair of pipes from sshd, or a connection to the control socket.

    Reads and writes without waiting, while `is_open`.
    """

    def __init__(self, fd_in: int, fd_out: int) -> None:
        self.fd_in = fd_in
        self.fd_out = fd_out
        self.is_open = True
        self.pending = bytearray()
        os.set_blocking(fd_in, False)
        os.set_blocking(fd_out, False)
        try:
            fcntl.fcntl(fd_out, F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            pass  # a socket, another system, or the user's pipe quota is used up: the default will do

    @property
    def has_room(self) -> bool:
        return len(self.pending) < OUT_LIMIT

    def read(self) -> Optional[bytes]:
        """Bytes, b"" at the end, None when there are none yet."""
        try:
            return os.read(self.fd_in, READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def flush(self) -> bool:
        """Write what can be written now; False when the peer is gone."""
        while self.pending:
            try:
                with memoryview(self.pending) as view:
                    count = os.write(self.fd_out, view[:READ_SIZE])
            except BlockingIOError:
                return True
            except OSError:
                return False
            del self.pending[:count]
        return True

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.fd_in)
            if self.fd_out != self.fd_in:
                os.close(self.fd_out)


class LinkServer:
    """Serves one controller over one wire at a time. Subclasses override the methods from `_fill` on.

    Args:
        hello: fields of HELLO.
    """

    def __init__(self, wire: Wire, hello: Dict[str, Any]) -> None:
        self._now = time.monotonic
        self._wire = wire
        self._channel = channel.Channel(self._now())
        self._is_over = False
        self._send(messages.HELLO, protocol=PROTOCOL, **hello)
        self._channel.beat()

    def run(self) -> int:
        """Serve until there is nothing left to do; returns the process's exit status."""
        while not self._is_over:
            if self._wire.is_open:
                self._fill(self._now())
                self._flush()
                self._take_events()
                if self._is_over:
                    break
            self._wait()
            self._channel.on_time(self._now())
            self._take_events()
            self._pass_time(self._now())
        self._close()
        return 0

    def _wait(self) -> None:
        """Until something can be read or a deadline is reached; what can be read is."""
        wire, readers = self._wire, self._readers()
        masks = dict.fromkeys(readers, select.POLLIN)
        if wire.is_open:
            masks[wire.fd_in] = select.POLLIN
            if wire.pending:
                masks[wire.fd_out] = masks.get(wire.fd_out, 0) | select.POLLOUT
        poll = select.poll()
        for fd, mask in masks.items():
            poll.register(fd, mask)
        now = self._now()
        known = [at for at in [self._channel.deadline, *self._deadlines(now)] if at is not None]
        wait = min(LONGEST_WAIT, max(0.0, min(known) - now)) * 1000 if known else None
        for fd, _ in poll.poll(wait):
            if fd in readers:
                readers[fd]()
            elif wire.is_open and fd == wire.fd_in:
                self._read()

    def _read(self) -> None:
        chunk = self._wire.read()
        if chunk is not None:
            self._channel.receive(chunk, self._now())

    def _flush(self) -> None:
        self._wire.pending += self._channel.data_to_send(self._now())
        if not self._wire.flush():
            self._channel.receive(b"", self._now())

    def _send_chunk(self, rank: int, stream: int, offset: int, chunk: bytes, when: float) -> None:
        self._channel.send_output(rank, stream, offset, chunk, when)
        self._wire.pending += self._channel.data_to_send(self._now())

    def _send(self, kind: str, **fields: Any) -> None:
        self._channel.send(messages.make(kind, **fields))

    def _take_events(self) -> None:
        for event in self._channel.events():
            self._take(event)

    def _fill(self, now: float) -> None:
        """Queue what there is to say, output only as far as credit and the wire's room allow."""

    def _readers(self) -> Readers:
        """Descriptors to wait for besides the wire, each with what to call when it can be read."""
        return {}

    def _deadlines(self, now: float) -> List[Optional[float]]:
        """When not to wait any longer; None for never."""
        return []

    def _take(self, event: channel.Event) -> None:
        """Act on what came. This is enough for a server that only shows something: it ends with its wire."""
        if isinstance(event, channel.Lost):
            self._is_over = True
        elif isinstance(event, channel.Received):
            if messages.problem_of(event.message) or event.message["type"] == messages.FINISH:
                self._is_over = True
            else:
                self._take_request(event.message)

    def _take_request(self, message: channel.Message) -> None:
        """A message of a controller that is shown something."""

    def _pass_time(self, now: float) -> None:
        """Do what does not depend on the link."""

    def _close(self) -> None:
        """Give back what was opened."""
