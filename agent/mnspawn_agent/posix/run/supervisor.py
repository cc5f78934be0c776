"""Drives one pod: prepares, spawns, reaps, signals, sweeps, reports to the controller. Decisions are core/pod.py's."""

import errno
import os
import time
from typing import Any, Callable, Dict, List, Optional, Set

from ...core.pod import Ended, Finished, PodMachine, PodState, Sweep
from ...core.worker import SendSignal, WorkerState
from ...protocol import messages
from ...protocol.exits import from_wait_status
from .. import libc, native
from ..files import control, rundir
from ..files.marks import MarkWriter
from ..files.spool import RESULT, STDERR, STREAMS, Spool, Spools, tail_of
from . import forkserver, probe, reaper, spawner, torch_files
from .prepare import Preparation, without

Send = Callable[[Dict[str, Any]], None]
Meanwhile = Callable[[], object]

PASSED_ON = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGTERM", "SIGCONT", "SIGSTOP", "SIGKILL", "SIGQUIT")
RESULT_VARIABLE = "MNSPAWN_RESULT_FILE"  # where a shipped function's worker appends what it returns


class Supervisor:
    """The pod of one run on this host.

    Args:
        send: queues a message to the controller.
        guardian: pid of the guardian, which a sweep spares.
        root: folder that holds run directories.
        meanwhile: called now and then while something takes long.
        starter: the module spawner, or an object with its functions `spawn` and `settle`.
    """

    def __init__(
        self, message: Dict[str, Any], send: Send, guardian: int, root: str, meanwhile: Meanwhile, starter: Any
    ) -> None:
        self._now = time.monotonic
        self._send = send
        self._guardian = guardian
        self._starter = starter
        self._meanwhile = meanwhile
        self._prepared = Preparation(message, root, meanwhile, {guardian})
        self.socket = control.listen(self._prepared.folder.path)
        self.spools = Spools()
        self.pod = PodMachine(self._prepared.ranks, message["grace"], message["stops_on_failure"])
        self.grace = float(message["grace"])
        self._lock = self._prepared.folder.lock()
        self.run = self._prepared.run
        self.node_rank = self._prepared.node_rank
        about = message["about"]
        self._prepared.folder.write_plan(about, self.run, self.node_rank, self._prepared.ranks, self.grace)
        self._is_disk_full = False
        self._ranks_by_pid: Dict[int, int] = {}
        self._forks: Optional[forkserver.ForkServer] = None  # until it has made the workers
        self._errors: Dict[int, str] = {}
        self._recorded = torch_files.Recorded()
        self._stopped_for: Optional[str] = None  # "asked" by somebody on the host, or "orphaned"
        for notice in self._prepared.notices:
            self._notice(notice)
        if self._prepared.missing and not self._prepared.reasons:
            send(messages.make(messages.NEED, blobs=sorted(self._prepared.missing)))
        else:
            self._answer()

    def report(self, kind: str, **fields: Any) -> None:
        """Send a message to the controller and add it to the journal."""
        message = messages.make(kind, **fields)
        try:
            self._prepared.folder.append_journal(message)
        except OSError as error:  # reported with the next exit; the pod goes on, even without its folder
            self._is_disk_full = self._is_disk_full or error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._send(message)

    # -- before the start ------------------------------------------------------------------------------------------
    def take_blob(self, blob: int, chunk: bytes) -> None:
        """Store a piece of a missing file."""
        if self._prepared.missing:
            self._prepared.take_blob(blob, chunk)
            if not self._prepared.missing:
                self._answer()

    def _answer(self) -> None:
        prepared = self._prepared
        if prepared.reasons:
            self._send(messages.make(messages.REFUSED, reasons=native.outward(prepared.reasons)))
            return
        self._write_status("prepared")
        self.report(
            messages.PREPARED,
            ports=prepared.ports,
            extra_ports=prepared.extra_ports,
            run_dir=native.outward(prepared.folder.path),
            workdir=native.outward(prepared.start_folder),
            python=native.outward(prepared.python),
            files=native.outward(prepared.files),
            reach=probe.probe([(address, port) for address, port in prepared.message["probes"]]),
            at=self._now(),
        )

    # -- workers --------------------------------------------------------------------------------------------------
    def start(self, message: Dict[str, Any]) -> None:
        """Release the ports and start every worker."""
        prepared, pod = self._prepared, self.pod
        if pod.state is not PodState.PREPARED or prepared.reasons:
            return  # stopped meanwhile, or refused
        pod.start()
        for name, content in message["files"]:
            try:
                prepared.folder.write(native.inward(name), content.encode("utf-8", "surrogateescape"))
            except OSError as error:
                self._notice("%s can't be written: %s" % (name, error))
        base = without(os.environ, native.inward(message["unset"]))
        base.update(native.inward(message["env"]))
        base.update(reaper.tags_of(prepared.run, prepared.node_rank))
        for problem in torch_files.lock_problems(base):
            self._notice(problem)
        prepared.held.release()
        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
        known = [
            t
            for t in native.inward(message["workers"])
            if t["rank"] in pod.workers and not pod.workers[t["rank"]].has_ended
        ]
        self._recorded.expect(known, prepared.folder.path)
        argv = native.inward(message["argv"])
        if message["is_forked"] and known:
            self._fork(known, argv, base)
        else:
            for worker in known:
                self._spawn(worker["rank"], argv, dict(base, **worker["env"]))
                self._meanwhile()
            self._starter.settle()
        pod.settle(self._now())
        self._act()
        self._write_status(pod.state.value)

    def _spawn(self, rank: int, argv: List[str], env: Dict[str, str]) -> None:
        outputs: List[int] = []
        try:
            paths = self._open_streams(rank, outputs)
            if len(paths) >= RESULT:
                env = dict(env, **{RESULT_VARIABLE: paths[-1]})
            pid = self._starter.spawn(*self._prepared.command_of(argv, env), outputs[0], outputs[1])
        except (OSError, spawner.SpawnError) as error:
            self._note_not_started(rank, str(error))
        else:
            self._note_started(rank, pid)
        finally:
            for fd in outputs:
                os.close(fd)

    def _open_streams(self, rank: int, outputs: List[int]) -> List[str]:
        """Make a rank's spool files; returns their paths and adds their descriptors to `outputs`. Raises OSError."""
        message, paths = self._prepared.message, []
        for stream, suffix in STREAMS if message["has_results"] else STREAMS[:2]:
            path, fd = self._prepared.folder.open_stream(rank, suffix)
            outputs.append(fd)
            if stream == RESULT:
                self.spools.add(Spool(rank, stream, path))  # without time stamps: results need none
            else:
                self.spools.add(Spool(rank, stream, path, message["log_cap"], MarkWriter(path)))
            paths.append(path)
        return paths

    def _note_started(self, rank: int, pid: int) -> None:
        now = self._now()
        self.pod.spawned(rank, pid, now)
        self._ranks_by_pid[pid] = rank
        self.report(messages.STARTED, rank=rank, pid=pid, at=now)

    def _note_not_started(self, rank: int, error: str) -> None:
        self.pod.spawn_failed(rank)
        self._errors[rank] = error = native.outward(error)
        self.report(messages.NOT_STARTED, rank=rank, at=self._now(), error=error)

    def _fork(self, workers: List[Dict[str, Any]], argv: List[str], base: Dict[str, str]) -> None:
        """Start one interpreter that forks all workers; they count as started once it has."""
        server = forkserver.ForkServer(self._prepared.folder.path)
        outputs: List[int] = []
        try:
            for worker in workers:
                paths = self._open_streams(worker["rank"], outputs)
                own = {RESULT_VARIABLE: paths[-1]} if len(paths) >= RESULT else {}
                server.add(worker["rank"], dict(worker["env"], **own), paths)
            # what it prints while it imports precedes the first worker's own output
            server.start(*self._prepared.command_of(argv + [forkserver.ARGUMENT], base), outputs[0], outputs[1])
        except (OSError, spawner.SpawnError) as error:
            server.close()
            for worker in workers:
                self._note_not_started(worker["rank"], str(error))
        else:
            self._forks = server
        finally:
            for fd in outputs:
                os.close(fd)

    def _take_forks(self, server: forkserver.ForkServer, ended: Dict[int, int]) -> Dict[int, int]:
        """Once the server has ended: note the workers' pids; returns the exits that were reaped before."""
        if not server.take(ended):
            return {}
        self._forks = None
        made, how, kept = server.collect()
        for rank, pid in made:
            if self.pod.workers[rank].state is WorkerState.PENDING:  # else stopped meanwhile: the sweep ends it
                self._note_started(rank, pid)
        for rank, worker in self.pod.workers.items():
            if worker.state is WorkerState.PENDING:
                self._note_not_started(rank, "the process that was to become it ended before, with %s" % how)
        return kept

    def reap(self) -> None:
        """Reap everything that has ended."""
        if not self._ranks_by_pid and self._forks is None:
            return
        ended = dict(reaper.reap())
        if self._forks is not None:
            ended = self._take_forks(self._forks, ended)
        for pid, status in ended.items():
            rank = self._ranks_by_pid.pop(pid, None)
            if rank is not None:
                self.pod.exited(rank, from_wait_status(status))
        self.pod.settle(self._now())
        self._act()

    def stop(self, grace: float) -> None:
        """Begin to stop the pod, or hurry."""
        self.reap()  # deaths that came first are not ours
        self.pod.stop(self._now(), grace)
        self._act()

    def stop_for(self, reason: str, grace: float, is_orphaned: bool = False) -> None:
        """Stop at the request of somebody on the host, after reporting the reason."""
        if self.pod.state is not PodState.DONE:
            self.report(messages.STOPPING, reason=reason, grace=grace, is_orphaned=is_orphaned)
            self._stopped_for = self._stopped_for or ("orphaned" if is_orphaned else "asked")
        self.stop(grace)

    def pass_signal(self, name: str, ranks: Optional[List[int]]) -> None:
        """Send a signal to the groups of workers that run."""
        if name not in PASSED_ON:
            self._notice("signal %s is not passed on" % name)
            return
        for rank, worker in self.pod.workers.items():
            is_meant = worker.pid and not worker.has_ended and (ranks is None or rank in ranks)
            if is_meant and not reaper.send_to_group(worker.pid, name):
                for pid, reason in reaper.why_alive([worker.pid]):
                    self._notice("rank %d (pid %d) %s" % (rank, pid, reason))

    def on_time(self, now: float) -> None:
        self.pod.on_time(now)
        self._act()

    def _act(self) -> None:
        """Carry out what the machine decides."""
        actions = self.pod.actions()
        while actions:
            for action in actions:
                if isinstance(action, SendSignal):
                    reaper.send_to_group(action.pgid, action.signal)
                elif isinstance(action, Ended):
                    self._report_exit(action.rank)
                elif isinstance(action, Sweep):
                    self._sweep(action.signal)
                elif isinstance(action, Finished):
                    self._report_done(action)
            actions = self.pod.actions()

    def _sweep(self, signal_name: str) -> None:
        reaper.reap()
        refused: Set[int] = set()
        if signal_name == "SIGKILL":
            left, refused = reaper.kill_all(self.run, self.node_rank, {self._guardian})
        else:
            left = reaper.find_all(self.run, self.node_rank, {self._guardian})
            if signal_name:
                reaper.send(left, signal_name)
        self.pod.swept(left, self._now(), refused)

    # -- reports ---------------------------------------------------------------------------------------------------
    def _report_exit(self, rank: int) -> None:
        worker = self.pod.workers[rank]
        now = self._now()
        raised, problem = self._recorded.of(rank) if worker.code and not worker.was_stopped else (None, "")
        if problem:
            self._notice(problem)
        spools = self.spools.of(rank)
        for spool in spools:
            self.spools.queue(spool)
        self.report(
            messages.EXITED,
            rank=rank,
            at=now,
            seconds=now - worker.started_at,
            **worker.end(),
            is_disk_full=self._is_disk_full or self._prepared.folder.is_full(),
            sizes=[[spool.stream, spool.size] for spool in spools],
            tail=[line for spool in spools if spool.stream == STDERR for line in tail_of(spool.path)],
            raised=raised,
        )
        self._leave_output(rank)

    def mute(self, streams: List[int]) -> None:
        """Leave these streams in their files: the controller no longer reads them."""
        self.spools.muted = self.spools.muted | frozenset(streams)
        if self.pod.state is PodState.DONE:
            self._leave_output(None)

    def _leave_output(self, rank: Optional[int]) -> None:
        for spool, offset, count in self.spools.leave(rank):
            self._send(messages.make(messages.LEFT, rank=spool.rank, stream=spool.stream, offset=offset, count=count))

    def _report_done(self, finished: Finished) -> None:
        self._leave_output(None)
        self.spools.queue_all()
        leftovers = reaper.why_alive(finished.leftovers)
        self._write_status("done", leftovers=leftovers)
        self.report(
            messages.DONE,
            leftovers=[list(leftover) for leftover in leftovers],
            swept=finished.swept,
            sizes=self.spools.sizes(),
            at=self._now(),
        )

    def _write_status(self, state: str, **more: Any) -> None:
        workers = [
            dict(worker.status(), error=self._errors.get(rank)) for rank, worker in sorted(self.pod.workers.items())
        ]
        status = dict(
            more,
            run=self.run,
            node_rank=self.node_rank,
            state=state,
            agent=os.getpid(),
            time=time.time(),
            stop=self._stopped_for,
            trainers=workers,
        )
        try:
            self._prepared.folder.write_status(status)
        except OSError as error:  # a full disk must not stop the pod
            self._notice("status can't be written: %s" % error)

    def _notice(self, text: str) -> None:
        self.report(messages.NOTICE, text=native.outward(text))

    def close(self, keep: bool) -> None:
        """Release everything; the run folder stays if `keep`."""
        if self._forks is not None:
            self._forks.close()
        self.spools.close()
        self._prepared.held.close()
        self.socket.close()
        os.close(self._lock)
        if keep:
            try:
                os.unlink(self._prepared.folder.join(control.SOCKET_NAME))
            except OSError:
                pass  # the folder was removed by hand
        else:
            rundir.remove(self._prepared.folder.path)
