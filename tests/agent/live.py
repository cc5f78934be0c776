"""The real agent as sshd starts it: the stub through a login shell, bytes over pipes. Keeps a place per account."""

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from mnspawn._version import __version__
from mnspawn.bootstrap import bundle, stub
from mnspawn.bootstrap.stub import Handshake
from mnspawn.core.agent_events import Drained, Hello, Output, Prepared, Refused, SessionEvent
from mnspawn.core.message_check import Speaker
from mnspawn.core.session import HostSession
from mnspawn.engine.request import RunRequest
from mnspawn.engine.run.prepare import Preparation, load_files, start_message
from mnspawn.plan.launch_plan import Program
from mnspawn_agent.protocol import messages
from mnspawn_inventory import Host
from tests.support import PATIENCE

E = TypeVar("E")

DEADLINE = PATIENCE
ENDS_ALONE = 0.5  # seconds before an agent is told to end
WINDOW = 1 << 20
SPEAKERS = {"watch": Speaker.WATCHER, "tail": Speaker.TAILER}
RUN = f"live-{secrets.token_hex(4)}"  # a sweep ends what carries it, on the whole machine


@dataclass
class Account:
    """What a host offers to somebody who logs in.

    Attributes:
        python: interpreter that is asked for; None looks for the usual names in PATH.
        inside: command that everything runs in (a mount namespace, say).
    """

    home: Path
    python: Path | None = None
    shell: str = "/bin/sh"
    env: dict[str, str] = field(default_factory=dict)
    path: str = "/usr/bin:/bin"
    inside: Sequence[str] = ()

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": self.path, **self.env}

    @property
    def cache(self) -> Path:
        """The folder of the agent's archive."""
        return self.home / ".cache" / "mnspawn" / bundle.build().digest

    @property
    def pod(self) -> Path:
        """The run folder."""
        return self.home / ".local" / "state" / "mnspawn" / "runs" / RUN / "0"


class Live:
    """One wire to an agent. `with Live(account) as agent:` ends it, however the test goes.

    Args:
        words: the agent's mode and its arguments.
        session: to go on with; None begins one.
        gives_archive: False leaves it to the test to answer a host that needs the archive.
    """

    def __init__(
        self,
        account: Account,
        words: tuple[str, ...] = ("serve",),
        session: HostSession | None = None,
        gives_archive: bool = True,
    ) -> None:
        self.account = account
        self.session = session or HostSession(time.monotonic(), WINDOW, speaker=SPEAKERS.get(words[0], Speaker.AGENT))
        self.events: list[SessionEvent] = []
        self._request: RunRequest | None = None
        archive = bundle.build()
        python = None if account.python is None else str(account.python)
        self.handshake = Handshake("here", stub.make_nonce(), python)
        line = stub.command_line(archive, self.handshake.nonce, __version__, words, python)
        self._stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*account.inside, account.shell, "-c", line], env=account.environment(), cwd="/", bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True,
        )  # fmt: skip
        self._first = b""
        self.before_answer: Callable[[], None] = lambda: None  # called when a run was asked for
        try:
            rest = None
            while rest is None:
                chunk = self.read()
                if not chunk:
                    raise self.handshake.explain_end(self.process.wait(DEADLINE), self.stderr)
                rest = self.handshake.feed(chunk)
            if self.handshake.answer == "need" and gives_archive:
                self.give_archive()
            self._first = rest
        except BaseException:
            self._end()
            raise

    # -- bytes
    def read(self, timeout: float = DEADLINE) -> bytes:
        """The next bytes, b"" at the end."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            raise AssertionError(f"the agent said nothing for {timeout} s; stderr: {self.stderr!r}; {self.events}")
        return os.read(self.process.stdout.fileno(), 65536)

    def read_line(self) -> bytes:
        """What a mode other than `serve` answers first."""
        while b"\n" not in self._first:
            chunk = self.read()
            assert chunk, self.stderr
            self._first += chunk
        line, _, self._first = self._first.partition(b"\n")
        return line

    def read_up_to(self, text: bytes) -> None:
        """Wait until a text is in what came; all of it is still there for the session."""
        while text not in self._first:
            chunk = self.read()
            assert chunk, self.stderr
            self._first += chunk

    def write(self, chunk: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(chunk)

    def give_archive(self) -> None:
        self.write(bundle.build().content)

    @property
    def stderr(self) -> bytes:
        self._stderr.seek(0)
        return self._stderr.read()

    # -- the session
    def send(self, kind: str, **fields: Any) -> None:
        self.session.send(messages.make(kind, **fields))
        self._flush()

    def _flush(self) -> None:
        if chunk := self.session.data_to_send(time.monotonic()):
            try:
                self.write(chunk)
            except BrokenPipeError:
                pass  # it has gone: what it said before can still be read

    def until(self, condition: Callable[[SessionEvent], object], timeout: float = DEADLINE) -> SessionEvent:
        """Serve the wire until an event is as wanted (one that came before counts); gives it."""
        deadline = time.monotonic() + timeout
        seen = 0
        while True:
            for event in self.events[seen:]:
                if condition(event):
                    return event
            seen = len(self.events)
            self._flush()
            chunk, self._first = self._first or self.read(max(0.0, deadline - time.monotonic())), b""
            assert chunk, f"the link ended; stderr: {self.stderr.decode(errors='replace')}"
            self.session.receive(chunk, time.monotonic())
            for event in self.session.events():
                self.events.append(event)
                if isinstance(event, Output):
                    self.session.consumed(len(event.chunk))

    def hear(self) -> None:
        """Take what comes next, whatever it is."""
        self.session.receive(self.read(), time.monotonic())

    def serve_bytes(self, count: int) -> None:
        """Serve the wire for that many bytes of the agent's and no more."""
        while count:
            self._flush()
            chunk, self._first = self._first or self.read(), b""
            assert chunk, self.stderr
            self.session.receive(chunk[:count], time.monotonic())
            self.events += self.session.events()
            count -= min(count, len(chunk))

    def until_a(self, kind: type[E]) -> E:
        event = self.until(lambda event: isinstance(event, kind))
        assert isinstance(event, kind)
        return event

    def until_said(self, text: bytes, rank: int = 0, stream: int = 1) -> None:
        self.until(lambda _: text in self.text(rank, stream))

    def until_drained(self, *ranks: int) -> dict[int, int | None]:
        """Wait until these ranks have ended and all their output is here; gives their codes."""
        for rank in ranks:
            self.until(lambda event, rank=rank: isinstance(event, Drained) and event.exited.rank == rank)  # type: ignore[misc]
        return {event.exited.rank: event.exited.end.code for event in self.events if isinstance(event, Drained)}

    def text(self, rank: int = 0, stream: int = 1) -> bytes:
        return b"".join(e.chunk for e in self.events if isinstance(e, Output) and (e.rank, e.stream) == (rank, stream))

    # -- a run
    def hello(self) -> Mapping[str, Any]:
        return self.until_a(Hello).facts.describe()

    def prepare(self, *argv: str, **options: Any) -> Prepared:
        """Ask for a run of a command (or of `program=`); gives what was answered."""
        program = options.pop("program", None) or Program("command", argv[0], argv[1:])
        hello = self.until_a(Hello)
        run = options.pop("run", RUN)
        host = Host(name="here")
        self._request = RunRequest(
            **{
                "program": program,
                "hosts": (host,),
                "nproc": 1,
                "contracts": (),
                "grace": 60.0,
                "orphan_grace": 2.0,
                "workdir": "/",
                **options,
            }
        )
        self._preparation = Preparation(self._request, run, (host,), (hello,))
        self.session.send(self._preparation.message(0, load_files(self._request)))
        self._flush()
        self.before_answer()
        answer = self.until(lambda event: isinstance(event, Prepared | Refused))
        assert isinstance(answer, Prepared), answer
        return answer

    def start(self, answer: Prepared) -> None:
        launch = self._preparation.complete([answer])
        self.session.send(start_message(launch.pods[0]))
        self._flush()

    def begin(self, *argv: str, **options: Any) -> Prepared:
        """prepare and start in one."""
        answer = self.prepare(*argv, **options)
        self.start(answer)
        return answer

    def finish(self, keep: bool = True) -> int:
        """Let the agent go; gives its exit status."""
        self.send(messages.FINISH, keep=keep)
        while chunk := self.read():  # on a new wire nothing is sent before the agent has said what it has
            self.session.receive(chunk, time.monotonic())
            self._flush()
        return self.wait()

    # -- the end
    @property
    def pid(self) -> int:
        """The agent's own pid; the process that the login shell became is its guardian."""
        return int(self.hello()["pid"])

    def cut(self) -> None:
        """Lose the wire, as sshd does when a connection breaks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.session.receive(b"", time.monotonic())
        self.session.events()

    def come_back(self) -> "Live":
        """A new wire to the same agent, on which the session goes on."""
        again = Live(self.account, ("attach", RUN, "0"), self.session)
        assert again.read_line() == b"here"
        again.events = self.events
        self.session.resume(time.monotonic())
        return again

    def wait(self, timeout: float = DEADLINE) -> int:
        return self.process.wait(timeout)

    def _end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass  # it ended before it had read all
        self._stderr.close()
        if self.process.poll() is None:
            try:
                self.process.wait(ENDS_ALONE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGTERM)  # guardians ignore it, agents stop their workers
                try:
                    self.process.wait(DEADLINE)
                except subprocess.TimeoutExpired:
                    os.killpg(self.process.pid, signal.SIGKILL)
                    self.process.wait()

    def __enter__(self) -> "Live":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(f"the agent's stderr: {self.stderr!r}\n")
        self._end()


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
