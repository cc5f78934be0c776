"""The entry point, and the one place that turns errors into exit statuses. Imports little: --version is fast."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from mnspawn._version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (sys.argv's by default); give the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_standard_streams()
    if words[:1] == ["--version"]:
        return _print_version()
    status = guard(lambda: _dispatch(words), words)
    if argv is None:
        _heed_no_interrupts()
    return status


def guard(command: Callable[[], int], words: Sequence[str] = ()) -> int:
    """Call a command; say what went wrong on stderr, in a line or two; give the exit status."""
    try:
        return command()
    except SystemExit as exc:  # typer's own: completion, and help into a closed pipe
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except KeyboardInterrupt:
        _heed_no_interrupts()
        from mnspawn.errors import ExitStatus

        return ExitStatus.INTERRUPTED
    except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 - the boundary: nothing is above
        return _say(exc, words)


def _heed_no_interrupts() -> None:
    """All is said and the interpreter goes; a second Ctrl-C would put a traceback or a signal in the status's place."""
    import contextlib
    import signal

    with contextlib.suppress(ValueError):  # not the main thread, where nobody may: then Ctrl-C does not come to us
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _dispatch(words: list[str]) -> int:
    from mnspawn.cli import app

    return app.start(words)


def _say(error: BaseException, words: Sequence[str]) -> int:
    from mnspawn.cli import render
    from mnspawn.cli.words import told
    from mnspawn.errors import ExitStatus, InternalError, MnspawnError
    from mnspawn_inventory.errors import InventoryError

    causes = list(_leaves(error))
    for cause in causes:
        if isinstance(cause, MnspawnError) and not isinstance(cause, InternalError):
            render.print_error(cause)
            return cause.exit_status
        if isinstance(cause, InventoryError):
            render.print_ours(told(str(cause), cause.hint))
            return ExitStatus.USAGE
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return ExitStatus.INTERRUPTED
    if _wants_traceback(words):
        import traceback

        render.print_ours("".join(traceback.format_exception(error)).splitlines())
    cause = causes[0]
    found = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    hint = None if _wants_traceback(words) else "MNSPAWN_DEBUG=1 in the environment shows where"
    render.print_ours(told(f"this is a bug in mnspawn, please report it: {found}", hint))
    return ExitStatus.INTERNAL


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
    from mnspawn.cli import app
    from mnspawn.errors import UsageError

    try:
        options = app.take_apart(words).options
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
