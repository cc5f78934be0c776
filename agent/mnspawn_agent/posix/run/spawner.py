"""Starts one worker: own session, dies with the agent, output into its files. Does not wait for it."""

import errno
import os
import signal
from typing import Dict, List, Optional, Tuple

from .. import libc
from ..streams import read_all
from . import limits

RESET = [
    getattr(signal, name)
    for name in ("SIGPIPE", "SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXFSZ")
]


class SpawnError(Exception):
    """The program could not be executed; the text says which and why."""


def spawn(
    argv: List[str], env: Dict[str, str], workdir: str, stdout: int, stderr: int, stdin: Optional[int] = None
) -> int:
    """Fork and execute; returns the pid, which is also its session and process group.

    Args:
        argv: argv[0] is looked up in the PATH of `env` when it has no slash.
        stdout: descriptor, opened for appending.
        stdin: descriptor; None for /dev/null.

    Raises:
        SpawnError: no such program, not executable, no such folder, no more processes.
    """
    report_in, report_out = os.pipe()  # close-on-exec: the parent reads nothing when exec worked
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(report_in)
        os.close(report_out)
        raise SpawnError("fork: %s" % error.strerror)
    if pid == 0:
        try:
            _become(argv, env, workdir, (stdin, stdout, stderr), parent)
        except OSError as error:
            os.write(report_out, _problem(error, argv, env).encode("utf-8", "replace"))
        except BaseException as error:  # noqa: BLE001 - the child: nothing may escape into the agent's own code
            os.write(report_out, repr(error).encode("utf-8", "replace"))
        finally:
            os._exit(127)
    os.close(report_out)
    try:
        problem = read_all(report_in)
    finally:
        os.close(report_in)
    if problem:
        os.waitpid(pid, 0)
        raise SpawnError(problem.decode("utf-8", "replace"))
    return pid


def settle() -> None:
    """Called once all workers were started; other starters may have something to release."""


def _become(
    argv: List[str], env: Dict[str, str], workdir: str, streams: Tuple[Optional[int], int, int], parent: int
) -> None:
    os.setsid()
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(128 + signal.SIGKILL)
    for number in RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    stdin, stdout, stderr = streams
    os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.chdir(workdir)
    limits.restore_open_files()
    os.execvpe(argv[0], argv, env)


def _problem(error: OSError, argv: List[str], env: Dict[str, str]) -> str:
    """Why nothing was executed."""
    if error.errno == errno.E2BIG:
        too_big = limits.problem_with(limits.size_of(argv), env)
        longest = max(len(os.fsencode(word)) + 1 for word in argv)
        if longest > limits.LONGEST:
            too_big = "an argument takes %d bytes, more than the %d that Linux allows one" % (longest, limits.LONGEST)
        return "%s: %s" % (argv[0], too_big or error.strerror)
    return "%s: %s" % (error.filename or argv[0], error.strerror)
