"""Shows one pod to a further controller: replays its journal and streams its output, during the run or long after it.

Reads the pod's folder only, so that any number of people can watch a run without disturbing it.
"""

import json
import os
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from ...protocol import messages
from ...protocol.checks import is_moment, is_time
from .. import libc, native
from ..files import rundir
from ..files.marks import Marks
from ..files.spool import POLL_INTERVAL, STREAMS, Spool, Spools, last_lines
from ..run import reaper
from ..streams import write_all
from .loop import LinkServer, Readers, Wire

CHUNK = 131072
LOOK_INTERVAL = 0.5  # seconds between looks whether the agent lives; news come by inotify
LINE_BLOCK = 65536  # bytes in which the next line's beginning is looked for


def serve(link_in: int, link_out: int, argv: List[str], hello: Dict[str, Any]) -> int:
    """The mode `watch RUN NODE_RANK [ended]`; returns the exit status."""
    folder = rundir.find_pod(argv[1], argv[2])
    plan = rundir.read_json(folder, rundir.PLAN) if folder else None
    if folder is None or plan is None or ("ended" in argv[3:] and not rundir.has_verdict(folder)):
        write_all(link_out, b"gone\n")
        return 1
    write_all(link_out, b"here\n")
    hello["facts"] = {"plan": plan, "root": native.outward(folder)}
    return Watcher(Wire(link_in, link_out), folder, plan, hello).run()


class Watcher(LinkServer):
    """Serves one watching controller over one wire.

    Args:
        folder: of the pod.
        hello: fields of HELLO.
    """

    def __init__(self, wire: Wire, folder: str, plan: Dict[str, Any], hello: Dict[str, Any]) -> None:
        super().__init__(wire, hello)
        self._folder = folder
        self._plan = plan
        self._journal: Optional[int] = None
        self._partial = b""
        self._inotify: Optional[int] = None  # of the journal
        self._wanted: Dict[str, Any] = {}  # the request, once it came
        self._spools = Spools()
        self._marks: Dict[Tuple[int, int], Marks] = {}
        self._opened: Set[int] = set()
        self._clock_shift = _clock_shift(plan)
        self._is_damaged = False  # a line of the journal, which was reported
        self._has_ended = False  # DONE or GONE was sent
        self._has_caught_up = False
        self._look_at = 0.0

    def _take_request(self, message: Dict[str, Any]) -> None:
        if message["type"] == messages.WATCH and not self._wanted:
            self._wanted = message

    def _fill(self, now: float) -> None:
        if self._wanted:
            self._read_journal()
            if now >= self._look_at:
                self._look_at = now + LOOK_INTERVAL
                self._look_for_agent()
            self._send_output()
            self._look_for_end()

    def _readers(self) -> Readers:
        readers: Readers = {}
        inotify = self._inotify
        if inotify is not None:
            readers[inotify] = lambda: os.read(inotify, 65536)
        if self._spools.inotify is not None and not self._spools.has_more:
            readers[self._spools.inotify] = self._spools.read_inotify
        return readers

    def _deadlines(self, now: float) -> List[Optional[float]]:
        deadlines: List[Optional[float]] = [self._look_at]
        if self._inotify is None or self._spools.inotify is None:
            deadlines.append(now + POLL_INTERVAL)
            self._spools.queue_all()
        if self._wire.has_room and self._spools.can_go(self._channel.output_allowance):
            deadlines.append(now)
        return deadlines

    # -- the folder ------------------------------------------------------------------------------------------------
    def _open_journal(self) -> Optional[int]:
        path = os.path.join(self._folder, rundir.JOURNAL)
        try:
            self._journal = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None  # nothing has happened yet
        try:
            self._inotify = libc.inotify_open()
            libc.inotify_watch(self._inotify, path)
        except OSError:
            self._inotify = None  # then by polling
        return self._journal

    def _read_journal(self) -> None:
        journal = self._open_journal() if self._journal is None else self._journal
        while journal is not None:
            block = os.read(journal, CHUNK)
            if not block:
                return
            lines = (self._partial + block).split(b"\n")
            self._partial = lines.pop()
            for line in lines:
                self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        message, problem = _read(line)
        if problem:
            if not self._is_damaged:
                self._is_damaged = True
                text = "parts of the run's journal can't be used and are not shown: %s" % problem
                self._send(messages.NOTICE, text=text)
            return
        kind = message["type"]
        if "at" in message:
            message["at"] += self._clock_shift
        streams = self._wanted["streams"]
        if kind == messages.STARTED:
            self._open(message["rank"])
        elif kind == messages.EXITED:
            rank = message["rank"]
            kept = [[stream, size] for stream, size in message["sizes"] if self._is_wanted(rank) and stream in streams]
            message["sizes"] = kept
        elif kind == messages.DONE:
            message["sizes"] = [s for s in message["sizes"] if self._is_wanted(s[0]) and s[1] in streams]
            self._has_ended = True
        self._channel.send(message)

    def _is_wanted(self, rank: int) -> bool:
        return self._wanted["ranks"] is None or rank in self._wanted["ranks"]

    def _open(self, rank: int) -> None:
        wanted = self._wanted
        if rank in self._opened or not self._is_wanted(rank):
            return
        self._opened.add(rank)
        begun = {(item[0], item[1]): item[2] for item in wanted["offsets"]}
        for stream, suffix in STREAMS:
            path = os.path.join(self._folder, "rank-%d.%s" % (rank, suffix))
            if stream not in wanted["streams"] or not os.path.exists(path):
                continue
            spool = Spool(rank, stream, path)
            marks = Marks(path)
            spool.hole = marks.hole
            start = begun.get((rank, stream))
            if start is None:
                start = self._start_of(spool, marks)
            spool.offset = max(start, spool.hole)
            self._marks[rank, stream] = marks
            self._spools.add(spool)
            self._send(messages.FROM, rank=rank, stream=stream, offset=spool.offset)

    def _start_of(self, spool: Spool, marks: Marks) -> int:
        """Where a stream begins for this controller: its first byte, its last lines, or a time."""
        wanted = self._wanted
        start = spool.hole
        if wanted["since"] is not None:
            offset = marks.since(wanted["since"])
            start = spool.size if offset is None else max(start, _next_line(spool, offset))
        if wanted["tail"] is not None:
            start = max(start, last_lines(spool.fd, spool.size, wanted["tail"], spool.hole))
        return start

    def _send_output(self) -> None:
        while self._wire.has_room:
            found = self._spools.next_chunk(CHUNK, self._channel.output_allowance)
            if found is None:
                return
            spool, offset, chunk = found
            when = time.time()
            marks = self._marks[spool.rank, spool.stream]
            marks.refresh()
            if marks.hole > offset:  # taken by the cap while we read: what looks like zeros is nothing
                self._skip(spool, offset, min(marks.hole, offset + len(chunk)))
                chunk = chunk[marks.hole - offset :]
                offset = marks.hole
                if not chunk:
                    continue
            if self._wanted["has_times"]:
                seen, following = marks.at(offset)
                when = seen or when
                if following is not None and following < offset + len(chunk):
                    chunk = chunk[: following - offset]
                    spool.offset = following
            self._send_chunk(spool.rank, spool.stream, offset, chunk, when)

    def _skip(self, spool: Spool, offset: int, end: int) -> None:
        spool.hole = self._marks[spool.rank, spool.stream].hole
        self._send(messages.LOST_OUTPUT, rank=spool.rank, stream=spool.stream, offset=offset, count=end - offset)

    def _look_for_agent(self) -> None:
        if self._has_ended or rundir.is_held(self._folder):
            return
        self._read_journal()  # its last words may have come meanwhile
        if not self._has_ended:
            self._has_ended = True
            left = reaper.find(str(self._plan["run"]), int(self._plan["node_rank"]), set())
            leftovers = [list(leftover) for leftover in reaper.why_alive(left)]
            self._send(messages.GONE, reason="its agent died", leftovers=leftovers)

    def _look_for_end(self) -> None:
        if self._has_caught_up or self._spools.has_more:
            return
        if self._has_ended or not self._wanted["is_following"]:
            self._spools.queue_all()
            if self._has_ended and self._spools.has_unread:
                return
            self._has_caught_up = True
            self._send(messages.CAUGHT_UP)

    def _close(self) -> None:
        self._spools.close()
        for fd in (self._journal, self._inotify):
            if fd is not None:
                os.close(fd)


def _read(line: bytes) -> Tuple[Dict[str, Any], Optional[str]]:
    """A line of a journal, and what is wrong with it: a full disk cut it short, or another version wrote it."""
    try:
        message = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError) as error:
        return {}, "a line can't be read (%s)" % error
    if not isinstance(message, dict):
        return {}, "a line is no message"
    return messages.up_to_date(message), messages.problem_of(message)


def _clock_shift(plan: Dict[str, Any]) -> float:
    """What to add to a pod's times to get this system's monotonic clock: 0 unless it was rebooted since."""
    if plan.get("boot") == rundir.boot_id() or not (is_moment(plan.get("clock")) and is_time(plan.get("began"))):
        return 0.0
    return float(plan["began"] - plan["clock"] - (time.time() - time.monotonic()))


def _next_line(spool: Spool, offset: int) -> int:
    """Where the first line starts at or after `offset`."""
    if offset <= spool.hole:
        return spool.hole
    block = os.pread(spool.fd, LINE_BLOCK, offset - 1)
    newline = block.find(b"\n")
    return offset + newline if newline >= 0 else offset
