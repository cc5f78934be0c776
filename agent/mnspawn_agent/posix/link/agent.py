"""Serves the run's own controller: passes messages to the pod, output to the link, and survives a lost link."""

import json
import os
import signal
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from ...core.lifeline import Lifeline
from ...core.pod import PodState
from ...protocol import channel, messages
from .. import native
from ..files import control, rundir
from ..files.spool import Spools
from ..run.supervisor import Supervisor
from .loop import LinkServer, Readers, Wire

CHUNK = 131072
COMMAND = b"{"  # a command line from the control socket; frames begin with a zero byte
HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
INOTIFY_PAUSE = 0.1  # between two looks at files that nobody reads for now
ALIVE_PAUSE = 0.5  # between two looks at the link while something else is waited for
OUTPUT_PAUSE = 0.004  # between two looks at output, so that a chatty worker makes few frames instead of many


class Agent(LinkServer):
    """Serves one pod over one link at a time.

    Args:
        wire: the link that we were started with.
        guardian: (descriptor to write the run to, the guardian's pid).
        hello: fields of HELLO.
        root: folder that holds run directories; "" when there is none (the controller then ends us).
        starter: the module spawner, or an object with its functions `spawn` and `settle`.
    """

    def __init__(self, wire: Wire, guardian: Tuple[int, int], hello: Dict[str, Any], root: str, starter: Any) -> None:
        super().__init__(wire, hello)
        self._guardian_fd, self._guardian = guardian
        self._root = root
        self._starter = starter
        self._lifeline = Lifeline(0.0)
        self._supervisor: Optional[Supervisor] = None
        self._new_wires: Dict[int, Wire] = {}
        self._output_at = 0.0
        self._alive_at = 0.0
        self._inotify_at = 0.0
        self._keep = True
        self._has_stop_signal = False
        self._signal_in, signal_out = os.pipe()
        os.set_blocking(self._signal_in, False)
        os.set_blocking(signal_out, False)
        signal.set_wakeup_fd(signal_out)
        for number in HEARD:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        if number != signal.SIGCHLD:
            self._has_stop_signal = True  # somebody on the host wants us to go: stop the pod and report how it went

    # -- the loop's turns ------------------------------------------------------------------------------------------
    def _fill(self, now: float) -> None:
        supervisor = self._supervisor
        if supervisor is None or now < self._output_at:
            return
        while self._wire.has_room:
            found = supervisor.spools.next_chunk(CHUNK, self._channel.output_allowance)
            if found is None:
                break
            spool, offset, chunk = found
            self._send_chunk(spool.rank, spool.stream, offset, chunk, time.time())
            self._output_at = now + OUTPUT_PAUSE
        if len(self._wire.pending) >= CHUNK:
            self._output_at = now

    def _readers(self) -> Readers:
        readers: Readers = {fd: lambda fd=fd: self._read_new_wire(fd) for fd in self._new_wires}  # type: ignore[misc]
        readers[self._signal_in] = self._drain_signals
        supervisor = self._supervisor
        if supervisor is not None:
            readers[supervisor.socket.fileno()] = lambda: self._accept(supervisor.socket)
            if supervisor.spools.inotify is not None and self._watches_files(supervisor.spools):
                readers[supervisor.spools.inotify] = lambda: self._read_inotify(supervisor.spools)
        return readers

    def _deadlines(self, now: float) -> List[Optional[float]]:
        deadlines = [self._lifeline.deadline]
        if self._supervisor is not None:
            spools = self._supervisor.spools
            deadlines.append(self._supervisor.pod.deadline)
            if not self._watches_files(spools):
                deadlines.append(self._inotify_at)
            if self._wire.is_open:
                if self._wire.has_room and spools.can_go(self._channel.output_allowance):
                    deadlines.append(self._output_at)
                if spools.poll_interval is not None:
                    deadlines.append(now + spools.poll_interval)
                    spools.queue_all()
        return deadlines

    def _watches_files(self, spools: Spools) -> bool:
        """Whether to wait for inotify now: while output waits for credit, only now and then."""
        return (not spools.has_more and not spools.muted) or self._now() >= self._inotify_at

    def _read_inotify(self, spools: Spools) -> None:
        spools.read_inotify()
        self._inotify_at = self._now() + INOTIFY_PAUSE

    def _pass_time(self, now: float) -> None:
        if self._has_stop_signal:
            self._has_stop_signal = False
            self._stop("the agent got a signal to end")
        if self._lifeline.on_time(now):
            self._stop("the controller was lost", is_orphaned=True)
        if self._supervisor is not None:
            self._supervisor.reap()
            self._supervisor.on_time(now)
            if self._supervisor.pod.state is PodState.DONE and not self._wire.is_open:
                # the verdict is on disk, where a controller that comes too late finds it
                self._is_over = self._is_over or self._lifeline.deadline is None

    def _stop(self, reason: str, grace: Optional[float] = None, is_orphaned: bool = False) -> None:
        if self._supervisor is None:
            self._is_over, self._keep = True, False
        else:
            self._supervisor.stop_for(reason, self._supervisor.grace if grace is None else grace, is_orphaned)

    def _drain_signals(self) -> None:
        try:
            os.read(self._signal_in, 4096)
        except BlockingIOError:
            pass  # drained already

    def _keep_alive(self) -> bool:
        """Read the link and beat during a long preparation; events wait for its end. False once the link is lost."""
        now = self._now()
        if not self._wire.is_open or self._channel.is_lost:
            return False
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_PAUSE
            self._read()
            self._channel.on_time(now)
            self._flush()
        return not self._channel.is_lost

    # -- the link --------------------------------------------------------------------------------------------------
    def _take(self, event: channel.Event) -> None:
        if isinstance(event, channel.Received):
            self._take_message(event.message)
        elif isinstance(event, channel.BlobChunk):
            if self._supervisor is not None:
                self._supervisor.take_blob(event.blob, event.chunk)
        elif isinstance(event, channel.Synced):
            self._rewind(event.message)
        elif isinstance(event, channel.Lost):
            self._close_wire()
            self._lifeline.lost(self._now())
            if self._supervisor is None or self._supervisor.pod.state is PodState.PREPARED:
                self._is_over, self._keep = True, False  # nothing runs: there is nothing to come back to

    def _close_wire(self) -> None:
        if self._wire.is_open:
            self._wire.close()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)  # while a command's stderr is open, sshd does not pass on that its stdout has ended
            os.close(null)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return  # it went away before we came to it
        if not control.is_ours(sock):
            sock.close()
            return
        fd = sock.detach()
        self._new_wires[fd] = Wire(fd, fd)

    def _read_new_wire(self, fd: int) -> None:
        """Take over a new wire once its controller sends SYNC; until then the old one stays."""
        chunk = self._new_wires[fd].read()
        if chunk is None:
            return
        wire = self._new_wires.pop(fd)
        if not chunk:
            wire.close()
            return
        if chunk.startswith(COMMAND):
            wire.pending += json.dumps(self._carry_out(chunk)).encode("ascii") + b"\n"
            wire.flush()
            wire.close()
            return
        now = self._now()
        self._close_wire()
        self._channel.resume(now, {})
        self._channel.events()  # the old wire's end
        self._lifeline.lost(now)
        self._lifeline.back()
        self._wire = wire
        self._channel.receive(chunk, now)
        self._take_events()

    def _carry_out(self, line: bytes) -> Dict[str, Any]:
        """Carry out a command from the control socket, one line of JSON; returns the answer."""
        try:
            command = json.loads(line.decode("utf-8"))
            kind = command["command"]
            if kind == "stop":
                self._stop("asked for by %s" % command["who"], float(command["grace"]))
            elif kind == "signal" and self._supervisor is not None:
                self._supervisor.pass_signal(str(command["signal"]), command["ranks"])
            elif kind == "detach":
                return {"ok": True, "holder": self._ask_to_detach()}
            else:
                return {"ok": False, "problem": "unknown command"}
        except (ValueError, KeyError, TypeError) as error:
            return {"ok": False, "problem": str(error)}
        return {"ok": True}

    def _ask_to_detach(self) -> str:
        """Ask the controller to detach. Returns who holds the run: "controller", "away" (nobody now) or "detached"."""
        if self._lifeline.orphan_grace is None:
            return "detached"
        if not self._wire.is_open:
            return "away"
        self._send(messages.LET_GO)
        return "controller"

    def _rewind(self, message: Dict[str, Any]) -> None:
        """Send every stream from where the controller has it."""
        if self._supervisor is None:
            return
        offsets: Dict[Tuple[int, int], int] = {}
        for item in message.get("offsets") or []:
            if isinstance(item, list) and len(item) == 3 and all(isinstance(n, int) and n >= 0 for n in item):
                offsets[item[0], item[1]] = item[2]
        for spool, offset, count in self._supervisor.spools.rewind_all(offsets):
            self._send(messages.LOST_OUTPUT, rank=spool.rank, stream=spool.stream, offset=offset, count=count)

    # -- messages --------------------------------------------------------------------------------------------------
    def _take_message(self, message: Dict[str, Any]) -> None:
        problem = messages.problem_of(message)
        kind = message.get("type")
        supervisor = self._supervisor
        if problem:
            self._send(messages.REFUSED, reasons=["message can't be used: %s" % problem])
        elif kind == messages.PREPARE and supervisor is None:
            self._prepare(message)
        elif kind == messages.START and supervisor is not None:
            supervisor.start(message)
        elif kind == messages.STOP and supervisor is not None:
            supervisor.stop(message["grace"])
        elif kind == messages.SIGNAL and supervisor is not None:
            supervisor.pass_signal(message["signal"], message["ranks"])
        elif kind == messages.SKIP and supervisor is not None:
            supervisor.mute(message["streams"])
        elif kind == messages.DETACH:
            self._lifeline.orphan_grace = None
        elif kind == messages.FINISH:
            self._is_over, self._keep = True, message["keep"]

    def _prepare(self, message: Dict[str, Any]) -> None:
        os.write(self._guardian_fd, ("%s %d\n" % (message["run"], message["node_rank"])).encode("ascii"))
        self._lifeline.orphan_grace = message["orphan_grace"]
        self._channel.silence_limit = channel.limit_of(message["silence_limit"])
        try:
            self._supervisor = Supervisor(
                message, self._channel.send, self._guardian, self._root, self._keep_alive, self._starter
            )
        except OSError as error:
            self._send(messages.REFUSED, reasons=[native.outward("run folder can't be made: %s" % error)])

    def _close(self) -> None:
        if self._wire.is_open:
            self._flush()
            self._close_wire()
        for wire in self._new_wires.values():
            wire.close()
        if self._supervisor is not None:
            self._supervisor.close(self._keep)
        if self._root:
            rundir.prune(self._root)
