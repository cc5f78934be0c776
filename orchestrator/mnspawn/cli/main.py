"""The entry point, and the one place that turns errors into exit statuses. Imports little: --version is fast."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mnspawn._version import __version__

if TYPE_CHECKING:
    from mnspawn.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (sys.argv's by default); give the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_standard_streams()
    _heed_locale()
    if words[:1] == ["--version"]:
        return _print_version()
    give_back = _take_signals()
    status = guard(lambda: _dispatch(words), words)
    if argv is None:
        _heed_no_signals()
    else:
        give_back()
    return status


def guard(command: Callable[[], int], words: Sequence[str] = ()) -> int:
    """Call a command; say what went wrong on stderr, in a line or two; give the exit status."""
    try:
        return command()
    except SystemExit as exc:  # typer's own: completion, and help into a closed pipe
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except KeyboardInterrupt:
        _heed_no_signals()
        from mnspawn.errors import ExitStatus

        return ExitStatus.INTERRUPTED
    except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 - the boundary: nothing is above
        return _say(exc, words)


def _heed_locale() -> None:
    """LC_ALL=C is for ASCII, whatever Python makes of it (PEP 540); its own variables win."""
    if os.environ.get("LC_ALL") in ("C", "POSIX") and not {"PYTHONIOENCODING", "PYTHONUTF8"} & os.environ.keys():
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="ascii", errors="backslashreplace")


def _heed_no_signals() -> None:
    """All is said and the interpreter goes; one more signal would put a traceback or itself in the status's place."""
    import contextlib
    import signal

    with contextlib.suppress(ValueError):  # not the main thread, where nobody may: then they do not come to us
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)


def _take_signals() -> Callable[[], None]:
    """A run's handlers stay to keep its result safe; gives what a process that goes on gets its own back with."""
    from mnspawn.system import interrupts

    before = interrupts.forget()
    return lambda: interrupts.restore(before)


def _dispatch(words: list[str]) -> int:
    from . import app

    return app.start(words)


def _say(error: BaseException, words: Sequence[str]) -> int:
    from mnspawn.errors import ExitStatus, InternalError, MnspawnError
    from mnspawn_inventory.errors import InventoryError

    from . import render
    from .wording.run import message_lines

    causes = list(_leaves(error))
    notes = [note for one in (error, *causes) for note in getattr(one, "__notes__", ())]
    for cause in causes:
        if isinstance(cause, MnspawnError) and not isinstance(cause, InternalError):
            render.print_error(cause)
            render.print_ours(line for note in notes for line in message_lines(note))
            return cause.exit_status
        if isinstance(cause, InventoryError):
            render.print_ours(message_lines(str(cause), cause.hint))
            return ExitStatus.USAGE
        if (short := _shortage(cause)) is not None:
            render.print_error(short)
            return short.exit_status
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return ExitStatus.INTERRUPTED
    if _wants_traceback(words):
        import traceback

        render.print_ours("".join(traceback.format_exception(error)).splitlines())
    cause = causes[0]
    found = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    hint = None if _wants_traceback(words) else "MNSPAWN_DEBUG=1 in the environment shows where"
    render.print_ours(message_lines(f"this is a bug in mnspawn, please report it: {found}", hint))
    render.print_ours(line for note in notes for line in message_lines(note))
    return ExitStatus.INTERNAL


def _shortage(error: BaseException) -> "UsageError | None":
    """This machine has no more files, processes or threads: no bug of ours, and no host's fault."""
    import errno

    from mnspawn.system.open_files import shortage

    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # a thread is one to the system
        error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return shortage(error, is_fork=True) if isinstance(error, OSError) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or those that a task group has collected."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _wants_traceback(words: Sequence[str]) -> bool:
    if os.environ.get("MNSPAWN_DEBUG") or os.environ.get("MNSPAWN_VERBOSE", "0") != "0":
        return True
    from mnspawn.errors import UsageError

    from . import table

    try:
        options = table.take_apart(words).options
    except UsageError:  # not even the command line could be read: then that is what is told
        return False
    return any(option in ("-v", "--verbose") for option in options)


def _print_version() -> int:
    try:
        os.write(1, f"mnspawn {__version__}\n".encode())
    except OSError:  # nobody reads it
        return 1
    return 0


def _open_standard_streams() -> None:
    """Fill closed ones of 0, 1, 2 (`mnspawn ... >&-`): else the next socket would get that number, and our output."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


if __name__ == "__main__":
    sys.exit(main())
