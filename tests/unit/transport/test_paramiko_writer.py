"""The thread that writes for paramiko: whatever paramiko raises, nobody waits for it for ever."""

import asyncio
import os
import threading
from typing import Any

from mnspawn.transport.paramiko.process import Process
from tests.support import PATIENCE


class Channel:
    """As paramiko's, with an error of its own in it."""

    eof_received = closed = False
    exit_status = -1
    status_event = threading.Event()

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, flag: bool) -> None: ...

    def sendall(self, chunk: bytes) -> None:
        raise AttributeError("'NoneType' object has no attribute 'send_message'")

    def close(self) -> None: ...


async def test_a_write_that_fails_in_an_unforeseen_way_returns() -> None:
    ours, theirs = os.pipe()
    channel: Any = Channel(ours)
    process = Process(channel)
    async with asyncio.timeout(PATIENCE):
        for _ in range(3):
            await process.write(bytes(1 << 19))
    await process.close()
    process.join()
    assert process.is_over
    os.close(ours)
    os.close(theirs)
