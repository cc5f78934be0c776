"""Unit tests decide in memory: one that starts a process or opens a socket to anybody fails."""

import sys
from collections.abc import Iterator

import pytest

FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
FORBIDDEN |= {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname"}
_seen: list[str] = []
sys.addaudithook(lambda event, _: _seen.append(event) if event in FORBIDDEN else None)


@pytest.fixture(autouse=True)
def _no_processes_and_no_network() -> Iterator[None]:
    _seen.clear()
    yield
    assert _seen == [], "a unit test: it belongs into tests/agent, tests/ssh, tests/cli, ..."
