"""What a further controller is shown of a pod, from its folder alone."""

import json
import os
from pathlib import Path

from mnspawn.core.session import Gap, HostSession, Output, SessionEvent
from mnspawn_agent.posix.marks import MarkWriter
from mnspawn_agent.posix.watch import Watcher
from mnspawn_agent.posix.wire import Wire
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
        self.session = HostSession(0.0, 1 << 20)
        self.session.send(messages.make(messages.WATCH, **WANTED))
        self.watcher._channel.receive(self.session.data_to_send(0.0), 0.0)
        self.watcher._take_events()
        self.watcher._read_journal()

    def events(self) -> list[SessionEvent]:
        self.watcher._send_output()
        self.session.receive(bytes(self.watcher._wire.pending), 0.0)
        self.watcher._wire.pending.clear()
        return [event for event in self.session.events() if isinstance(event, Output | Gap)]

    def close(self) -> None:
        self.watcher._spools.close()  # its process would end
        assert self.watcher._journal is not None
        for fd in (*self._pipes, self.watcher._journal):
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
