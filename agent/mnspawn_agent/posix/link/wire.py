"""One byte stream to the controller: a pair of pipes from sshd, or a connection to the control socket."""

import fcntl
import os
from typing import Optional

F_SETPIPE_SZ = 1031  # Linux; fcntl has it from Python 3.10 on
PIPE_SIZE = 262144  # four times the default, so that sshd and agent wait for each other less often
READ_SIZE = 65536
OUT_LIMIT = 262144  # output waits in its files, not here: control frames never queue after more than this


class Wire:
    """Non-blocking reads and writes, while `is_open`."""

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
