"""One host of two lies: the controller names it and what it said, and the honest host's ranks are stopped at once."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mnspawn.api import runs as api
from mnspawn.engine.link import sites
from mnspawn.engine.request import RunRequest
from mnspawn.errors import HostsUnusable
from mnspawn.events import Event, HostLost, HostStopped, RunStopping, WorkerExited
from mnspawn.plan.launch_plan import Program
from mnspawn.report import RunReport
from mnspawn.transport import create
from mnspawn.transport.base import SshOptions, Transport
from mnspawn_agent.protocol import framing, messages
from mnspawn_agent.protocol.channel import BEAT, Channel
from mnspawn_inventory import Host
from tests.support.liar import Liar, exited, hello, prepared, started
from tests.support.memory_transport import MemoryTransport

LIMIT = 60.0  # seconds: far more than any of this takes, and less than an orphan_grace that nobody waits for


class Told:
    """A listener that keeps what it is told."""

    backlog = 0

    def __init__(self) -> None:
        self.events: list[Event] = []

    def bind(self, wake: Callable[[], None]) -> None:
        pass

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    async def aclose(self) -> None:
        pass

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def home(tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, liar: Liar, told: Told) -> RunReport:
    """A run of one rank on this machine and one on the liar; each would run for ever."""

    def make(name: str, options: SshOptions) -> Transport:
        return MemoryTransport(options, {"liar": liar.host}) if name == "memory" else create(name, options)

    monkeypatch.setattr(sites, "create", make)
    request = RunRequest(
        Program("command", "sleep", ("1000",)),
        (Host(name="honest", transport="local"), Host(name="liar", transport="memory")),
        nproc=1,
        orphan_grace=1000.0,
        grace=5.0,
    )

    async def execute() -> RunReport:
        async with asyncio.timeout(LIMIT):
            report = await api.run(request, [told])
        assert isinstance(report, RunReport)
        return report

    return asyncio.run(execute())


def saying(*said: dict[str, Any]) -> Callable[[Channel], object]:
    def say(channel: Channel) -> None:
        for message in said:
            channel.send(message)

    return say


def output(rank: int = 1, stream: int = 1, offset: int = 0, stamp: float = 1.0) -> Callable[[Channel], object]:
    return lambda channel: channel.send_output(rank, stream, offset, b"x", stamp)


def beat(clock: float) -> bytes:
    return framing.encode(framing.BEAT, 0, BEAT.pack(0, clock, -1.0, 0.0, 0))


WHILE_IT_RUNS = {
    "a time that is no number": (saying(started(1, at=math.nan)), "started: at=nan"),
    "a huge time": (saying(started(1, at=1e300)), "started: at=1e+300"),
    "a rank of the other host": (saying(started(0)), "started: rank 0, which is none of this host's"),
    "a rank that starts twice": (saying(started(1), started(1)), "started: rank 1, which runs"),
    "a rank that runs and was not started": (
        saying(started(1), {"type": messages.NOT_STARTED, "rank": 1, "at": 1.0, "error": "no"}),
        "not_started: rank 1, which runs",
    ),
    "an end without a start": (saying(exited(1)), "exited: rank 1, which never started"),
    "an unknown stream": (
        saying({"type": messages.LOST_OUTPUT, "rank": 1, "stream": 9, "offset": 0, "count": 1}),
        "lost_output: stream=9",
    ),
    "an offset behind the largest": (
        saying({"type": messages.LOST_OUTPUT, "rank": 1, "stream": 1, "offset": (1 << 63) - 1, "count": 1}),
        f"lost_output: offset={(1 << 63) - 1}, count=1",
    ),
    "prepared again": (saying(prepared({"ranks": [1], "extra_ports": 0, "files": []})), "prepared while it is started"),
    "what only a watcher says": (saying({"type": messages.CAUGHT_UP}), "caught_up while it is started"),
    "no message of ours": (saying({"type": "sing"}), "unknown message 'sing'"),
    "output of an unknown stream": (output(stream=7), "output: stream=7"),
    "output of the other host's rank": (output(rank=0), "output of rank 0, which is none of this host's"),
    "output at no time": (output(stamp=math.nan), "time=nan"),
    "a clock that is no number": (lambda channel: beat(math.nan), "clock=nan"),
    "an acknowledgement of what was never said": (
        lambda channel: framing.encode(framing.BEAT, 0, BEAT.pack(99, 0.0, -1.0, 0.0, 0)),
        "received=99 of 2",
    ),
    "more output than was granted": (
        lambda channel: [channel.send_output(1, 1, at << 20, bytes(1 << 20), 1.0) for at in range(5)],
        "bytes, granted were",
    ),
    "a file": (lambda channel: channel.send_blob(0, 0, b"x"), "a file"),
}


@pytest.mark.parametrize("lie", WHILE_IT_RUNS)
def test_a_host_that_lies_while_ranks_run_is_lost_and_the_others_are_stopped(
    lie: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say, words = WHILE_IT_RUNS[lie]
    liar, told = Liar(messages.START, say), Told()
    report = run(monkeypatch, liar, told)
    assert report.exit_status == 5
    assert report.reason.startswith("host liar was lost: said something that makes no sense: ")
    assert words in report.reason
    assert [event.host for event in told.of(HostLost)] == ["liar"]
    assert [event.reason for event in told.of(RunStopping)] == ["host liar was lost"]
    honest = report.ranks[0]
    assert (honest.host, honest.code, honest.stopped) == ("honest", -15, True)
    assert [event.host for event in told.of(HostStopped)] == ["honest"]
    assert [host.is_confirmed for host in report.hosts] == [True, True]
    assert liar.modes == ["serve", "reap"]
    assert len(told.of(WorkerExited)) == 1


def test_the_others_are_stopped_before_it_is_known_what_is_left_on_the_liar(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    liar = Liar(messages.START, saying(started(7)), reaps_after=lambda: told.of(HostStopped))
    report = run(monkeypatch, liar, told)
    assert (report.exit_status, [host.is_confirmed for host in report.hosts]) == (5, [True, True])


def test_a_liar_that_can_not_be_buried_is_not_confirmed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, Liar(messages.START, saying(started(7)), reaped=b"left 42\n"), told := Told())
    assert (report.exit_status, [host.is_confirmed for host in report.hosts]) == (5, [True, False])
    assert told.of(WorkerExited)[0].stopped


def test_one_that_says_garbage_on_every_wire_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = Liar(messages.START, lambda channel: b"\xff" * 100, attached=b"\xff" * 100)
    report = run(monkeypatch, liar, told := Told())
    assert report.exit_status == 5
    assert report.reason.startswith("host liar was lost: expected a frame, found b'")
    assert liar.modes == ["serve", "attach", "attach", "attach", "reap"]
    assert told.of(WorkerExited)[0].stopped


BEFORE_THE_START = {
    "facts of a wrong type": ("connect", saying(hello(interfaces=7)), "interfaces"),
    "no cpus": ("connect", saying(hello(cpus="many")), "cpus"),
    "started at once": ("connect", saying(started(1)), "started before hello"),
    "started before it was prepared": (
        "connect",
        saying(hello(), started(1)),
        "started before it was asked to prepare",
    ),
    "too few ports": (
        messages.PREPARE,
        saying(prepared({"ranks": [], "extra_ports": 0, "files": []})),
        "prepared: 0 ports, expected 1",
    ),
    "NUL in a path": (
        messages.PREPARE,
        saying(prepared({"ranks": [1], "extra_ports": 0, "files": []}, run_dir="/a\0b")),
        "prepared: run_dir='/a\\x00b'",
    ),
    "a blob that is none": (messages.PREPARE, saying({"type": messages.NEED, "blobs": [7]}), "need: blobs=[7]"),
    "a clock that is no number": ("connect", lambda channel: beat(math.nan), "clock=nan"),
}


@pytest.mark.parametrize("lie", BEFORE_THE_START)
def test_a_host_that_lies_before_the_start_can_not_be_used(
    lie: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after, say, words = BEFORE_THE_START[lie]
    with pytest.raises(HostsUnusable) as caught:
        run(monkeypatch, Liar(after, say), Told())
    (error,) = caught.value.errors
    assert error.host == "liar"
    assert error.message.startswith("said something that makes no sense: ")
    assert words in error.message
