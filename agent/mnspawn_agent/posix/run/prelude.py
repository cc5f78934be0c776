"""Runs a host's prelude: once before the start, to see what it leaves, then before every worker."""

import fcntl
import os
import select
import signal
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from .. import libc
from . import spawner
from .programs import NAMES, find

LIMIT = 60.0  # seconds; `conda activate` from a slow network file system takes ten or twenty
LOOK = 0.05  # seconds between two looks whether the shell has ended: what it leaves running keeps its pipes open
KEPT = 16384  # bytes of what it prints: enough for a traceback of conda's
SHOWN = 20  # lines of that
MOST = 8 << 20  # bytes of an environment; execve(2) takes 6 MiB
PIECE = 65536
MOST_PIECES = 16  # Linux lets users have pipes of 1 MiB
LINES = "MNSPAWN_PRELUDE_LINES"  # carries the prelude into its shell: never on a command line, which everybody can read

# The prelude finds no arguments, no input, and none of our variables in the environment.
# In bash only commands of the prelude itself end it when they fail: scripts that it sources were often written
# without `set -e` in mind. A function's or a sourced file's own commands have a depth in BASH_SOURCE.
# All that stands before the prelude is on one line, so that shells number the prelude's lines as its author does.
BASH = """\
mnspawn_argv=("$@"); set --; mnspawn_lines=$%(lines)s; unset %(lines)s; \
mnspawn_failed() { [ "$2" -gt 0 ] || exit "$1"; }; %(on_end)s\
trap 'mnspawn_failed "$?" "${#BASH_SOURCE[@]}"' ERR; eval "$mnspawn_lines" </dev/null
trap - EXIT ERR
exec "${mnspawn_argv[@]}"
"""
SH = """\
mnspawn_lines=$%(lines)s; unset %(lines)s; %(on_end)s\
mnspawn_prelude() { set -e; eval "$mnspawn_lines" </dev/null; set +e; }; mnspawn_prelude
trap - EXIT
exec "$@"
"""
ON_END = """trap 'echo "mnspawn: the prelude ended with status $?: the program was not started" >&2' EXIT; """

# A last command that succeeds, so that the status of `[ -f x ] && . x` is none of the prelude.
END = "\n:"

NOT_FOUND = 127  # a shell's status for a command that is not there
LOGIN = "functions such as module or conda may need `source /etc/profile`, or conda's profile.d/conda.sh, first"

# What the last command of the rehearsal does: the folder, a NUL, and the environment as the kernel has it.
REPORT = (
    'exec >/proc/self/fd/%d; pwd -P; printf "\\000"; '
    "for p in cat /bin/cat /usr/bin/cat; do "
    'command -v $p >/dev/null 2>&1 && exec $p /proc/self/environ; done; echo "no cat in PATH" >&2; exit 127'
)


class PreludeFailed(Exception):
    """The prelude ended early or not at all; the text has the reason and its last output."""


class Left(NamedTuple):
    """Environment and folder after a prelude."""

    environ: Dict[str, str]
    folder: str


def wrap(lines: str, argv: List[str], env: Dict[str, str], on_end: str = ON_END) -> Tuple[List[str], Dict[str, str]]:
    """argv and environment of a shell that runs the prelude and then becomes the program.

    The shell is bash where there is one, whatever the account's login shell: people write `source` and use functions
    such as `module`.
    """
    bash = find("bash", env.get("PATH", os.defpath), "/")
    text = (BASH if bash else SH) % {"lines": LINES, "on_end": on_end}
    return [bash or "/bin/sh", "-c", text, "prelude"] + argv, dict(env, **{LINES: lines + END})


def rehearse(
    lines: str,
    env: Dict[str, str],
    folder: str,
    meanwhile: Callable[[], object],
    end_all: Callable[[], object],
    limit: float = LIMIT,
) -> Left:
    """Run a prelude once, without a program.

    Args:
        folder: to begin in.
        meanwhile: called now and then; returns False to give up.
        end_all: ends what the prelude has left running outside its process group.
        limit: seconds.

    Raises:
        PreludeFailed: it ended early or not at all.
    """
    printed_in, printed_out = os.pipe()
    left_in, left_out = os.pipe()
    os.set_inheritable(left_out, True)
    for fd in (printed_in, left_in):  # read without waiting once the shell has ended
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)  # so that end_all finds what it leaves
    argv, given = wrap(lines, ["/bin/sh", "-c", REPORT % left_out], env, on_end="")
    printed, left = Part(KEPT), Part(MOST)
    status: Optional[int] = None
    pid = 0
    try:
        pid = spawner.spawn(argv, given, folder, printed_out, printed_out)
        os.close(printed_out)
        os.close(left_out)
        printed_out = left_out = -1
        status = _follow(pid, {printed_in: printed, left_in: left}, meanwhile, time.monotonic() + limit)
    except (OSError, spawner.SpawnError) as error:
        raise PreludeFailed("the prelude's shell could not be started: %s" % error)
    finally:
        if pid:
            _end(pid, status is None)
            end_all()
        for fd in (printed_in, printed_out, left_in, left_out):
            if fd >= 0:
                os.close(fd)
    if status is None:
        raise PreludeFailed("the prelude did not end within %.0f s" % limit + _shown(printed.text))
    where, nul, environ = bytes(left.text).partition(b"\n\0")
    if status != 0 or not nul:
        advice = _advice(status, bool(printed.text))
        raise PreludeFailed("the prelude %s" % _how(status) + _shown(printed.text) + advice)
    pairs = [entry.partition(b"=") for entry in environ.split(b"\0") if entry]
    after = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    _check_activated(env, after)
    return Left(after, os.fsdecode(where) or folder)


def _check_activated(before: Dict[str, str], after: Dict[str, str]) -> None:
    """A virtual environment that was moved, or whose interpreter is gone, leaves PATH to lead to another one."""
    folder = after.get("VIRTUAL_ENV", "")
    if not os.path.isabs(folder) or folder == before.get("VIRTUAL_ENV"):
        return
    if not any(find(os.path.join(folder, "bin", name), "", "/") for name in NAMES):
        raise PreludeFailed("the prelude activates %s, which has no Python that can be executed in its bin" % folder)


def _follow(pid: int, parts: Dict[int, "Part"], meanwhile: Callable[[], object], deadline: float) -> Optional[int]:
    """Read what comes until the shell has ended; its wait status, None when it takes too long."""
    poll = select.poll()
    for fd in parts:
        poll.register(fd, select.POLLIN)
    while time.monotonic() < deadline and meanwhile() is not False:
        ended, status = os.waitpid(pid, os.WNOHANG)
        for fd, _ in poll.poll(0 if ended else LOOK * 1000):
            if not parts[fd].take(fd):
                poll.unregister(fd)
        if ended:
            for fd, part in parts.items():
                part.take_rest(fd)
            return status
    return None


class Part:
    """What comes out of one pipe: its end, or all of it."""

    def __init__(self, kept: int) -> None:
        self.text = bytearray()
        self._kept = kept

    def take(self, fd: int) -> bool:
        """Read a piece; False when no more will come."""
        chunk = os.read(fd, PIECE)
        self.text += chunk
        del self.text[: -self._kept]
        return bool(chunk)

    def take_rest(self, fd: int) -> None:
        """What is in a pipe whose writer has ended: no more than a pipe holds, since others may still write into it."""
        try:
            for _ in range(MOST_PIECES):
                if not self.take(fd):
                    return
        except BlockingIOError:
            pass  # that was all


def _end(pid: int, is_running: bool) -> None:
    """End the shell and what is in its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass  # nothing is left of it
    if is_running:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # it was reaped while it was looked at


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "was ended by signal %d" % os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        return "ended with status %d" % os.WEXITSTATUS(status)
    return "left with status 0 before its end (exit or exec): no program would be started"


def _shown(printed: bytearray) -> str:
    """What it printed, on lines of its own."""
    lines = [line.rstrip() for line in bytes(printed).decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n%s" % "\n".join(lines[-SHOWN:]) if lines else " and printed nothing"


def _advice(status: int, has_spoken: bool) -> str:
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) and not has_spoken:
        return "\na command in it failed: write `|| true` after one whose failure does not matter"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == NOT_FOUND:
        return "\nit runs in bash (sh where there is none), not in a login shell: %s" % LOGIN
    return ""
