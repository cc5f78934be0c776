"""What a further controller is shown of a pod, from its folder alone."""

import json
import os
import time
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Gap, NotStarted, Output, Remark, SessionEvent
from mnspawn.core.message_check import Speaker
from mnspawn.core.session import HostSession
from mnspawn_agent.posix.files import rundir
from mnspawn_agent.posix.files.marks import MarkWriter
from mnspawn_agent.posix.link.loop import Wire
from mnspawn_agent.posix.link.watch import Watcher, _clock_shift
from mnspawn_agent.protocol import messages

WANTED = {
    "streams": [1, 2], "ranks": None, "offsets": [], "tail": None, "since": None, "has_times": False,
    "is_following": True,
}  # fmt: skip


class Shown:
    """A watcher and the session of who watches, without a process between them."""

    def __init__(self, folder: Path) -> None:
        (folder / "journal.jsonl").write_text(json.dumps(messages.make(messages.STARTED, rank=0, pid=7, at=1.0)) + "\n")
        self._pipes = [*os.pipe(), *os.pipe()]
        hello = {"version": "x", "facts": {}, "cached": True}
        self.watcher = Watcher(Wire(self._pipes[0], self._pipes[3]), str(folder), {"run": "r", "node_rank": 0}, hello)
        self.session = HostSession(0.0, 1 << 20, speaker=Speaker.WATCHER)
        self.session.send(messages.make(messages.WATCH, **WANTED))
        self.watcher._channel.receive(self.session.data_to_send(0.0), 0.0)
        self.watcher._take_events()
        self.watcher._read_journal()

    def events(self) -> list[SessionEvent]:
        self.watcher._send_output()
        self.watcher._wire.pending += self.watcher._channel.data_to_send(0.0)
        self.session.receive(bytes(self.watcher._wire.pending), 0.0)
        self.watcher._wire.pending.clear()
        self.all = self.session.events()
        return [event for event in self.all if isinstance(event, Output | Gap)]

    def close(self) -> None:
        self.watcher._close()
        for fd in self._pipes:
            os.close(fd)


def test_what_the_cap_takes_from_one_who_follows_is_counted_and_no_zeros_are_shown(tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").write_bytes(bytes(8192) + b"kept\n")  # zeros: what a hole reads as
    shown = Shown(tmp_path)
    writer = MarkWriter(str(tmp_path / "rank-0.out"))
    assert writer.note_hole(8192)
    writer.close()
    [gap, output] = shown.events()
    assert gap == Gap(0, 1, 0, 8192)
    assert isinstance(output, Output)
    assert (output.offset, output.chunk) == (8192, b"kept\n")
    shown.close()


@pytest.mark.parametrize("has_booted", [False, True])
def test_times_of_a_pod_are_those_of_the_clock_that_holds_now(tmp_path: Path, has_booted: bool) -> None:
    shown = Shown(tmp_path)
    boot, clock = ("another", 1e6) if has_booted else (rundir.boot_id(), time.monotonic() - 100)
    plan = {"run": "r", "node_rank": 0, "boot": boot, "clock": clock, "began": time.time() - 100}
    assert clock + 40 + _clock_shift(plan) == pytest.approx(time.monotonic() - 60, abs=1)
    assert _clock_shift({}) == 0.0  # of an agent that did not say
    shown.watcher._clock_shift = -1e6
    shown.watcher._pass_on(json.dumps(messages.make(messages.NOT_STARTED, rank=0, at=3.0, error="")).encode())
    shown.events()
    [told] = [event for event in shown.all if isinstance(event, NotStarted)]
    assert told.rank == 0  # a moment before the boot is none that can't be
    shown.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type":"exited","rank":0', "a line can't be read"),
        (b"[" * 100_000, "a line can't be read"),
        (b"7", "a line is no message"),
        (b'{"type":"done","leftovers":[-7],"swept":0,"sizes":[],"at":1.0}', "done: leftovers=[-7]"),
        (b'{"type":"sung"}', "unknown message 'sung'"),
    ],
)
def test_a_line_of_a_journal_that_can_not_be_used_is_told_once_and_the_rest_is_shown(
    tmp_path: Path, line: bytes, words: str
) -> None:
    shown = Shown(tmp_path)
    ended = messages.make(messages.NOT_STARTED, rank=1, at=3.0, error="no such file")
    for one in (line, line, json.dumps(ended).encode()):
        shown.watcher._pass_on(one)
    shown.events()
    [told] = [event.text for event in shown.all if isinstance(event, Remark)]
    assert words in told
    assert [event.error for event in shown.all if isinstance(event, NotStarted)] == ["no such file"]
    shown.close()
