"""Files of hosts whose agents say strange things: `mnspawn tail HOSTS:PATTERN`."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mnspawn.engine.link import sites
from mnspawn.engine.look.tailing import Followed, Tail
from mnspawn.errors import HostsUnusable
from mnspawn.transport.base import SshOptions
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel
from mnspawn_inventory import Host
from tests.support import PATIENCE
from tests.support.liar import Liar
from tests.support.memory_transport import MemoryTransport

FILE = {"type": messages.FILE, "number": 0, "path": "/var/log/x", "inode": 7, "at": 0, "offset": 0}
HELLO = {"type": messages.HELLO, "protocol": 1, "version": "x", "facts": {}, "cached": True}


def saying(*said: dict[str, Any]) -> Callable[[Channel], object]:
    def say(channel: Channel) -> None:
        for message in said:
            channel.send(message)

    return say


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (saying(HELLO, {**FILE, "path": "/a\0b"}), "file: path='/a\\x00b'"),
        (saying(HELLO, {**FILE, "number": 1 << 20}), "file: number=1048576"),
        (saying(HELLO, FILE, {**FILE, "path": "/other"}), "file: another path for number 0"),
        (saying(HELLO, {"type": messages.CAUGHT_UP}), "caught_up from a tailer"),
        (lambda channel: channel.send_output(3, 1, 0, b"x", 1.0), "output of file 3, which was never opened"),
    ],
)
def test_a_host_that_says_nonsense_is_given_up(
    monkeypatch: pytest.MonkeyPatch, lie: Callable[[Channel], object], words: str
) -> None:
    liar = Liar("connect", lie, mode="tail")
    monkeypatch.setattr(sites, "create", lambda name, options: MemoryTransport(options, {"liar": liar.host}))
    followed = [Followed(Host(name="liar"), ("/var/log/x",))]
    tail = Tail(followed, None, [], lambda *_: None, transport="memory", ssh=SshOptions())

    async def execute() -> None:
        async with asyncio.timeout(PATIENCE):
            await tail.execute()

    with pytest.raises(HostsUnusable) as caught:
        asyncio.run(execute())
    (error,) = caught.value.errors
    assert error.message == f"said something that makes no sense: {words}"
    assert liar.modes == ["tail"]
