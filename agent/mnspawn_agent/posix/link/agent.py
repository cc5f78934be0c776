"""The agent's loop: waits for descriptors and deadlines, feeds the machines, does what they say. Decides nothing."""

import json
import os
import selectors
import signal
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from ...core.lifeline import Lifeline
from ...core.pod import PodState
from ...protocol import channel, messages
from ...protocol.version import PROTOCOL
from .. import native
from ..files import control, rundir
from ..run import spawner
from ..run.supervisor import Supervisor
from .wire import Wire

CHUNK = 131072
COMMAND = b"{"  # a command line from the control socket; frames begin with a zero byte
HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
INOTIFY_PAUSE = 0.1  # between two looks at files that nobody reads for now
LONGEST_WAIT = 3600.0  # seconds: epoll takes no more than 24 days, and an orphan_grace may be longer
ALIVE_PAUSE = 0.5  # between two looks at the link while something else is waited for
OUTPUT_PAUSE = 0.004  # between two looks at output, so that a chatty worker makes few frames instead of many


class Agent:
    """Serves one pod over one link at a time.

    Args:
        wire: the link that we were started with.
        guardian: (descriptor that tells the guardian the run, the guardian's pid).
        hello: fields of HELLO.
        root: folder that holds run directories; "" when there is none (the controller then lets us go).
        starter: starts workers: the module spawner, or what does the same.
    """

    def __init__(
        self, wire: Wire, guardian: Tuple[int, int], hello: Dict[str, Any], root: str, starter: Any = spawner
    ) -> None:
        self._now = time.monotonic
        self._wire = wire
        self._guardian_fd, self._guardian = guardian
        self._root = root
        self._starter = starter
        self._channel = channel.Channel(self._now())
        self._lifeline = Lifeline(0.0)
        self._supervisor: Optional[Supervisor] = None
        self._new_wires: Dict[int, Wire] = {}
        self._output_at = 0.0
        self._alive_at = 0.0
        self._inotify_at = 0.0
        self._is_over = False
        self._keep = True
        self._is_told_to_stop = False
        self._selector = selectors.DefaultSelector()
        self._masks: Dict[int, int] = {}
        self._signal_in, signal_out = os.pipe()
        os.set_blocking(self._signal_in, False)
        os.set_blocking(signal_out, False)
        signal.set_wakeup_fd(signal_out)
        for number in HEARD:
            signal.signal(number, self._on_signal)
        self._channel.send(messages.make(messages.HELLO, protocol=PROTOCOL, **hello))
        self._channel.beat()

    def _on_signal(self, number: int, frame: Any) -> None:
        if number != signal.SIGCHLD:
            self._is_told_to_stop = True  # somebody on the host wants us to go: stop the pod and say how it went

    # -- the loop --------------------------------------------------------------------------------------------------
    def run(self) -> int:
        """Serve until there is nothing left to do; the agent's exit status."""
        while not self._is_over:
            self._fill_wire()
            self._watch_descriptors()
            for key, _ in self._selector.select(self._timeout()):
                self._take_ready(key.fd)
            if self._supervisor is not None:
                self._supervisor.reap()
            self._pass_time()
        self._close()
        return 0

    def _take_ready(self, fd: int) -> None:
        supervisor = self._supervisor
        if fd == self._signal_in:
            self._drain_signals()
        elif fd in self._new_wires:
            self._read_new_wire(fd)
        elif self._wire.is_open and fd == self._wire.fd_in:
            self._read_wire()
        elif supervisor is not None and fd == supervisor.spools.inotify:
            supervisor.spools.read_inotify()
            self._inotify_at = self._now() + INOTIFY_PAUSE
        elif supervisor is not None and fd == supervisor.socket.fileno():
            self._accept(supervisor.socket)

    def _timeout(self) -> Optional[float]:
        now = self._now()
        deadlines = [self._channel.deadline, self._lifeline.deadline]
        supervisor = self._supervisor
        if supervisor is not None:
            deadlines.append(supervisor.pod.deadline)
            if now < self._inotify_at and not self._watches_files(supervisor):
                deadlines.append(self._inotify_at)
            if self._wire.is_open:
                if self._wire.has_room and supervisor.spools.can_go(self._channel.output_allowance):
                    deadlines.append(self._output_at)
                if supervisor.spools.poll_interval is not None:
                    deadlines.append(now + supervisor.spools.poll_interval)
                    supervisor.spools.mark_all()
        known = [d for d in deadlines if d is not None]
        return min(LONGEST_WAIT, max(0.0, min(known) - now)) if known else None

    def _watch_descriptors(self) -> None:
        wanted = {self._signal_in: selectors.EVENT_READ}
        if self._wire.is_open:
            wanted[self._wire.fd_in] = selectors.EVENT_READ
            if self._wire.pending:
                wanted[self._wire.fd_out] = wanted.get(self._wire.fd_out, 0) | selectors.EVENT_WRITE
        supervisor = self._supervisor
        if supervisor is not None:
            wanted[supervisor.socket.fileno()] = selectors.EVENT_READ
            if supervisor.spools.inotify is not None and self._watches_files(supervisor):
                wanted[supervisor.spools.inotify] = selectors.EVENT_READ
        for fd in self._new_wires:
            wanted[fd] = selectors.EVENT_READ
        for fd in [fd for fd in self._masks if fd not in wanted]:
            self._forget(fd)
        for fd, mask in wanted.items():
            if fd not in self._masks:
                self._selector.register(fd, mask)
            elif self._masks[fd] != mask:
                self._selector.modify(fd, mask)
            self._masks[fd] = mask

    def _watches_files(self, supervisor: Supervisor) -> bool:
        """Files are looked at when there is nothing else to read; while output waits for credit, only now and then."""
        is_reading = not supervisor.spools.has_more and not supervisor.spools.muted
        return is_reading or self._now() >= self._inotify_at

    def _forget(self, fd: int) -> None:
        """Before a descriptor is closed: its number may come back as another one's."""
        if self._masks.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def _pass_time(self) -> None:
        now = self._now()
        self._channel.on_time(now)
        self._take_events()
        if self._is_told_to_stop:
            self._is_told_to_stop = False
            self._stop("the agent got a signal to end")
        if self._lifeline.on_time(now):
            self._stop("the controller was lost", is_orphaned=True)
        if self._supervisor is not None:
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
        """Called while something is waited for: the link is read, so that it does not count as silent, and beats.

        What has come is taken when the wait is over. False once nobody is at the other end.
        """
        now = self._now()
        if not self._wire.is_open or self._channel.is_lost:
            return False
        if now < self._alive_at:
            return True
        self._alive_at = now + ALIVE_PAUSE
        chunk = self._wire.read()
        if chunk is not None:
            self._channel.receive(chunk, now)
        self._channel.on_time(now)
        self._wire.pending += self._channel.data_to_send(now)
        self._wire.flush()  # that the peer is gone is seen by the loop
        return not self._channel.is_lost

    # -- the link --------------------------------------------------------------------------------------------------
    def _fill_wire(self) -> None:
        """Put what is to be said on the wire: control first, output as far as credit and room allow."""
        if not self._wire.is_open:
            return
        now = self._now()
        if self._supervisor is not None and now >= self._output_at and self._fill_output(self._supervisor, now):
            self._output_at = now + OUTPUT_PAUSE if len(self._wire.pending) < CHUNK else now
        self._wire.pending += self._channel.data_to_send(now)
        if not self._wire.flush():
            self._channel.receive(b"", now)
            self._take_events()

    def _fill_output(self, supervisor: Supervisor, now: float) -> bool:
        has_sent = False
        while self._wire.has_room:
            found = supervisor.spools.next_chunk(CHUNK, self._channel.output_allowance)
            if found is None:
                break
            spool, offset, chunk = found
            self._channel.send_output(spool.rank, spool.stream, offset, chunk, time.time())
            self._wire.pending += self._channel.data_to_send(now)
            has_sent = True
        return has_sent

    def _read_wire(self) -> None:
        chunk = self._wire.read()
        if chunk is not None:
            self._channel.receive(chunk, self._now())
            self._take_events()

    def _take_events(self) -> None:
        for event in self._channel.events():
            if isinstance(event, channel.Received):
                self._take_message(event.message)
            elif isinstance(event, channel.BlobChunk):
                if self._supervisor is not None:
                    self._supervisor.take_blob(event.blob, event.chunk)
            elif isinstance(event, channel.Synced):
                self._rewind(event.message)
            elif isinstance(event, channel.Lost):
                self._take_loss()

    def _take_loss(self) -> None:
        self._close_wire()
        self._lifeline.lost(self._now())
        if self._supervisor is None or self._supervisor.pod.state is PodState.PREPARED:
            self._is_over, self._keep = True, False  # nothing runs: there is nothing to come back to

    def _close_wire(self) -> None:
        if self._wire.is_open:
            self._forget(self._wire.fd_in)
            self._forget(self._wire.fd_out)
            self._wire.close()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)  # while a command's stderr is open, sshd does not say that its stdout has ended
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
        """A controller that comes back speaks first (SYNC); until then the old wire stays."""
        chunk = self._new_wires[fd].read()
        if chunk is None:
            return
        wire = self._new_wires.pop(fd)
        self._forget(fd)
        if not chunk:
            wire.close()
            return
        if chunk.startswith(COMMAND):
            wire.pending += self._obey(chunk)
            wire.flush()
            wire.close()
            return
        now = self._now()
        self._close_wire()
        self._channel.resume(now, {})
        self._channel.events()  # that the old wire ended is no news
        self._lifeline.lost(now)
        self._lifeline.back()
        self._wire = wire
        self._channel.receive(chunk, now)
        self._take_events()

    def _obey(self, line: bytes) -> bytes:
        """A command from the control socket, one JSON line; gives the answer."""
        try:
            command = json.loads(line.decode("utf-8"))
            kind = command["command"]
            if kind == "stop":
                self._stop("asked for by %s" % command["who"], float(command["grace"]))
            elif kind == "signal" and self._supervisor is not None:
                self._supervisor.pass_signal(str(command["signal"]), command["ranks"])
            elif kind == "detach":
                return json.dumps({"ok": True, "holder": self._let_go()}).encode("ascii") + b"\n"
            else:
                return b'{"ok": false, "problem": "unknown command"}\n'
        except (ValueError, KeyError, TypeError) as error:
            return json.dumps({"ok": False, "problem": str(error)}).encode("ascii") + b"\n"
        return b'{"ok": true}\n'

    def _let_go(self) -> str:
        """Ask the controller to detach; says who holds the run: a controller, nobody for now, or nobody any more."""
        if self._lifeline.orphan_grace is None:
            return "detached"
        if not self._wire.is_open:
            return "away"
        self._channel.send(messages.make(messages.LET_GO))
        return "controller"

    def _rewind(self, message: Dict[str, Any]) -> None:
        """Go on with every stream where the controller has it."""
        if self._supervisor is None:
            return
        offsets: Dict[Tuple[int, int], int] = {}
        for item in message.get("offsets") or []:
            if isinstance(item, list) and len(item) == 3 and all(isinstance(n, int) and n >= 0 for n in item):
                offsets[item[0], item[1]] = item[2]
        for spool, offset, count in self._supervisor.spools.rewind_all(offsets):
            self._channel.send(
                messages.make(messages.LOST_OUTPUT, rank=spool.rank, stream=spool.stream, offset=offset, count=count)
            )

    # -- messages --------------------------------------------------------------------------------------------------
    def _take_message(self, message: Dict[str, Any]) -> None:
        problem = messages.problem_of(message)
        kind = message.get("type")
        supervisor = self._supervisor
        if problem:
            self._refuse(["message can't be used: %s" % problem])
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

    def _refuse(self, reasons: List[str]) -> None:
        self._channel.send(messages.make(messages.REFUSED, reasons=reasons))

    def _prepare(self, message: Dict[str, Any]) -> None:
        os.write(self._guardian_fd, ("%s %d\n" % (message["run"], message["node_rank"])).encode("ascii"))
        self._lifeline.orphan_grace = message["orphan_grace"]
        if not message["minds_silence"]:
            self._channel.silence_limit = float("inf")
        try:
            self._supervisor = Supervisor(
                message, self._channel.send, self._guardian, self._root, self._keep_alive, self._starter
            )
        except OSError as error:
            self._refuse([native.outward("run folder can't be made: %s" % error)])

    def _close(self) -> None:
        if self._wire.is_open:
            self._wire.pending += self._channel.data_to_send(self._now())
            self._wire.flush()
            self._close_wire()
        for wire in self._new_wires.values():
            wire.close()
        if self._supervisor is not None:
            self._supervisor.close(self._keep)
        if self._root:
            rundir.prune(self._root)
